"""Images in one folder per class."""

from __future__ import annotations

import os
from typing import overload

from headrace.datasets.folder_scan import SUFFIXES, scan_classes
from headrace.datasets.image_files import Classes
from headrace.datasets.image_form import Channels, ImageForm, Mode
from headrace.datasets.image_pillow import check_installed
from headrace.datasets.image_rows import ImageRows, ImageSamples


@overload
def ImageFolder(
    root: str | os.PathLike[str],
    *,
    size: None = None,
    mode: Mode = "rgb",
    channels: Channels = "last",
    background: tuple[int, int, int] | None = None,
    classes: Classes | None = None,
    suffixes: tuple[str, ...] = SUFFIXES,
) -> ImageSamples: ...


@overload
def ImageFolder(
    root: str | os.PathLike[str],
    *,
    size: tuple[int, int],
    resize: int | None = None,
    mode: Mode = "rgb",
    channels: Channels = "last",
    background: tuple[int, int, int] | None = None,
    fast_scaling: bool = True,
    classes: Classes | None = None,
    suffixes: tuple[str, ...] = SUFFIXES,
) -> ImageRows: ...


def ImageFolder(  # noqa: N802 - named as the datasets are
    root: str | os.PathLike[str],
    *,
    size: tuple[int, int] | None = None,
    resize: int | None = None,
    mode: Mode = "rgb",
    channels: Channels = "last",
    background: tuple[int, int, int] | None = None,
    fast_scaling: bool = True,
    classes: Classes | None = None,
    suffixes: tuple[str, ...] = SUFFIXES,
) -> ImageRows | ImageSamples:
    """Give the images of `root/<class>/.../<file>` with the number of their class.

    Classes are the folders at the top, sorted by the bytes of their names; samples are sorted by
    class and then by the bytes of their paths. Hidden entries, unknown suffixes and what is no
    regular file are left out; `ignored` lists and counts them. Links are followed.

    With `size` all samples have one shape and are read as rows, straight into the batch.
    Without it each is as large as its file.

    Args:
        root: The folder.
        size: Height and width of every sample. The centre of the image, scaled; see `resize`.
        resize: What the shorter side is scaled to before `size` is cut out of the centre. None
            scales so that the image just covers `size`.
        mode: "rgb", "rgba" or "gray" of uint8 (16-bit gray is scaled to 8 bits), or "gray16" of
            uint16.
        channels: "last" gives `[H, W, C]`, as decoders write it; "first" gives `[C, H, W]`.
        background: Colour behind transparent pixels; None leaves out alpha, so that the colours
            hidden by it show.
        fast_scaling: Whether a JPEG of at least twice the wanted size may be decoded at 1/2, 1/4
            or 1/8, which is several times as fast.
        classes: The classes that may occur: `class_to_index` of another split, or names in the
            order of their numbers. A class of it may have no images here.
        suffixes: Endings of image files, small letters standing for large ones too.

    Raises:
        MissingExtraError: Pillow is not installed.
        NotFoundError: There is no such folder.
        FormatError: It has no class folder or no image, a class folder is not among `classes`,
            or one is empty while `classes` is not given.
        ConfigError: A knob is out of its range.
    """
    check_installed()
    form = ImageForm(mode, size, resize, channels, background, fast_scaling)
    files, ignored = scan_classes(root, classes, suffixes)
    made = ImageSamples if form.size is None else ImageRows
    return made("ImageFolder", files, form, ignored)
