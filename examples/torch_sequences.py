"""A language model over sentences of any length, as it is written for torch.

    python examples/torch_sequences.py

One line is not torch's, the import of DataLoader. A batch sampler puts sentences of similar length
together, as many as fit into a number of tokens; a collate function pads them.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, Sampler, Subset

from headrace.torch import DataLoader  # in place of torch.utils.data

WORDS, END, PADDING = 24, 0, -100


class Sentences(Dataset[dict[str, Any]]):
    """Sentences of a made-up language: each word mostly says which one comes next."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.lengths = torch.randint(3, 40, (count,), generator=generator).tolist()
        strides = torch.randint(1, 3, (sum(self.lengths),), generator=generator)
        starts = torch.randint(1, WORDS, (count,), generator=generator)
        walks = strides.split(self.lengths)
        self.sentences = [
            (start + walk.cumsum(0)) % (WORDS - 1) + 1
            for start, walk in zip(starts, walks, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.sentences)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "words": self.sentences[index]}


class SimilarLengths(Sampler[list[int]]):
    """Batches of sentences of similar length, in an order that changes with each pass.

    Args:
        lengths: Words of each sentence.
        tokens: Most tokens of a batch, padding counted.
        seed: Where the order begins.
    """

    def __init__(self, lengths: Sequence[int], tokens: int, seed: int) -> None:
        self.lengths = lengths
        self.tokens = tokens
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[list[int]]:
        shuffled = torch.randperm(len(self.lengths), generator=self.generator).tolist()
        for at in range(0, len(shuffled), 100):
            pool = sorted(shuffled[at : at + 100], key=lambda index: self.lengths[index])
            batches = list(self.filled(pool))
            for which in torch.randperm(len(batches), generator=self.generator).tolist():
                yield batches[which]

    def filled(self, pool: Sequence[int]) -> Iterator[list[int]]:
        """Cut sentences, shortest first, into batches."""
        batch: list[int] = []
        for index in pool:
            if (len(batch) + 1) * (self.lengths[index] + 1) > self.tokens:
                yield batch
                batch = []
            batch.append(index)
        yield batch


def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Pad sentences to the longest one; the target is the next word, or the end."""
    words = [sample["words"] for sample in samples]
    end = torch.tensor([END])
    return {
        "id": torch.tensor([sample["id"] for sample in samples]),
        "input": pad_sequence([torch.cat([end, each]) for each in words], True, END),
        "target": pad_sequence([torch.cat([each, end]) for each in words], True, PADDING),
    }


class Model(nn.Module):
    """A small recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 24)
        self.recurrent = nn.GRU(24, 32, batch_first=True)
        self.head = nn.Linear(32, WORDS)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        hidden, _ = self.recurrent(self.embedding(batch["input"]))
        logits = self.head(hidden).flatten(0, 1)
        return functional.cross_entropy(logits, batch["target"].flatten(), ignore_index=PADDING)


def perplexity_of(model: Model, loader: Any) -> float:
    """Give the perplexity over all words, each counted once."""
    total, words = 0.0, 0
    with torch.inference_mode():
        for batch in loader:
            count = int((batch["target"] != PADDING).sum())
            total += model(batch).item() * count
            words += count
    return math.exp(total / words)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--log", type=Path, help="where to write ids and loss of each step")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # the model is tiny
    torch.manual_seed(0)

    sentences = Sentences(700)
    training = Subset(sentences, range(600))
    loader: Any = DataLoader(
        training,
        batch_sampler=SimilarLengths(sentences.lengths[:600], tokens=400, seed=1),
        collate_fn=collate,
        num_workers=args.num_workers,
        prefetch_factor=4 if args.num_workers else None,
    )
    validation: Any = DataLoader(
        Subset(sentences, range(600, 700)),
        batch_size=25,
        collate_fn=collate,
        num_workers=args.num_workers,
    )
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    log: list[Any] = []
    perplexities = []
    for _ in range(3):
        for batch in loader:
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            log.append({"ids": batch["id"].tolist(), "loss": loss.item()})
        perplexities.append(perplexity_of(model, validation))

    if args.log is not None:
        args.log.write_text(json.dumps(log), encoding="utf-8")
    shown = " -> ".join(f"{perplexity:.2f}" for perplexity in perplexities)
    print(f"{len(log)} batches of similar length; perplexity of new sentences {shown}")


if __name__ == "__main__":
    main()
