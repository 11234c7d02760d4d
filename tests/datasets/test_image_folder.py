"""Which files of a folder are samples, and of which class."""

from __future__ import annotations

import os
import pickle
import socket
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from headrace.datasets.image_rows import Images
from headrace.datasets.path_table import PathTable
from headrace.errors import ConfigError, FormatError, NotFoundError
from tests.datasets.pictures import one_colour, put

BLACK = one_colour(0, 0, 0)


def tree(root: Path, *names: str) -> Path:
    for name in names:
        put(root / name, BLACK)
    return root


def names_in(data: Images) -> list[str]:
    return [str(data.locate(index)) for index in range(len(data))]


def test_hidden_entries_are_no_classes_and_no_samples(tmp_path: Path) -> None:
    """Classes keep their numbers whatever a system left beside the images (B15, S4-12)."""
    tree(tmp_path, "cat/1.png", "dog/2.png", ".ipynb_checkpoints/copy.png")
    for name in (".DS_Store", "Thumbs.db", "cat/.DS_Store", "cat/Thumbs.db"):
        put(tmp_path / name, b"any")

    data = hr.ImageFolder(tmp_path)

    assert data.class_to_index == {"cat": 0, "dog": 1}
    assert names_in(data) == ["cat/1.png", "dog/2.png"]
    assert data.labels.tolist() == [0, 1]
    assert len(data.ignored) == 5
    assert [entry.name for entry in data.ignored] == [
        ".DS_Store",
        ".ipynb_checkpoints",
        "Thumbs.db",
        "cat/.DS_Store",
        "cat/Thumbs.db",
    ]
    assert data.ignored.counts == {"hidden": 5}


def test_classes_and_files_are_sorted_by_their_bytes(tmp_path: Path) -> None:
    """Nested folders belong to the class at the top; order is that of the whole path (S4-12)."""
    tree(
        tmp_path, "b/10.png", "b/9.png", "a/x/2.png", "a/x-1.png", "a/x.PNG", "Z/1.jpeg", "é/1.png"
    )

    data = hr.ImageFolder(tmp_path)

    assert data.classes == ["Z", "a", "b", "é"]
    assert names_in(data) == [
        "Z/1.jpeg",
        "a/x-1.png",
        "a/x.PNG",
        "a/x/2.png",
        "b/10.png",
        "b/9.png",
        "é/1.png",
    ]
    assert data.path(0) == str(tmp_path / "Z" / "1.jpeg")


def test_only_regular_files_of_known_suffix_count(tmp_path: Path) -> None:
    """Suffixes fold their case; all else is listed with its reason (S4-12)."""
    tree(tmp_path, "a/1.JPG", "a/2.Png", "a/notes.txt", "a/no_suffix", "stray.png")
    os.mkfifo(tmp_path / "a" / "pipe.png")
    (tmp_path / "a" / "folder.png").mkdir()
    (tmp_path / "a" / "gone.png").symlink_to(tmp_path / "nowhere.png")

    data = hr.ImageFolder(tmp_path)

    assert names_in(data) == ["a/1.JPG", "a/2.Png"]
    assert {entry.name: entry.reason for entry in data.ignored} == {
        "a/gone.png": "a link to nothing",
        "a/no_suffix": "of unknown suffix",
        "a/notes.txt": "of unknown suffix",
        "a/pipe.png": "not a regular file",
        "stray.png": "outside of a class folder",
    }


def test_a_socket_is_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its name (S4-12)."""
    tree(tmp_path, "a/1.png")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("a/s.png")

        assert hr.ImageFolder(tmp_path).ignored.counts == {"not a regular file": 1}


def test_links_count_as_what_they_lead_to(tmp_path: Path) -> None:
    """To images, to folders and to whole classes; one that leads back is left out (S4-12)."""
    tree(tmp_path, "store/one/1.png", "data/a/0.png")
    (tmp_path / "data" / "a" / "1.png").symlink_to(tmp_path / "store" / "one" / "1.png")
    (tmp_path / "data" / "b").symlink_to(tmp_path / "store" / "one")
    (tmp_path / "data" / "a" / "more").symlink_to(tmp_path / "store")
    (tmp_path / "data" / "a" / "round").symlink_to(tmp_path / "data")

    data = hr.ImageFolder(tmp_path / "data")

    assert names_in(data) == ["a/0.png", "a/1.png", "a/more/one/1.png", "b/1.png"]
    assert data.ignored.counts == {"a link to a folder around it": 1}


def test_classes_of_one_split_number_another(tmp_path: Path) -> None:
    """A split that lacks a class still numbers the others as the first does (S4-12)."""
    train = hr.ImageFolder(tree(tmp_path / "train", "cat/1.png", "dog/1.png", "fox/1.png"))
    tree(tmp_path / "val", "dog/9.png", "fox/8.png")

    val = hr.ImageFolder(tmp_path / "val", classes=train.class_to_index)

    assert val.labels.tolist() == [1, 2]
    assert val.class_to_index == train.class_to_index == {"cat": 0, "dog": 1, "fox": 2}
    assert hr.ImageFolder(tmp_path / "val", classes=["fox", "dog"]).labels.tolist() == [1, 0]


def test_an_unknown_class_is_refused(tmp_path: Path) -> None:
    """By name, with the classes that there are (S4-12)."""
    tree(tmp_path, "cat/1.png", "fox/1.png")

    with pytest.raises(FormatError, match=r"among classes \(cat, dog\), found folder 'fox'"):
        hr.ImageFolder(tmp_path, classes=["cat", "dog"])


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    """No folder, no class folder, no image, or a class without one (S4-12)."""
    with pytest.raises(NotFoundError, match=r"'nowhere' is not in ") as caught:
        hr.ImageFolder(tmp_path / "nowhere")
    assert isinstance(caught.value, FileNotFoundError)
    put(tmp_path / "1.png", BLACK)
    with pytest.raises(
        FormatError, match=r"1\.png: wanted a folder of class folders, found a file"
    ):
        hr.ImageFolder(tmp_path / "1.png")
    with pytest.raises(FormatError, match="wanted one folder per class, found no folder"):
        hr.ImageFolder(tmp_path)
    put(tmp_path / "a" / "1.txt")
    with pytest.raises(FormatError, match=r"wanted images \(\.bmp, .*\) in the class folders"):
        hr.ImageFolder(tmp_path)
    put(tmp_path / "b" / "1.png", BLACK)
    with pytest.raises(FormatError, match=r"/a: wanted at least one image of the class"):
        hr.ImageFolder(tmp_path)
    assert len(hr.ImageFolder(tmp_path, classes=["a", "b"])) == 1


def test_suffixes_may_be_others(tmp_path: Path) -> None:
    """In place of the known ones."""
    tree(tmp_path, "a/1.PIX", "a/2.png")

    data = hr.ImageFolder(tmp_path, suffixes=(".pix",))

    assert names_in(data) == ["a/1.PIX"]


def test_classes_that_are_none_are_refused(tmp_path: Path) -> None:
    """Neither a mapping to numbers nor a list of names."""
    tree(tmp_path, "a/1.png")

    for wrong in ("a", [], ["a", "a"], [1], {"a": "0"}, {"a": True}, {1: 0}):
        with pytest.raises(ConfigError, match="classes: wanted"):
            hr.ImageFolder(tmp_path, classes=wrong)  # type: ignore[arg-type]


def test_the_fingerprint_tells_trees_apart(tmp_path: Path) -> None:
    """Another name, size, class number or form is another dataset; another place is not."""
    one = tree(tmp_path / "one", "a/1.png", "b/2.png")
    first = hr.ImageFolder(one).fingerprint()

    assert hr.ImageFolder(tree(tmp_path / "two", "a/1.png", "b/2.png")).fingerprint() == first
    others = [
        hr.ImageFolder(tree(tmp_path / "three", "a/1.png", "b/3.png")),
        hr.ImageFolder(one, classes=["b", "a"]),
        hr.ImageFolder(one, mode="gray"),
        hr.ImageFolder(one, size=(4, 4)),
        hr.ImageFolder(one, background=(0, 0, 0)),
    ]
    assert all(other.fingerprint() != first for other in others)
    put(one / "a" / "1.png", BLACK + b"\0")
    assert hr.ImageFolder(one).fingerprint() != first


def test_names_are_kept_as_arrays() -> None:
    """A hundred thousand names of 30 letters take 3.8 MB, and not the 9 of strings (S4-47)."""
    names = [f"class-{number % 1000:04}/picture-{number:09}.j" for number in range(100_000)]

    table = PathTable(names)

    assert table.nbytes == 100_000 * (30 + 8) + 8
    assert len(pickle.dumps(table)) < table.nbytes + 1000
    assert [table[number] for number in (0, 99_999)] == [names[0], names[-1]]
    assert list(table) == names


def test_names_that_are_no_text_are_kept(tmp_path: Path) -> None:
    """A file system allows any bytes in a name (S4-12)."""
    put(tmp_path / "a" / os.fsdecode(b"\xff.png"), BLACK)

    data = hr.ImageFolder(tmp_path)

    assert np.asarray(data[0]["image"]).shape == (4, 4, 3)


def test_a_scan_holds_little_beside_the_names(tmp_path: Path) -> None:
    """While it goes on too: a million files must not cost gigabytes (S4-47)."""
    count = 3000
    tree(tmp_path, "a/0.png")
    for number in range(1, count):
        os.link(tmp_path / "a" / "0.png", tmp_path / "a" / f"{number}.png")

    tracemalloc.start()
    data = hr.ImageFolder(tmp_path)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(data) == count
    assert peak < 600 * count
    assert held < 100 * count
