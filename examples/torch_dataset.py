"""A torch Dataset that exists already, as it is, in place of DataLoader.

    python examples/torch_dataset.py

Samples may be nested; rows of different types end up in columns of their own.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import Dataset

import headrace as hr


class Sines(Dataset[dict[str, object]]):
    """Pieces of sine curves; the task is to tell the frequency."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> dict[str, object]:
        generator = torch.Generator().manual_seed(index)
        frequency = index % 4 + 1
        phase = torch.rand(1, generator=generator) * 6.28
        curve = torch.sin(torch.linspace(0, 6.28, 64) * frequency + phase)
        return {"curve": curve, "about": {"frequency": frequency, "name": f"curve {index}"}}


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the model is tiny, and the readers have their own
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    right = rows = 0
    with hr.Loader(Sines(), batch_size=50, seed=1) as loader:
        for epoch in loader.epochs(3):
            right = rows = 0
            for batch in epoch:
                logits = model(batch["curve"])
                wanted = batch["about/frequency"]
                loss = nn.functional.cross_entropy(logits, wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += int((logits.argmax(dim=1) == wanted).sum())
                rows += batch.num_rows
        first = loader.batch_at(0)["about/name"][0]

    print(f"accuracy of the last epoch {right / rows:.3f}; the run began with {first!r}")


if __name__ == "__main__":
    main()
