"""headrace, as its documentation says to use it: nothing is set but the batch size and seed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

from workload import Columns, Workload
from workloads.images import Images
from workloads.pictures import RESIZE, SIDE, Pictures
from workloads.sequences import Sequences
from workloads.tokens import Tokens
from workloads.vectors import Vectors

import headrace as hr
from peers.peer import Peer, Take


def of_tokens(workload: Tokens) -> dict[str, Any]:
    """Give what a user would hand to the loader for a workload, as the functions below."""
    return {"data": hr.TokenShards(workload.folder, seq_len=workload.seq_len)}


def of_images(workload: Images) -> dict[str, Any]:
    return {"data": hr.Arrays({"image": workload.images, "label": workload.labels})}


def of_pictures(workload: Pictures) -> dict[str, Any]:
    return {"data": hr.ImageFolder(workload.folder, size=(SIDE, SIDE), resize=RESIZE)}


def of_vectors(workload: Vectors) -> dict[str, Any]:
    return {"data": hr.Arrays({"x": workload.values})}


def of_sequences(workload: Sequences) -> dict[str, Any]:
    data = hr.Ragged(workload.folder / "flat.npy", workload.folder / "offsets.npy")
    return {"data": data, "collate": hr.PadCollator("values")}


ARGUMENTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "T": of_tokens,
    "R": of_images,
    "J": of_pictures,
    "S": of_vectors,
    "V": of_sequences,
}


class Threaded(Peer):
    """A plain `for` over the epochs, with every default."""

    can_resume = True
    knobs: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, workload: Workload, seed: int) -> None:
        arguments = ARGUMENTS[workload.name](workload)
        self.loader = hr.Loader(
            batch_size=workload.batch_rows, seed=seed, **arguments, **self.knobs
        )

    def batches(self, epochs: int) -> Iterator[Columns]:
        for epoch in self.loader.epochs(epochs):
            for batch in epoch:
                yield tuple(batch)

    def state(self) -> bytes:
        return json.dumps(self.loader.state_dict()).encode()

    def restore(self, state: bytes) -> None:
        self.loader.load_state_dict(json.loads(state))

    def declared_bytes(self) -> int | None:
        return self.loader.memory_estimate().total_bytes

    def blocks_made(self) -> int | None:
        return int(self.loader.stats()["blocks_made"])

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
