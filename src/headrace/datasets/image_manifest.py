"""Images listed in a table: path, label and split of each."""

from __future__ import annotations

import os
from typing import Literal, overload

from headrace import config
from headrace.datasets.image_files import Classes
from headrace.datasets.image_form import Channels, ImageForm, Mode
from headrace.datasets.image_pillow import check_installed
from headrace.datasets.image_rows import ImageRows, ImageSamples
from headrace.datasets.manifest_table import read_manifest
from headrace.datasets.shard_paths import local_path, not_found

Duplicates = Literal["raise", "keep"]


@overload
def ImageManifest(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    root: str | os.PathLike[str] | None = None,
    size: None = None,
    mode: Mode = "rgb",
    channels: Channels = "last",
    background: tuple[int, int, int] | None = None,
    classes: Classes | None = None,
    duplicates: Duplicates = "raise",
) -> ImageSamples: ...


@overload
def ImageManifest(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    root: str | os.PathLike[str] | None = None,
    size: tuple[int, int],
    resize: int | None = None,
    mode: Mode = "rgb",
    channels: Channels = "last",
    background: tuple[int, int, int] | None = None,
    fast_scaling: bool = True,
    classes: Classes | None = None,
    duplicates: Duplicates = "raise",
) -> ImageRows: ...


def ImageManifest(  # noqa: N802 - named as the datasets are
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    root: str | os.PathLike[str] | None = None,
    size: tuple[int, int] | None = None,
    resize: int | None = None,
    mode: Mode = "rgb",
    channels: Channels = "last",
    background: tuple[int, int, int] | None = None,
    fast_scaling: bool = True,
    classes: Classes | None = None,
    duplicates: Duplicates = "raise",
) -> ImageRows | ImageSamples:
    """Give the images that a CSV file lists, in its order.

    The file is UTF-8 with a header: the columns `path` and `label`, `split` where there are
    several, and any others, which are left alone. Paths are relative to `root` and stay below
    it. Every file must exist; nothing is left out silently.

    Labels that are all whole numbers are the class numbers themselves. Other labels are class
    names, numbered in the order of their bytes. Both are settled over all rows of the file,
    whatever split is taken, so that its splits agree.

    Args:
        path: The CSV file.
        split: Which rows to take, by the column `split`; None takes all.
        root: Folder of the images; None for the one that holds the CSV file.
        size: As of `ImageFolder`, and so are `resize`, `mode`, `channels`, `background` and
            `fast_scaling`.
        classes: The labels that may occur, with their numbers: a mapping, or names in order.
        duplicates: What to do about a path that comes twice, in two splits too: "raise", or
            "keep" it as two samples.

    Raises:
        MissingExtraError: Pillow is not installed.
        NotFoundError: The file, the root, or an image that it lists (said with its line), does
            not exist.
        FormatError: A column is missing, or a line has an empty field, a wrong number of them, a
            path outside of the root, a path that came before, or a label not among the classes.
        ConfigError: No row is of this split, or a knob is out of its range.
    """
    check_installed()
    form = ImageForm(mode, size, resize, channels, background, fast_scaling)
    config.one_of("duplicates", duplicates, "raise", "keep")
    table = os.path.abspath(local_path(path, "path"))
    folder = os.path.dirname(table) if root is None else os.path.abspath(local_path(root, "root"))
    if not os.path.isdir(folder):
        raise not_found(folder, "a folder")
    files = read_manifest(table, folder, split, classes, allow_twice=duplicates == "keep")
    made = ImageSamples if form.size is None else ImageRows
    return made("ImageManifest", files, form)
