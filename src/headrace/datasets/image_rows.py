"""Images and their classes as a dataset: of one size as rows, of any size as samples."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices, check_index, check_indices
from headrace.datasets.dataset import BulkDataset, Column, Dataset, Layout, Location, Opened, Out
from headrace.datasets.ignored import Ignored
from headrace.datasets.image_decode import decode_into, decode_whole
from headrace.datasets.image_files import ImageFiles
from headrace.datasets.image_form import ImageForm
from headrace.errors import RowErrors

IMAGE, LABEL = "image", "label"


class Images(Opened):
    """What both kinds of image dataset have. Files are open only while they are read.

    Attributes:
        kind: Name of the function that made it.
        form: What becomes of every image.
        ignored: What was left out of the folder.
    """

    def __init__(
        self, kind: str, files: ImageFiles, form: ImageForm, ignored: Ignored | None = None
    ) -> None:
        self.kind = kind
        self.form = form
        self.ignored = Ignored([]) if ignored is None else ignored
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    @property
    def class_to_index(self) -> dict[str, int]:
        """Name of each class to its number: `classes=` of another split takes it."""
        return dict(self._files.class_to_index)

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of their numbers."""
        numbers = self._files.class_to_index
        return sorted(numbers, key=lambda name: numbers[name])

    @property
    def labels(self) -> NDArray[np.int64]:
        """Class number of every sample, int64 `[samples]`, read-only."""
        view = self._files.labels.view()
        view.flags.writeable = False
        return view

    def path(self, index: int) -> str:
        """Give the file of a sample."""
        name = self._files.names[check_index(index, len(self), self)]
        return os.path.join(self._files.root, name)

    def locate(self, index: int) -> Location:
        return Location(self._files.names[check_index(index, len(self), self)])

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "samples": len(self),
            "form": self.form.facts(),
            **self._files.facts(),
        }

    def __repr__(self) -> str:
        size = "" if self.form.size is None else f", size={self.form.size}"
        return f"{self.kind}({self._files.root!r}{size}: {len(self)} images)"


class ImageSamples(Images, Dataset):
    """Images as large as they are: samples `{"image": array, "label": int}`.

    The array is `[H, W, C]`, or `[C, H, W]` for `channels="first"`, and belongs to the caller.
    """

    def __getitem__(self, index: int) -> dict[str, Any]:
        number = check_index(index, len(self), self)
        data = self._files.read(number)
        image = decode_whole(data, self._files.names[number], self.form)
        return {IMAGE: image, LABEL: int(self._files.labels[number])}


class ImageRows(Images, BulkDataset):
    """Images of one size: rows of "image" and int64 "label", decoded straight into the batch."""

    decodes = True

    @property
    def layout(self) -> Layout:
        assert self.form.size is not None
        shape = self.form.shape(self.form.size)
        return Column(IMAGE, self.form.dtype, shape), Column(LABEL, np.dtype(np.int64))

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Give one sample as `{"image": array, "label": int}`."""
        number = check_index(index, len(self), self)
        column = self.layout[0]
        image = np.empty(column.unit_shape, column.dtype)
        self._decode(number, image)
        return {IMAGE: image, LABEL: int(self._files.labels[number])}

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        check_indices(indices, len(self), self)
        images, labels = out[IMAGE], out[LABEL]
        assert isinstance(images, np.ndarray)
        assert isinstance(labels, np.ndarray)
        errors: dict[int, Exception] = {}
        for index, row in zip(indices.tolist(), rows.tolist(), strict=True):
            try:
                self._decode(index, images[row])
            except Exception as error:  # noqa: BLE001 - told by row, so that it names its sample
                errors[row] = error
        labels[rows] = self._files.labels[indices]
        if errors:
            raise RowErrors(errors)

    def _decode(self, index: int, into: NDArray[Any]) -> None:
        data = self._files.read(index)
        decode_into(data, self._files.names[index], self.form, into)
