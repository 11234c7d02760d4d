"""An ordinary training loop over token shards that goes on exactly where it was stopped.

    python examples/train_tokens.py

Writes two small shards, trains two epochs, stops in the middle of the second and goes on from the
saved state with a new loader, as another process would.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import headrace as hr

SEQ_LEN, BATCH_SIZE, EPOCHS = 32, 16, 2


def write_shards(folder: Path) -> None:
    """Write a language of 64 words in which each word says a good deal about the next one."""
    rng = np.random.default_rng(0)
    for shard in range(2):
        steps = rng.integers(1, 4, size=20_000)
        np.save(folder / f"shard-{shard}.npy", (np.cumsum(steps) % 64).astype(np.uint16))


def make_loader(folder: Path) -> hr.Loader:
    """Give the loader: whoever makes it from the same facts gets the same stream."""
    data = hr.TokenShards(folder, seq_len=SEQ_LEN, vocab_size=64)
    return hr.Loader(data, batch_size=BATCH_SIZE, seed=42, epochs=EPOCHS)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def train_step(batch: hr.Batch) -> float:
        logits = model(batch["input"])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["target"].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    def train(loader: hr.Loader, stop_after: int | None = None) -> list[float]:
        losses = []
        for epoch in loader.epochs(EPOCHS):
            for batch in epoch:
                losses.append(train_step(batch))
                if batch.step + 1 == stop_after:
                    return losses
        return losses

    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder))

        with make_loader(Path(folder)) as loader:
            stop_after = len(loader) + len(loader) // 2
            losses = train(loader, stop_after)
            saved = json.dumps(loader.state_dict())

        with make_loader(Path(folder)) as loader:
            loader.load_state_dict(json.loads(saved))
            losses += train(loader)
            assert len(losses) == EPOCHS * len(loader)

    first, last = losses[0], losses[-1]
    print(f"{len(losses)} steps, stopped after {stop_after}: loss {first:.2f} -> {last:.2f}")


if __name__ == "__main__":
    main()
