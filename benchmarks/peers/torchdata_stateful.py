"""torchdata's StatefulDataLoader: torch's loader with a state."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from workload import Columns, Workload

from peers.peer import Peer
from peers.torch_dataloader import BulkDataset, unchanged


class Stateful(Peer):
    """`batch_size` and `shuffle`, with `__getitems__`, and no worker process."""

    can_resume = True

    def __init__(self, workload: Workload, seed: int) -> None:
        self.loader = StatefulDataLoader(
            BulkDataset(workload),
            batch_size=workload.batch_rows,
            shuffle=True,
            drop_last=True,
            collate_fn=unchanged,
            generator=torch.Generator().manual_seed(seed),
        )

    def batches(self, epochs: int) -> Iterator[Columns]:
        for _ in range(epochs):
            yield from self.loader

    def state(self) -> bytes:
        return pickle.dumps(self.loader.state_dict())

    def restore(self, state: bytes) -> None:
        self.loader.load_state_dict(pickle.loads(state))
