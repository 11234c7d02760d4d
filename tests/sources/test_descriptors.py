"""Descriptors: bounded, shared, and closed once nobody reads from them."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.sources.descriptors import Descriptors


class Disk:
    """Opens real files and knows which of its descriptors are open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[int] = []

    def open(self) -> int:
        descriptor = os.open(self.folder, os.O_RDONLY)
        self.opened.append(descriptor)
        return descriptor

    def is_open(self, descriptor: int) -> bool:
        try:
            os.fstat(descriptor)
        except OSError:
            return False
        return True

    def count(self) -> int:
        return sum(self.is_open(descriptor) for descriptor in set(self.opened))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_one_descriptor_serves_all_readers_of_a_file(disk: Disk) -> None:
    """A second reader at the same time, and a later one, open nothing."""
    kept = Descriptors(limit=2)

    with kept.borrowed("a", disk.open) as first, kept.borrowed("a", disk.open) as second:
        pass
    with kept.borrowed("a", disk.open) as third:
        pass

    assert first == second == third
    assert len(disk.opened) == 1
    kept.close()
    assert disk.count() == 0


def test_the_one_used_longest_ago_is_closed(disk: Disk) -> None:
    """Beyond the bound the least recently used goes, not the oldest."""
    kept = Descriptors(limit=2)

    for path in ["a", "b", "a", "c", "a"]:
        with kept.borrowed(path, disk.open):
            pass

    assert len(disk.opened) == 3
    assert (len(kept), disk.count()) == (2, 2)
    kept.close()


def test_those_being_read_from_stay_open_over_the_bound(disk: Disk) -> None:
    """More readers than the bound all read; it holds again once they are done."""
    kept = Descriptors(limit=1)

    with ExitStack() as readers:
        for path in "abcd":
            readers.enter_context(kept.borrowed(path, disk.open))
        during = disk.count()

    assert during == 4
    assert disk.count() == 1
    kept.close()


def test_close_waits_for_readers(disk: Disk) -> None:
    """What is being read from when all is closed stays open until its last reader is done."""
    kept = Descriptors(limit=2)

    with kept.borrowed("a", disk.open) as descriptor:
        with kept.borrowed("a", disk.open):
            kept.close()
            with kept.borrowed("a", disk.open) as fresh:
                pass
        still_open = disk.is_open(descriptor)

    assert still_open
    assert fresh != descriptor
    assert not disk.is_open(descriptor)
    kept.close()
    assert disk.count() == 0


def test_a_file_opened_twice_at_once_is_kept_once(disk: Disk) -> None:
    """When another reader opened the file meanwhile, the spare descriptor is closed."""
    kept = Descriptors(limit=2)

    def open_while_another_does() -> int:
        with kept.borrowed("a", disk.open):
            pass
        return disk.open()

    with kept.borrowed("a", open_while_another_does) as descriptor:
        assert descriptor == disk.opened[0]

    assert (len(kept), disk.count()) == (1, 1)
    kept.close()


def test_an_open_that_fails_keeps_nothing(disk: Disk) -> None:
    """The error passes, and the next reader tries again."""
    kept = Descriptors(limit=2)

    def fail() -> int:
        raise PermissionError("no")

    with pytest.raises(PermissionError), kept.borrowed("a", fail):
        pass
    with kept.borrowed("a", disk.open) as descriptor:
        assert disk.is_open(descriptor)

    kept.close()
