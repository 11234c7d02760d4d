"""Where the bytes lie changes no batch: memory, files, maps, and what fails on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from headrace.datasets.dataset import Indices, Layout, Out
from headrace.sources.local import LocalSource
from headrace.sources.mapped import MappedSource
from headrace.sources.memory import MemorySource
from headrace.sources.source import ByteRange, Source
from headrace.testing.sources import FlakySource
from tests import model

ROWS = np.arange(40 * 4, dtype=np.int64).reshape(40, 4)
ROW_BYTES = ROWS.itemsize * 4


class SourceRows(hr.BulkDataset):
    """Rows of four numbers, read where a source keeps them."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(ROWS)

    @property
    def layout(self) -> Layout:
        return (hr.Column("x", np.dtype(np.int64), (4,)),)

    async def open(self) -> None:
        await self.source.open()

    async def aclose(self) -> None:
        await self.source.aclose()

    async def read_into(self, indices: Indices, out: Out, rows: Indices) -> None:
        into = out["x"]
        assert isinstance(into, np.ndarray)
        ranges = [ByteRange(i * ROW_BYTES, (i + 1) * ROW_BYTES) for i in indices.tolist()]
        buffers = [memoryview(into[row]).cast("B") for row in rows.tolist()]
        await self.source.read_into("rows.bin", ranges, buffers)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.bin").write_bytes(ROWS.tobytes())
    return tmp_path


SOURCES: dict[str, Callable[[Path], Source]] = {
    "memory": lambda folder: MemorySource({"rows.bin": (folder / "rows.bin").read_bytes()}),
    "local": LocalSource,
    "mapped": MappedSource,
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_stream(name: str, workers: int, folder: Path) -> None:
    """Memory, files and maps, with and without threads (S0-82)."""
    run = model.Model(model.shuffled(40, 8, 42, drop_last=True))
    data = SourceRows(SOURCES[name](folder))
    with hr.Loader(data, 8, workers=workers, prefetch=4) as loader:
        found = [batch["x"].tolist() for batch in loader.stream(steps=12)]

    assert found == [ROWS[run.step(g).samples].tolist() for g in range(12)]


def test_an_error_of_the_source_comes_out_at_its_step(folder: Path) -> None:
    """A read that is refused is told with its step and its class, and may be tried again
    (S0-04, U-33)."""
    source = FlakySource(LocalSource(folder), [None, None, TimeoutError("no answer")])
    data = SourceRows(source)
    with hr.Loader(data, 8, shuffle=False, workers=1, prefetch=1) as loader:
        stream = loader.epoch(0)
        assert [next(stream).step for _ in range(2)] == [0, 1]
        with pytest.raises(TimeoutError, match="step 2, the batch: TimeoutError: no answer"):
            next(stream)

        found = [batch["x"][0, 0].item() for batch in loader.stream(2, 3)]

    assert found == [2 * 32, 3 * 32, 4 * 32]
    assert source.failures == 1
