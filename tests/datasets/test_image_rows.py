"""Images through the contracts and through the Loader."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import headrace as hr
from headrace.datasets.dataset import BulkDataset, Dataset, Out
from headrace.datasets.image_rows import ImageRows
from headrace.errors import CollateError, FormatError, NotFoundError, SourceChangedError
from headrace.testing.dataset_contract import BulkDatasetContract, DatasetContract
from tests.datasets.pictures import encoded, pattern, put

SHAPES = [(8, 8), (8, 8), (12, 9), (30, 20), (8, 8), (9, 12)]


def tree(root: Path, shapes: list[tuple[int, int]] = SHAPES) -> Path:
    """Pictures by number, in two classes: even ones in "a", odd ones in "b"."""
    for number, shape in enumerate(shapes):
        put(root / "ab"[number % 2] / f"{number}.png", encoded(pattern(*shape, seed=number)))
    return root


def number_of(index: int, count: int = len(SHAPES)) -> int:
    """Give the number of the picture that a sample is: the even ones come first."""
    numbers: list[int] = [*range(0, count, 2), *range(1, count, 2)]
    return numbers[index]


class TestImageSamples(DatasetContract):
    @pytest.fixture(autouse=True)
    def _tree(self, tmp_path: Path) -> None:
        self.root = tree(tmp_path)

    def make(self) -> Dataset:
        return hr.ImageFolder(self.root)

    def sample(self, index: int) -> Any:
        number = number_of(index)
        return {"image": pattern(*SHAPES[number], seed=number), "label": number % 2}


class TestImageRows(BulkDatasetContract):
    @pytest.fixture(autouse=True)
    def _tree(self, tmp_path: Path) -> None:
        self.root = tree(tmp_path)

    def make(self) -> BulkDataset:
        return hr.ImageFolder(self.root, size=(8, 8))

    def stored_row(self, index: int) -> Mapping[str, Any]:
        sample = hr.ImageFolder(self.root)[index]
        image = np.zeros((8, 8, 3), np.uint8)
        hr.images.resize_into(_centre(sample["image"]), image)
        return {"image": image, "label": sample["label"]}


class TestImageRowsWithABrokenFile(TestImageRows):
    bad_indices = (1, 4)

    @pytest.fixture(autouse=True)
    def _broken(self, _tree: None) -> None:
        put(self.root / "a" / "2.png", b"no image")
        put(self.root / "b" / "3.png", encoded(pattern(30, 20))[:-40])


class TestManifestRows(TestImageRows):
    def make(self) -> BulkDataset:
        names = [f"{'ab'[number_of(i) % 2]}/{number_of(i)}.png" for i in range(len(SHAPES))]
        lines = [f"{name},{name[0]}\n" for name in names]
        put(self.root / "m.csv", "".join(["path,label\n", *lines]).encode())
        return hr.ImageManifest(self.root / "m.csv", size=(8, 8))


def _centre(image: NDArray[Any]) -> NDArray[Any]:
    height, width, _ = image.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return image[top : top + side, left : left + side]


def epoch_of(data: Any, **knobs: Any) -> list[tuple[list[int], list[int], bytes]]:
    """Give what a loader delivers: indices, labels and pixels of each batch."""
    with hr.Loader(data, **{"batch_size": 2, "seed": 3, **knobs}) as loader:
        return [
            (
                batch.indices.tolist(),
                batch["label"].tolist(),
                batch["image"].numpy().tobytes(),
            )
            for batch in loader.epoch(0)
        ]


@pytest.mark.parametrize("size", [(6, 7), None])
def test_the_stream_does_not_depend_on_threads(tmp_path: Path, size: Any) -> None:
    """Rows and samples alike, for any number of readers (S4-13)."""
    data = hr.ImageFolder(tree(tmp_path, [(10, 10)] * 8), size=size)

    alone = epoch_of(data, workers=0)

    assert sorted(index for indices, _, _ in alone for index in indices) == list(range(8))
    assert all(labels == [index // 4 for index in indices] for indices, labels, _ in alone)
    for workers, prefetch in ((1, 1), (2, 8), (4, 3)):
        assert epoch_of(data, workers=workers, prefetch=prefetch) == alone


async def test_batches_can_be_awaited_and_resumed(tmp_path: Path) -> None:
    """The second half of an epoch follows from a state (S4-13)."""
    data = hr.ImageFolder(tree(tmp_path), size=(6, 6))
    whole = epoch_of(data, workers=0)
    with hr.Loader(data, batch_size=2, seed=3) as loader:
        stream = loader.epoch(0)
        await anext(stream)
        state = loader.state_dict()

    with hr.Loader(data, batch_size=2, seed=3) as loader:
        loader.load_state_dict(state)
        rest = [batch["image"].numpy().tobytes() async for batch in loader.epoch(0)]

    assert rest == [pixels for _, _, pixels in whole[1:]]


def test_unequal_images_are_told_by_both_samples(tmp_path: Path) -> None:
    """Without a size they do not stack (S4-14)."""
    data = hr.ImageFolder(tree(tmp_path))

    with (
        hr.Loader(data, batch_size=3, shuffle=False) as loader,
        pytest.raises(CollateError, match="image") as caught,
    ):
        next(iter(loader))

    assert caught.value.indices == (0, 1)


def test_a_crop_drawn_from_the_key_makes_them_equal(tmp_path: Path) -> None:
    """Other crops in another epoch, the same ones in another run (S4-14, S4-15)."""
    data = hr.ImageFolder(tree(tmp_path, [(20, 20)] * 4))

    def crop(sample: dict[str, Any], key: hr.PickKey) -> dict[str, Any]:
        rng = key.rng()
        top, left = rng.next_int(13), rng.next_int(13)
        return {**sample, "image": sample["image"][top : top + 8, left : left + 8].copy()}

    def pixels(epoch: int) -> bytes:
        with hr.Loader(
            data, batch_size=4, shuffle=False, sample_transform=crop, workers=2
        ) as loader:
            batch = next(iter(loader.epoch(epoch)))
            assert batch["image"].shape == (4, 8, 8, 3)
            return bytes(batch["image"].numpy().tobytes())

    assert pixels(0) == pixels(0)
    assert pixels(0) != pixels(1)


def test_a_broken_image_is_named_at_its_step(tmp_path: Path) -> None:
    """File, index and step; the steps before it arrive (S4-13)."""
    root = tree(tmp_path)
    put(root / "b" / "1.png", b"no image")

    for size in ((8, 8), None):
        with hr.Loader(
            hr.ImageFolder(root, size=size), batch_size=1, shuffle=False, workers=2
        ) as loader:
            batches = iter(loader.epoch(0))
            assert [int(next(batches)["label"][0]) for _ in range(3)] == [0, 0, 0]
            with pytest.raises(
                FormatError, match=r"step 3, sample 3 \(b/1\.png\): .*bytes of no known kind"
            ):
                next(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_image_may_be_replaced(tmp_path: Path, workers: int) -> None:
    """By another sample, in rows and in samples alike; the epoch goes on (S4-13)."""
    root = tree(tmp_path, [(8, 8)] * 6)
    put(root / "b" / "1.png", b"no image")

    rows, samples = (
        epoch_of(hr.ImageFolder(root, size=size), workers=workers, on_bad_sample="replace", seed=1)
        for size in ((8, 8), None)
    )

    assert rows == samples
    assert 3 not in [index for indices, _, _ in rows for index in indices]
    assert sum(len(indices) for indices, _, _ in rows) == 6


def test_a_file_that_went_or_changed_is_no_bad_sample(tmp_path: Path) -> None:
    """Even where bad samples are survived: the data is another (S4-13)."""
    root = tree(tmp_path)
    data = hr.ImageFolder(root, size=(8, 8))
    put(root / "a" / "0.png", encoded(pattern(5, 5)))
    (root / "a" / "2.png").unlink()

    with hr.Loader(data, batch_size=1, shuffle=False, on_bad_sample="replace") as loader:
        with pytest.raises(SourceChangedError, match=r"a/0\.png in .* changed during the run"):
            loader.batch_at(0)
        with pytest.raises(NotFoundError, match=r"'a/2\.png' is not in"):
            loader.batch_at(1)


def test_no_file_stays_open(tmp_path: Path) -> None:
    """Neither between reads nor after damage, on any thread (S4-13)."""
    root = tree(tmp_path)
    put(root / "a" / "2.png", encoded(pattern(9, 9))[:50])
    before = len(os.listdir("/dev/fd"))

    with hr.Loader(
        hr.ImageFolder(root, size=(8, 8)), batch_size=2, workers=0, on_bad_sample="mask"
    ) as loader:
        for _ in loader.epoch(0):
            assert len(os.listdir("/dev/fd")) == before


def test_several_threads_decode_at_once(tmp_path: Path) -> None:
    """By default too, however small the steps: decoding is work (S4-13)."""
    data = _Together("ImageFolder", *_parts(hr.ImageFolder(tree(tmp_path), size=(4, 4))))

    with hr.Loader(data, batch_size=1, shuffle=False, workers=2, prefetch=8) as loader:
        labels = [int(batch["label"][0]) for batch in loader.epoch(0)]

    assert labels == [0, 0, 0, 1, 1, 1]
    assert len(data.threads) == 2


def test_small_steps_of_images_get_every_reader(tmp_path: Path) -> None:
    """Where nothing is said of workers; through a subset as well (S4-13)."""
    data = hr.ImageFolder(tree(tmp_path), size=(4, 4))

    for images in (data, data.subset(range(4)), data.select("image")):
        with hr.Loader(images, batch_size=2) as loader:
            assert loader.stats()["workers"] == hr.config.auto_workers()


class _Together(ImageRows):
    """The first two reads begin only once two threads read."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.threads: set[int] = set()
        self._both = threading.Barrier(2)

    def read_into_blocking(self, indices: Any, out: Out, rows: Any) -> None:
        if len(self.threads) < 2:
            self.threads.add(threading.get_ident())
            self._both.wait(20)
        super().read_into_blocking(indices, out, rows)


def _parts(data: ImageRows) -> tuple[Any, ...]:
    return data._files, data.form


def test_one_row_is_what_the_batch_holds(tmp_path: Path) -> None:
    """An index gives a sample of its own memory; channels may come first (S4-14)."""
    data = hr.ImageFolder(tree(tmp_path), size=(8, 9), mode="gray", channels="first")

    with hr.Loader(data, batch_size=6, shuffle=False) as loader:
        batch = next(iter(loader))

    assert batch["image"].shape == (6, 1, 8, 9)
    assert batch["image"].dtype == torch.uint8
    for index in range(6):
        assert np.array_equal(data[index]["image"], batch["image"][index].numpy())
        assert data[index]["label"] == batch["label"][index]
    assert repr(data) == f"ImageFolder({str(tmp_path)!r}, size=(8, 9): 6 images)"
