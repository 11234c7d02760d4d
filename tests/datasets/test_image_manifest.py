"""Tables of images: what is taken from them, and how mistakes are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.datasets.manifest_table import ManifestRows
from headrace.errors import ConfigError, FormatError, NotFoundError
from tests.datasets.pictures import one_colour, put


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        put(tmp_path / "images" / f"{number}.png", one_colour(number, 0, 0))
    return tmp_path


def table(folder: Path, text: str, name: str = "m.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def reds(data: Any) -> list[int]:
    return [int(data[index]["image"][0, 0, 0]) for index in range(len(data))]


def test_rows_come_in_the_order_of_the_table(folder: Path) -> None:
    """Paths are relative to it; other columns are left alone (S4-14)."""
    path = table(
        folder,
        "id,label,path\n7,cat,images/2.png\n\n8,dog,images/0.png\n9,cat,./images//1.png\n",
    )

    data = hr.ImageManifest(path)

    assert reds(data) == [2, 0, 1]
    assert data.labels.tolist() == [0, 1, 0]
    assert data.class_to_index == {"cat": 0, "dog": 1}
    assert [str(data.locate(index)) for index in range(3)] == [
        "images/2.png",
        "images/0.png",
        "images/1.png",
    ]


def test_splits_share_the_numbers_of_their_classes(folder: Path) -> None:
    """Classes are numbered over all rows, whatever split is taken (S4-14)."""
    path = table(
        folder,
        "path,label,split\nimages/0.png,fox,train\nimages/1.png,ant,val\nimages/2.png,fox,val\n",
    )

    train, val = (hr.ImageManifest(path, split=split) for split in ("train", "val"))

    assert train.class_to_index == val.class_to_index == {"ant": 0, "fox": 1}
    assert (reds(train), train.labels.tolist()) == ([0], [1])
    assert (reds(val), val.labels.tolist()) == ([1, 2], [0, 1])
    assert len(hr.ImageManifest(path)) == 3


def test_whole_numbers_are_the_class_numbers(folder: Path) -> None:
    """So class 10 does not come before class 2 (S4-14)."""
    path = table(folder, "path,label\nimages/0.png,10\nimages/1.png,2\nimages/2.png,10\n")

    data = hr.ImageManifest(path)

    assert data.labels.tolist() == [10, 2, 10]
    assert list(data.class_to_index.items()) == [("2", 2), ("10", 10)]
    assert hr.ImageManifest(path, classes=["2", "10"]).labels.tolist() == [1, 0, 1]


def test_the_root_may_be_elsewhere(folder: Path) -> None:
    """Absolute paths below it are relative ones in the fingerprint (S4-14)."""
    relative = table(folder, "path,label\n0.png,a\n")
    absolute = table(folder, f"path,label\n{folder}/images/0.png,a\n", "absolute.csv")

    one = hr.ImageManifest(relative, root=folder / "images")
    other = hr.ImageManifest(absolute, root=folder / "images")

    assert one.fingerprint() == other.fingerprint()
    assert reds(other) == [0]


def test_a_quoted_path_and_a_mark_of_a_spreadsheet_are_read(folder: Path) -> None:
    """A comma in a name, a byte order mark, and Windows line ends (S4-14)."""
    put(folder / "a, b.png", one_colour(9, 0, 0))
    path = folder / "m.csv"
    path.write_bytes('\ufeffPath, Label\r\n"a, b.png",x\r\n'.encode())

    assert reds(hr.ImageManifest(path)) == [9]


def test_numbers_with_a_sign_or_a_point_are_class_names_only_by_choice(folder: Path) -> None:
    """Sorted as names, 10.0 would come before 2.0 (S4-14)."""
    path = table(folder, "path,label\nimages/0.png,10.0\nimages/1.png,2.0\n")

    data = hr.ImageManifest(path, classes=["2.0", "10.0"])

    assert data.labels.tolist() == [1, 0]


def test_a_missing_root_is_told_as_one(folder: Path) -> None:
    """And not as its first image; a folder in place of the table is told too (S4-14)."""
    path = table(folder, "path,label\n0.png,a\n")

    with pytest.raises(NotFoundError, match=r"'image' is not in "):
        hr.ImageManifest(path, root=folder / "image")
    with pytest.raises(FormatError, match="wanted a CSV file, found a folder"):
        hr.ImageManifest(folder)


def test_a_missing_image_is_named_with_its_line(folder: Path) -> None:
    """Not at the step that would have read it (S4-14)."""
    path = table(folder, "path,label\nimages/0.png,a\nimages/7.png,a\n")

    with pytest.raises(NotFoundError, match=r"'images/7\.png' .*m\.csv, line 3 lists it") as caught:
        hr.ImageManifest(path)
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(NotFoundError, match=r"'no\.csv' is not in"):
        hr.ImageManifest(folder / "no.csv")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "wanted a header with the columns path and label.*, found an empty file"),
        ("path,class\nimages/0.png,a\n", "a header with the columns path and label.*path, class"),
        ("path,label\n", "wanted a line for each image after the header, found none"),
        ("path,label\nimages/0.png\n", r"line 2: wanted 2 fields, as in the header, found 1"),
        ("path,label\nimages/0.png,\n", r"line 2: wanted a label, found an empty field"),
        ("path,label\n ,a\n", r"line 2: wanted a path, found an empty field"),
        ("path,label,split\nimages/0.png,a,\n", r"line 2: wanted a split, found an empty"),
        ("path,label\n../x.png,a\n", r"line 2: wanted a path below .*, found \.\./x\.png"),
        ("path,label\nimages/0.png,1\nimages/1.png,x\n", r"line 3: wanted a whole number.*'x'"),
        ("path,label\nimages/0.png,x\nimages/1.png,1\n", r"line 3: wanted a class name.*'1'"),
        (
            "path,label\nimages/0.png,1\nimages/1.png,-1\n",
            r"line 3: wanted a class name, or .*'-1'",
        ),
        ("path,label\nimages/0.png,1.0\nimages/1.png,10.0\n", r"line 2: wanted .* number.*'1\.0'"),
        ("path,label\nimages,a\n", r"line 2: wanted an image, found the folder images"),
        ("path;label\nimages/0.png;a\n", r"found path;label\. Put commas between the fields"),
        ("path,label\nimages/0.png,1\nimages/1.png,01\n", r"line 3: wanted a whole number.*'01'"),
        ("path,label\nimages/0.png,1\nimages/1.png,2147483648\n", "from 0 to 2147483647"),
        ('path,label\n"images/0.png,1\n', r"line 2: wanted CSV"),
        (
            "path,label\nimages/0.png,a\nimages/1.png,a\nimages/0.png,b\nimages/1.png,a\n",
            r"line 4: wanted each path once, found images/0\.png again \(first in line 2\)",
        ),
    ],
)
def test_mistakes_are_told_with_their_line(folder: Path, text: str, told: str) -> None:
    """Bad labels, empty fields, strays and duplicates (S4-14)."""
    with pytest.raises(FormatError, match=told):
        hr.ImageManifest(table(folder, text))


def test_bytes_that_are_no_text_are_told(folder: Path) -> None:
    """A table in another encoding (S4-14)."""
    path = folder / "m.csv"
    path.write_bytes(b"path,label\n\xff.png,a\n")

    with pytest.raises(FormatError, match=r"m\.csv: wanted UTF-8 text"):
        hr.ImageManifest(path)


def test_a_label_outside_of_the_classes_is_refused(folder: Path) -> None:
    """With the line where it first stands, in whatever split (S4-14)."""
    path = table(
        folder, "path,label,split\nimages/0.png,cat,a\nimages/1.png,cow,b\nimages/2.png,cow,b\n"
    )

    with pytest.raises(FormatError, match=r"line 3: wanted a label among classes \(cat, dog\)"):
        hr.ImageManifest(path, split="a", classes=["cat", "dog"])


def test_a_path_may_be_kept_twice_by_choice(folder: Path) -> None:
    """Two samples of one file (S4-14)."""
    path = table(folder, "path,label\nimages/1.png,a\nimages/1.png,b\n")

    assert reds(hr.ImageManifest(path, duplicates="keep")) == [1, 1]


def test_an_unknown_split_is_refused(folder: Path) -> None:
    """With those that there are (S4-14)."""
    split = table(folder, "path,label,split\nimages/0.png,a,train\nimages/1.png,a,val\n")
    whole = table(folder, "path,label\nimages/0.png,a\n", "whole.csv")

    with pytest.raises(ConfigError, match=r"split: wanted a split of .*m\.csv \(train, val\)"):
        hr.ImageManifest(split, split="test")
    with pytest.raises(ConfigError, match="it has no column 'split'"):
        hr.ImageManifest(whole, split="train")


def test_a_table_is_kept_as_arrays(folder: Path) -> None:
    """A long table costs a few numbers and its letters for each line (S4-14, S4-47)."""
    lines = "".join(f"images/{number:06}.png,{number % 10}\n" for number in range(20_000))
    rows = ManifestRows(str(table(folder, "path,label\n" + lines)), str(folder))

    rows.refuse_duplicates()

    assert rows.nbytes == 20_000 * (17 + 4 * 8) + 8
