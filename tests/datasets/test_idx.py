"""The idx format, and MNIST in it."""

from __future__ import annotations

import gzip
import math
import pickle
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from headrace import BulkDataset, Loader, Mnist, read_idx
from headrace.errors import ConfigError, FormatError, IndexOutOfRangeError, NotFoundError
from headrace.testing.dataset_contract import BulkDatasetContract

IMAGES = np.arange(5 * 2 * 3, dtype=np.uint8).reshape(5, 2, 3)
LABELS = [7, 0, 255, 7, 3]
CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx(array: np.ndarray[Any, Any]) -> bytes:
    """Give an idx file, made by hand."""
    magic = bytes([0, 0, CODES[array.dtype.str[1:]], array.ndim])
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return magic + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


def mnist_folder(folder: Path, pack: Callable[[bytes], bytes] = bytes, end: str = "") -> Path:
    """Write tiny sets under the names of the real ones; the test set has the last two images."""
    folder.mkdir(exist_ok=True)
    for prefix, images, labels in (("train", IMAGES, LABELS), ("t10k", IMAGES[3:], LABELS[3:])):
        image_file = folder / f"{prefix}-images-idx3-ubyte{end}"
        image_file.write_bytes(pack(idx(images)))
        label_file = folder / f"{prefix}-labels-idx1-ubyte{end}"
        label_file.write_bytes(pack(idx(np.array(labels, np.uint8))))
    return folder


class TestMnist(BulkDatasetContract):
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        self.folder = mnist_folder(tmp_path)

    def make(self) -> BulkDataset:
        return Mnist(self.folder)

    def stored_row(self, index: int) -> Mapping[str, Any]:
        return {"image": IMAGES[index][np.newaxis], "label": LABELS[index]}


@given(
    dtype=st.sampled_from(list(CODES)),
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    is_packed=st.booleans(),
)
def test_every_type_of_number_is_read(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: list[int], is_packed: bool
) -> None:
    """Each type and any number of dimensions, in native byte order, packed or not (S4-11)."""
    rng = np.random.default_rng(0)
    array = rng.integers(0, 256, np.prod(shape) * np.dtype(dtype).itemsize, np.uint8).view(dtype)
    path = tmp_path_factory.mktemp("idx") / "array"
    data = idx(array.reshape(shape))
    path.write_bytes(gzip.compress(data) if is_packed else data)

    found = read_idx(path)

    assert found.dtype == np.dtype(dtype)
    assert found.dtype.isnative
    assert found.shape == tuple(shape)
    assert found.tobytes() == array.tobytes()


def test_floats_come_in_native_order(tmp_path: Path) -> None:
    """Type byte 0D with three values (B17)."""
    path = tmp_path / "floats"
    path.write_bytes(bytes.fromhex("00000d01 00000003 3fc00000 c0000000 7f800000"))

    found = read_idx(path)

    assert found.tolist() == [1.5, -2.0, np.inf]
    assert found.dtype == np.dtype(np.float32)


def test_arrays_go_into_a_tensor_dataset(tmp_path: Path) -> None:
    """The route of those who train on tensors: what is read is writable and shared (S4-11)."""
    folder = mnist_folder(tmp_path)
    images = torch.from_numpy(read_idx(folder / "train-images-idx3-ubyte"))
    labels = torch.from_numpy(read_idx(folder / "train-labels-idx1-ubyte"))

    with Loader(TensorDataset(images / 255, labels), batch_size=2, shuffle=False) as loader:
        batch = next(iter(loader))

    assert batch[0].dtype == torch.float32
    assert torch.equal(batch[0] * 255, images[:2])
    assert batch[1].tolist() == [7, 0]


@pytest.mark.parametrize("end", ["", ".gz"])
def test_gzip_is_told_by_the_first_bytes(end: str, tmp_path: Path) -> None:
    """Packed files are read with their suffix, and where it was lost (S0-10, B17)."""
    data = Mnist(mnist_folder(tmp_path, gzip.compress, end))

    with Loader(data, batch_size=5, shuffle=False) as loader:
        (batch,) = list(loader)

    assert batch["image"].shape == (5, 1, 2, 3)
    assert batch["image"].flatten().tolist() == IMAGES.reshape(-1).tolist()
    assert batch["label"].tolist() == LABELS
    assert (batch["image"].dtype, batch["label"].dtype) == (torch.uint8, torch.int64)


def test_plain_files_are_named_gz_too(tmp_path: Path) -> None:
    """Some tools unpack in place; the set is the same, and so is its fingerprint."""
    plain = Mnist(mnist_folder(tmp_path / "a", bytes, ".gz"))
    packed = Mnist(mnist_folder(tmp_path / "b", gzip.compress, ".gz"))

    assert len(plain) == 5
    assert plain.fingerprint() == packed.fingerprint()


def test_the_test_set_is_another(tmp_path: Path) -> None:
    """`train=False` reads the files of the test set."""
    folder = mnist_folder(tmp_path)
    train, test = Mnist(folder), Mnist(folder, train=False)

    assert [sample["label"].item() for sample in (test[0], test[1])] == [7, 3]
    assert train.fingerprint() != test.fingerprint()
    assert str(test.locate(1)) == f"{folder}/t10k-images-idx3-ubyte, image 1"
    with pytest.raises(IndexOutOfRangeError):
        test.locate(2)


def test_any_two_files_are_a_set(tmp_path: Path) -> None:
    """Fashion-MNIST, EMNIST and others come in files of other names."""
    (tmp_path / "letters").write_bytes(idx(IMAGES))
    (tmp_path / "classes").write_bytes(gzip.compress(idx(np.array(LABELS, np.uint8))))

    data = Mnist.files(tmp_path / "letters", tmp_path / "classes")

    assert len(data) == 5
    assert data[2]["label"].item() == 255


def test_a_pickle_carries_the_paths(tmp_path: Path) -> None:
    """Its copy reads the files again."""
    big = np.zeros((1000, 28, 28), np.uint8)
    (tmp_path / "images").write_bytes(idx(big))
    (tmp_path / "labels").write_bytes(idx(np.arange(1000).astype(np.uint8)))

    pickled = pickle.dumps(Mnist.files(tmp_path / "images", tmp_path / "labels"))

    assert len(pickled) < 1_000
    assert pickle.loads(pickled)[300]["label"].item() == 300 % 256


WHOLE = idx(IMAGES)
REFUSED = {
    "other dimensions": (b"\0\0\x08\x04" + WHOLE[4:], "magic 00 00 08 03 .*found 00 00 08 04"),
    "labels": (idx(np.array(LABELS, np.uint8)), "magic 00 00 08 03 .*found 00 00 08 01"),
    "floats": (b"\0\0\x0d\x03" + WHOLE[4:], "magic 00 00 08 03 .*found 00 00 0d 03"),
    "nothing": (b"", "magic 00 00 08 03 .*found an empty file"),
    "half a magic": (WHOLE[:3], "magic 00 00 08 03 .*found 00 00 08"),
    "half the sizes": (WHOLE[:9], "3 sizes of 4 bytes, found 5 bytes"),
    "a byte lacking": (
        WHOLE[:-1],
        r"30 bytes of values by its header, shape \(5, 2, 3\), found 29",
    ),
    "a byte too many": (WHOLE + b"\0", "30 bytes of values .*found more"),
    "a size that lies": (
        WHOLE[:4] + b"\xff" * 12 + WHOLE[16:],
        "79228162458924105385300197375 bytes of values .*found 30",
    ),
    "a picture": (b"\x89PNG\r\n\x1a\n", "magic 00 00 08 03 .*found 89 50 4e 47"),
    "gzip of nothing": (gzip.compress(b""), "magic .*found an empty file"),
    "gzip cut off": (gzip.compress(WHOLE)[:-9], "a whole gzip file"),
    "gzip with a wrong sum": (
        gzip.compress(WHOLE)[:-8] + bytes(8),
        "a whole gzip file",
    ),
    "gzip of other bytes": (b"\x1f\x8b\x08\0" + bytes(20), "a whole gzip file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_files_that_are_no_images_are_refused(case: str, tmp_path: Path) -> None:
    """With the path, what was wanted and what was found (S0-10, B17)."""
    contents, message = REFUSED[case]
    folder = mnist_folder(tmp_path)
    (folder / "train-images-idx3-ubyte").write_bytes(contents)

    with pytest.raises(FormatError, match=f"train-images-idx3-ubyte: .*{message}"):
        Mnist(folder)


@pytest.mark.parametrize("sizes", [(0, *[2**32 - 1] * 3), (1,) * 65], ids=["size", "dimensions"])
def test_shapes_beyond_numpys_are_refused(sizes: tuple[int, ...], tmp_path: Path) -> None:
    """As any header that cannot be meant, with the path (S0-10)."""
    path = tmp_path / "array"
    header = bytes([0, 0, 0x08, len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes)
    path.write_bytes(header + bytes(math.prod(sizes)))

    with pytest.raises(FormatError, match=r"array: wanted a shape that numpy has, found \("):
        read_idx(path)


UNKNOWN = {
    "a type of none": "00000a01 00000000",
    "no dimension": "00000800",
    "no zeros": "00010801 00000000",
    "text": "68656c6c 6f",
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_magics_that_mean_nothing_are_refused(case: str, tmp_path: Path) -> None:
    """Any idx file may be read, but nothing else."""
    path = tmp_path / "array"
    path.write_bytes(bytes.fromhex(UNKNOWN[case]))

    with pytest.raises(FormatError, match=r"array: wanted an idx magic: 00 00, a type out of 08, "):
        read_idx(path)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    """As many labels as images."""
    folder = mnist_folder(tmp_path)

    with pytest.raises(FormatError, match=r"t10k-labels.*5 labels, as many .*found 2"):
        Mnist.files(folder / "train-images-idx3-ubyte", folder / "t10k-labels-idx1-ubyte")


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    """With the other names that were looked for, and no word of downloading."""
    with pytest.raises(NotFoundError, match=r"'train-images-idx3-ubyte' .*images.idx3-ubyte\.gz"):
        Mnist(tmp_path)
    with pytest.raises(NotFoundError, match="'letters'"):
        read_idx(tmp_path / "letters")
    with pytest.raises(NotFoundError, match=r"'letters' is not in .*There is no such folder"):
        read_idx(tmp_path / "no" / "letters")
    with pytest.raises(NotFoundError, match="'no' is not in"):
        Mnist(tmp_path / "no")


def test_a_file_in_place_of_a_folder_is_told(tmp_path: Path) -> None:
    """And the other way round: neither is missing."""
    file = mnist_folder(tmp_path) / "train-images-idx3-ubyte"

    with pytest.raises(FormatError, match="wanted a folder, found a file"):
        Mnist(file)
    with pytest.raises(FormatError, match="wanted an idx file, found a folder"):
        read_idx(tmp_path)


def test_which_set_is_asked_for_by_a_flag_alone(tmp_path: Path) -> None:
    """The word "test" counts as true, and would give the training set in silence."""
    train: Any = "test"

    with pytest.raises(ConfigError, match="train: wanted True or False, got 'test'"):
        Mnist(mnist_folder(tmp_path), train)


def test_a_remote_folder_is_refused() -> None:
    """As for every dataset of files."""
    with pytest.raises(ConfigError, match="local files"):
        Mnist("https://host/mnist")
