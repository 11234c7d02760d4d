"""Finding images in a tree of class folders: which entries count, and in which order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from headrace.datasets.ignored import Ignored, IgnoredEntry
from headrace.datasets.image_files import Classes, ImageFile, ImageFiles, class_numbers
from headrace.datasets.shard_paths import local_path, not_found
from headrace.errors import FormatError

SUFFIXES = (
    *(".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pbm", ".pgm"),
    *(".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)
# What systems put beside files of their own accord, in small letters.
_LITTER = ("thumbs.db", "desktop.ini", "__macosx")


class FolderScan:
    """A walk through a folder, links followed.

    - Names that begin with a dot, `Thumbs.db`, `desktop.ini` and `__MACOSX` are hidden; a
      hidden folder is not entered.
    - A link counts as what it leads to. One to nothing, or to a folder that it lies in, is
      left out.
    - Only regular files with a known suffix, in small or large letters, are images.

    Args:
        root: An existing folder.
        suffixes: Endings of image files in small letters.
    """

    def __init__(self, root: str, suffixes: tuple[str, ...]) -> None:
        self._root = root
        self._suffixes = suffixes
        self._ignored: list[IgnoredEntry] = []

    @property
    def ignored(self) -> Ignored:
        """What was left out so far."""
        return Ignored(self._ignored)

    def classes(self) -> list[str]:
        """Give the names of the folders at the top, sorted by their bytes."""
        found = []
        for entry, is_folder in self._entries("", (_identity(self._root),)):
            if is_folder:
                found.append(entry.name)
            else:
                self._leave_out(entry.name, "outside of a class folder")
        return found

    def images(self, folder: str, label: int) -> Iterator[ImageFile]:
        """Give the images below a folder, sorted by the bytes of their paths."""
        yield from self._below(folder, label, (_identity(self._root),))

    def _below(
        self, folder: str, label: int, above: tuple[tuple[int, int], ...]
    ) -> Iterator[ImageFile]:
        above = (*above, _identity(os.path.join(self._root, folder)))
        for entry, is_folder in self._entries(folder, above):
            name = f"{folder}/{entry.name}"
            if is_folder:
                yield from self._below(name, label, above)
            elif entry.name.lower().endswith(self._suffixes):
                yield ImageFile(name, label, entry.stat().st_size)
            else:
                self._leave_out(name, "of unknown suffix")

    def _entries(
        self, folder: str, above: tuple[tuple[int, int], ...]
    ) -> Iterator[tuple[os.DirEntry[str], bool]]:
        """Give what counts in one folder and whether it is a folder, in order of full paths."""
        with os.scandir(os.path.join(self._root, folder)) as entries:
            found = [(entry, entry.is_dir()) for entry in entries]
        # With its '/' a folder's name sorts as the paths of what is in it do.
        found.sort(key=lambda pair: os.fsencode(pair[0].name) + b"/" * pair[1], reverse=True)
        # Taken off the list one by one: an entry that was looked at holds 600 bytes more.
        while found:
            entry, is_folder = found.pop()
            reason = _reason_against(entry, is_folder, above)
            if reason is None:
                yield entry, is_folder
            else:
                self._leave_out(f"{folder}/{entry.name}".lstrip("/"), reason)

    def _leave_out(self, name: str, reason: str) -> None:
        self._ignored.append(IgnoredEntry(name, reason))


def scan_classes(
    root: str | os.PathLike[str],
    classes: Classes | None,
    suffixes: tuple[str, ...] = SUFFIXES,
) -> tuple[ImageFiles, Ignored]:
    """Give the images of a folder that holds one folder per class.

    Args:
        root: The folder.
        classes: The classes that may occur; None numbers the folders found.
        suffixes: Endings of image files.

    Raises:
        NotFoundError: There is no such folder.
        FormatError: It holds no class folder or no image, a class folder is not among
            `classes`, or, where they are numbered here, one holds no image.
    """
    path = os.path.abspath(local_path(root, "root"))
    if not os.path.isdir(path):
        raise not_found(path, "a folder of class folders")
    scan = FolderScan(path, tuple(suffix.lower() for suffix in suffixes))
    found = scan.classes()
    if not found:
        cure = "Put the images of each class into a folder of their own."
        raise FormatError(path, "one folder per class", "no folder", cure)
    numbers = _numbered(path, found, classes)
    files = ImageFiles(
        path, (file for name in found for file in scan.images(name, numbers[name])), numbers
    )
    _check_found(path, files, found if classes is None else [])
    return files, scan.ignored


def _numbered(root: str, found: list[str], classes: Classes | None) -> Mapping[str, int]:
    if classes is None:
        return {name: number for number, name in enumerate(found)}
    numbers = class_numbers(classes)
    unknown = [name for name in found if name not in numbers]
    if unknown:
        known = ", ".join(list(numbers)[:10])
        raise FormatError(
            root,
            f"only class folders among classes ({known}{', ...' if len(numbers) > 10 else ''})",
            f"folder {unknown[0]!r}",
            "Add it to classes, or take the folder away.",
        )
    return numbers


def _check_found(root: str, files: ImageFiles, must_hold: list[str]) -> None:
    """Refuse a tree without images, or a class without one that would still take a number."""
    if not len(files):
        wanted = f"images ({', '.join(SUFFIXES)}) in the class folders"
        raise FormatError(root, wanted, "none", "Other endings: suffixes=('.ext',).")
    held = set(files.labels.tolist())
    empty = [name for name in must_hold if files.class_to_index[name] not in held]
    if empty:
        cure = "Take the folder away, or say which classes there are: classes=[...]."
        raise FormatError(f"{root}/{empty[0]}", "at least one image of the class", "none", cure)


def _reason_against(
    entry: os.DirEntry[str], is_folder: bool, above: tuple[tuple[int, int], ...]
) -> str | None:
    """Say why an entry does not count; None where it does."""
    if entry.name.startswith(".") or entry.name.lower() in _LITTER:
        return "hidden"
    if is_folder:
        # Only a link can lead to a folder that it lies in.
        leads_back = entry.is_symlink() and _identity(entry.path) in above
        return "a link to a folder around it" if leads_back else None
    if entry.is_file():
        return None
    return "a link to nothing" if entry.is_symlink() else "not a regular file"


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
