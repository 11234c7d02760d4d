"""Image datasets of torch's family, which hold data, targets and a transform."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import headrace as hr
from headrace import images


class Mnist:
    """Built as torchvision builds MNIST and CIFAR: all in memory, a PIL image for each index.

    Args:
        root: Folder of the data.
        transform: Makes a tensor of an image.
        target_transform: Makes something of a label.
        download: Only False is known here.
    """

    def __init__(
        self,
        root: Path,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        if not (root / "raw.npy").exists():
            raise RuntimeError("Dataset not found. You can use download=True to download it")
        assert not download
        self.data = torch.from_numpy(np.load(root / "raw.npy"))
        self.targets = torch.arange(len(self.data)) % 10
        self.transform = transform
        self.target_transform = target_transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image: Any = Image.fromarray(self.data[index].numpy())
        target = int(self.targets[index])
        if self.transform is not None:
            image = self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)


def to_tensor(image: Image.Image) -> torch.Tensor:
    return images.to_float(torch.from_numpy(np.array(image))[:, :, None])


def put_data(folder: Path, shape: tuple[int, ...] = (4, 5)) -> Path:
    count = 30
    pixels = np.arange(count * int(np.prod(shape)), dtype=np.uint64) % 251
    np.save(folder / "raw.npy", pixels.astype(np.uint8).reshape(count, *shape))
    return folder


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_they_work_as_they_are(tmp_path: Path, workers: int) -> None:
    """Image and label of each index, transformed, for any number of readers (S4-09)."""
    data = Mnist(put_data(tmp_path), to_tensor)

    with hr.Loader(data, batch_size=7, seed=1, workers=workers) as loader:
        for batch in loader.epoch(0):
            image, label = batch
            assert image.shape == (7, 1, 4, 5)
            assert image.dtype == torch.float32
            assert torch.equal(image, data.data[batch.indices][:, None] / 255)
            assert label.tolist() == (batch.indices % 10).tolist()


def test_their_arrays_can_be_handed_over(tmp_path: Path) -> None:
    """Without Python for each sample: the data are arrays already (S4-09)."""
    data = Mnist(put_data(tmp_path, (4, 5, 3)))
    arrays = hr.Arrays({"image": data.data, "label": data.targets})

    def transform(batch: hr.Batch, keys: Any) -> Any:
        return {**batch, "image": images.to_float(batch["image"])}

    with hr.Loader(arrays, batch_size=6, seed=1, transform=transform) as loader:
        batch = next(iter(loader))

    assert batch["image"].shape == (6, 3, 4, 5)
    assert torch.allclose(batch["image"], data.data[batch.indices].permute(0, 3, 1, 2) / 255)


def test_an_image_without_transform_is_refused(tmp_path: Path) -> None:
    """A PIL image is no tensor; the error says which field (S4-09, S4-16)."""
    data = Mnist(put_data(tmp_path))

    with (
        hr.Loader(data, batch_size=2, shuffle=False) as loader,
        pytest.raises(hr.CollateError, match="Image") as caught,
    ):
        next(iter(loader))

    assert caught.value.field == "0"


def test_missing_data_raises_before_any_loader(tmp_path: Path) -> None:
    """The dataset's own error, as torch's users know it (S4-09)."""
    with pytest.raises(RuntimeError, match="Dataset not found"):
        hr.Loader(Mnist(tmp_path), batch_size=2)


def test_data_that_goes_missing_is_told_by_its_sample(tmp_path: Path) -> None:
    """A file that a dataset opens for each index, as in torchvision's folders (S4-09)."""

    class Files:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return np.load(tmp_path / f"{index}.npy"), index

    for index in (0, 1):
        np.save(tmp_path / f"{index}.npy", np.zeros(2))

    with hr.Loader(Files(), batch_size=1, shuffle=False, on_bad_sample="replace") as loader:
        batches = iter(loader)
        assert [int(next(batches)[1]) for _ in range(2)] == [0, 1]
        with pytest.raises(FileNotFoundError, match="step 2, sample 2"):
            next(batches)
