"""Batches land on the device that was asked for, and are the same batches."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

import headrace as hr
from headrace.pick import PickKeys

ROWS = 200
DATA = {
    "x": np.arange(ROWS * 4, dtype=np.float32).reshape(ROWS, 4),
    "y": np.arange(ROWS),
}


def scaled(batch: hr.Batch, keys: PickKeys) -> hr.Batch:
    """Scale each row by a draw of its own, where the batch is."""
    draws = torch.from_numpy(keys.rngs().next_single()).to(batch["x"].device)
    return batch.with_columns({"x": batch["x"] * draws[:, None]})


def test_tensors_land_on_the_device_and_the_transform_runs_there() -> None:
    """A device other than the host gets every tensor, before the transform sees it (S0-03)."""
    seen: list[torch.device] = []

    def look(batch: hr.Batch, keys: PickKeys) -> hr.Batch:
        seen.append(batch["x"].device)
        return batch

    with hr.Loader(DATA, batch_size=20, device="meta", transform=look) as loader:
        batches = list(loader.epoch(0))

    assert {column.device.type for batch in batches for column in batch} == {"meta"}
    assert {device.type for device in seen} == {"meta"}
    assert len(seen) == len(batches) == 10


def test_batch_at_lands_on_the_device_too() -> None:
    """`batch_at` gives what the stream would give, on the same device."""
    with hr.Loader(DATA, batch_size=20, device="meta") as loader:
        batch = loader.batch_at(7)

    assert batch["y"].device.type == "meta"
    assert batch.step == 7


@pytest.mark.parametrize("device", ["gpu", "", None, True, 1.5, "cuda:99", 99, "xla", "cpu:x"])
def test_a_device_that_is_not_there_is_refused_by_name(device: Any) -> None:
    """When the loader is made, not at the first batch."""
    with pytest.raises(hr.ConfigError, match=r"^device: wanted a .*device.*, got"):
        hr.Loader(DATA, batch_size=20, device=device)


def test_an_accelerator_is_refused_where_torch_cannot_use_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it is with a build of torch for the host alone."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(hr.ConfigError) as caught:
        hr.Loader(DATA, batch_size=20, device="cuda")

    assert str(caught.value) == (
        "device: wanted a device of torch that is there, got 'cuda'. "
        "torch.cuda.is_available() is False."
    )


@pytest.mark.parametrize("device", ["cpu", "cpu:0", "meta", torch.device("cpu")])
def test_the_host_and_meta_are_always_there(device: Any) -> None:
    """They need no accelerator."""
    with hr.Loader(DATA, batch_size=20, device=device) as loader:
        assert loader.device == torch.device(device)


def _whole(device: str, **knobs: Any) -> tuple[torch.Tensor, dict[str, Any]]:
    with hr.Loader(DATA, batch_size=16, seed=3, device=device, **knobs) as loader:
        rows = [batch["x"].cpu() for epoch in loader.epochs(2) for batch in epoch]
        return torch.cat(rows), loader.state_dict()


@pytest.mark.gpu
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("transform", [None, scaled])
def test_the_stream_on_an_accelerator_equals_the_stream_on_the_host(
    workers: int, transform: Any
) -> None:
    """The content digest does not depend on the device (S0-03)."""
    device = str(torch.accelerator.current_accelerator())

    host = _whole("cpu", workers=0, transform=transform, content_digest=True)
    there = _whole(device, workers=workers, transform=transform, content_digest=True)

    assert torch.equal(there[0], host[0])
    assert there[1] == host[1]


@pytest.mark.gpu
def test_a_state_goes_from_the_host_to_an_accelerator() -> None:
    """The device is no part of the state."""
    device = str(torch.accelerator.current_accelerator())
    with hr.Loader(DATA, batch_size=16, seed=3) as loader:
        stream = loader.epoch(0)
        for _ in range(5):
            next(stream)
        state = json.loads(json.dumps(loader.state_dict()))

    with hr.Loader(DATA, batch_size=16, seed=3, device=device) as loader:
        loader.load_state_dict(state)
        batch = next(iter(loader))

    assert batch.step == 5
    assert batch["x"].device.type == torch.device(device).type
