"""Files below one folder: names to paths, listing, and noticing that a file has changed."""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Iterator
from typing import NamedTuple

from headrace.errors import NotFoundError, SourceChangedError
from headrace.sources.names import check_inside, near_names, sort_key
from headrace.sources.source import ObjectInfo

# About 250 bytes each, 25 MB in all. Shards are far fewer; of a tree of millions of small files
# those beyond are read without being compared with what they were before.
MAX_PINS = 100_000


class FileFacts(NamedTuple):
    """What tells a file from a later one of the same name. Never part of a fingerprint."""

    inode: int
    mtime_ns: int
    size_bytes: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileFacts:
        return cls(status.st_ino, status.st_mtime_ns, status.st_size)

    def __str__(self) -> str:
        return f"{self.size_bytes} bytes (inode {self.inode}, mtime {self.mtime_ns} ns)"


class Files:
    """Names to files below a root. Every method blocks; all are safe from any thread.

    Links are followed, because people link shards to other disks and model hubs build whole
    folders of links. With `follow_links=False` a name that a link leads out of the root is
    refused, and not listed. The root itself may be a link either way.
    """

    def __init__(self, owner: object, root: str, follow_links: bool) -> None:
        # Weak, so that a dropped source goes at once, its descriptors with it.
        self._owner_ref = weakref.ref(owner)
        self._root = root
        self._follow_links = follow_links
        self._pins: dict[str, FileFacts] = {}

    @property
    def _owner(self) -> object:
        return self._owner_ref()

    def path(self, name: str) -> str:
        """Give the path of a name, which need not exist.

        Raises:
            NotFoundError: The name leads out of the root.
        """
        path = os.path.join(self._root, *check_inside(self._owner, name).split("/"))
        if not self._follow_links and not self._is_inside(path):
            raise NotFoundError(
                self._owner, name, "A link leads out of the root; follow_links=True allows that."
            )
        return path

    def open(self, name: str, path: str) -> int:
        """Open a regular file for reading and give its descriptor.

        Raises:
            NotFoundError: There is no such file, or it is a folder or a device.
            SourceChangedError: It was there before in this run.
        """
        try:
            # Without O_NONBLOCK the open of a pipe would wait for somebody to write.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            if name in self._pins:
                raise self._removed(name) from None
            raise self._missing(name, path) from None
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise NotFoundError(self._owner, name, "It is not a regular file.")

    def stat(self, name: str) -> ObjectInfo:
        """Give the facts of one file, as `Source.stat` does."""
        path = self.path(name)
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            raise self._missing(name, path) from None
        if not stat.S_ISREG(status.st_mode):
            raise NotFoundError(self._owner, name, "It is not a regular file.")
        return ObjectInfo(name, status.st_size)

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Give all regular files whose name starts with `prefix`, hidden ones too, by bytes.

        Raises:
            NotFoundError: The root is not a folder, or the prefix leads out of it.
        """
        if not os.path.isdir(self._root):
            raise NotFoundError(self._owner, prefix, "The root is not a folder.")
        folder, _, _ = prefix.rpartition("/")
        start = self.path(folder) if folder else self._root
        found = self._walk(start, f"{folder}/" if folder else "", prefix, ())
        return sorted(found, key=lambda info: sort_key(info.name))

    def pin(self, name: str, status: os.stat_result) -> None:
        """Remember what a file is at its first open, and compare each later one with that.

        Raises:
            SourceChangedError: It is not the file that was opened first.
        """
        found = FileFacts.of(status)
        if len(self._pins) < MAX_PINS:
            wanted = self._pins.setdefault(name, found)
        else:
            wanted = self._pins.get(name, found)
        if wanted != found:
            raise SourceChangedError(self._owner, name, wanted, found)

    def check(self, name: str, path: str) -> None:
        """Compare the file that has the name with the pinned one.

        Raises:
            SourceChangedError: It was written to, replaced, or removed.
        """
        try:
            self.pin(name, os.stat(path))
        except FileNotFoundError:
            raise self._removed(name) from None

    def forget_pins(self) -> None:
        """Let a new run find other files."""
        self._pins.clear()

    def _walk(
        self, folder: str, stem: str, prefix: str, above: tuple[tuple[int, int], ...]
    ) -> Iterator[ObjectInfo]:
        """Give the files below a folder; `above` tells a link back to a folder it is in."""
        try:
            here = os.stat(folder)
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        if (here.st_dev, here.st_ino) in above:
            return
        above = (*above, (here.st_dev, here.st_ino))
        for entry in entries:
            name = stem + entry.name
            if not name.startswith(prefix) or self._leads_out(entry):
                continue
            try:
                if entry.is_dir():
                    yield from self._walk(entry.path, f"{name}/", prefix, above)
                elif entry.is_file():
                    yield ObjectInfo(name, entry.stat().st_size)
            except FileNotFoundError:
                continue  # removed since the folder was read

    def _leads_out(self, entry: os.DirEntry[str]) -> bool:
        """Whether an entry is a link to nowhere, or to where this source must not go."""
        if not entry.is_symlink():
            return False
        if not os.path.exists(entry.path):
            return True
        return not self._follow_links and not self._is_inside(entry.path)

    def _is_inside(self, path: str) -> bool:
        root = os.path.realpath(self._root)
        return os.path.commonpath([root, os.path.realpath(path)]) == root

    def _removed(self, name: str) -> SourceChangedError:
        return SourceChangedError(self._owner, name, self._pins.get(name), "no file")

    def _missing(self, name: str, path: str) -> NotFoundError:
        try:
            siblings = sorted(os.listdir(os.path.dirname(path)))
        except OSError:
            siblings = []
        folder, _, last = name.rpartition("/")
        near = near_names(last, siblings)
        return NotFoundError(self._owner, name, near and f"In {folder or 'the root'}: {near}")
