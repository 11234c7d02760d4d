"""An asyncio program that evaluates a model while it goes on answering.

    python examples/async_eval.py

`async for` takes the batches: the program's own loop is free while one is not ready yet. The model
runs in a thread, as in any async program.
"""

from __future__ import annotations

import asyncio

import numpy as np
import torch
from torch import nn

import headrace as hr


def make_model() -> nn.Module:
    """Give a model that is right about most rows: it looks at one feature of 16."""
    model = nn.Linear(16, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
        model.weight[1, 0] = 1.0
    return model


def count_right(model: nn.Module, batch: hr.Batch) -> int:
    """Count the rows that the model is right about."""
    with torch.inference_mode():
        return int((model(batch["x"]).argmax(dim=1) == batch["label"]).sum())


async def evaluate(model: nn.Module, loader: hr.Loader) -> float:
    """Give the accuracy over every row, each once."""
    right = rows = 0
    async for batch in loader.epoch(0):
        right += await asyncio.to_thread(count_right, model, batch)
        rows += batch.num_rows
    return right / rows


async def answer(questions: asyncio.Queue[int]) -> int:
    """Do what the program is there for, until it is cancelled."""
    answered = 0
    try:
        while True:
            await questions.get()
            answered += 1
    except asyncio.CancelledError:
        return answered


async def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10_000, 16), dtype=np.float32)
    label = (x[:, 0] + 0.5 * x[:, 1] > 0).astype(np.int64)

    questions: asyncio.Queue[int] = asyncio.Queue()
    answers = asyncio.create_task(answer(questions))
    data = hr.Arrays({"x": x, "label": label})
    async with hr.Loader(data, batch_size=256, shuffle=False) as loader:
        evaluation = asyncio.create_task(evaluate(make_model(), loader))
        number = 0
        while not evaluation.done():
            await questions.put(number)
            number += 1
            await asyncio.sleep(0)
        accuracy = await evaluation
    answers.cancel()

    print(f"accuracy {accuracy:.3f} over {len(data)} rows; meanwhile {await answers} answers")


if __name__ == "__main__":
    asyncio.run(main())
