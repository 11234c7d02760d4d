"""headrace, as its documentation says to use it: nothing is set but the batch size and seed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from workload import Columns, Tokens, Vectors, Workload

import headrace as hr
from peers.peer import Peer, Take


def dataset_of(workload: Workload) -> Any:
    """Give the dataset that a user would make for a workload."""
    if isinstance(workload, Tokens):
        return hr.TokenShards(workload.folder, seq_len=workload.seq_len)
    assert isinstance(workload, Vectors)
    return hr.Arrays({"x": workload.values})


class Threaded(Peer):
    """A plain `for` over the epochs, with every default."""

    can_resume = True
    knobs: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, workload: Workload, seed: int) -> None:
        data = dataset_of(workload)
        self.loader = hr.Loader(data, batch_size=workload.batch_rows, seed=seed, **self.knobs)

    def batches(self, epochs: int) -> Iterator[Columns]:
        for epoch in self.loader.epochs(epochs):
            for batch in epoch:
                yield tuple(batch)

    def state(self) -> bytes:
        return json.dumps(self.loader.state_dict()).encode()

    def restore(self, state: bytes) -> None:
        self.loader.load_state_dict(json.loads(state))

    def declared_bytes(self) -> int | None:
        held = self.loader.stats().get("ring_peak_bytes")
        return None if held is None else int(held)

    def close(self) -> None:
        self.loader.close()


class Awaited(Threaded):
    """`async for` from a loop of the caller."""

    def feed(self, epochs: int, take: Take) -> None:
        asyncio.run(self._feed(epochs, take))

    async def _feed(self, epochs: int, take: Take) -> None:
        for epoch in self.loader.epochs(epochs):
            async for batch in epoch:
                if take(tuple(batch)):
                    return


class InProcess(Threaded):
    """`workers=0`: everything on the calling thread."""

    knobs = {"workers": 0}  # noqa: RUF012
