"""States pinned to golden files: a change of format is noticed before users notice it."""

from __future__ import annotations

import json
from base64 import b64decode
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import RandomSampler

import headrace as hr
from headrace.samplers import BlockShuffled, Sequential, Shuffled
from tests.order.vectors import cases
from tests.vectors import make_states

CASES = cases("own_states")


def rows(samples: int) -> hr.Arrays:
    i = np.arange(samples)
    return hr.Arrays({"id": i[:, None], "x": np.stack([i / 2, -i], 1).astype(np.float32)})


def loader(order: dict[str, Any], batch: int, samples: int, **knobs: Any) -> hr.Loader:
    kind = {"Shuffled": Shuffled, "BlockShuffled": BlockShuffled, "Sequential": Sequential}
    arguments = {key: value for key, value in order.items() if key != "kind"}
    if order["kind"] == "Sequential":
        del arguments["seed"]
    sampler = kind[order["kind"]](samples, batch, **arguments)
    seed = order["seed"]
    return hr.Loader(rows(samples), sampler=sampler, seed=seed, content_digest=True, **knobs)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("knobs", [{"workers": 0}, {"workers": 2, "prefetch": 8}])
def test_a_loader_has_the_golden_state(case: dict[str, Any], knobs: dict[str, Any]) -> None:
    """Loader after loader takes over as the pieces say; the last one's state is the golden one."""
    last = case["state"]["next_step"]
    ends = [*[after[0] for _, after in pairwise(case["pieces"])], last]
    state: Any = None

    for (begin, batch, samples), end in zip(case["pieces"], ends, strict=True):
        with loader(case["order"], batch, samples, **knobs) as made:
            if state is not None:
                made.load_state_dict(state, allow={"dataset", "global_batch"})
            for step in case["skips"]:
                made.skip_step(step)
            first = max(begin, case["first"])
            for _ in made.stream(first, end - first):
                pass
            state = made.state_dict()

    assert state == case["state"]


@pytest.mark.parametrize("case", CASES)
def test_a_golden_state_loads_and_verifies(case: dict[str, Any]) -> None:
    """What was saved goes on, and its history is that of this loader."""
    _, batch, samples = case["pieces"][-1]

    with loader(case["order"], batch, samples, workers=0) as made:
        made.load_state_dict(case["state"])
        assert made.state_dict() == case["state"]
        assert made.verify(case["state"]) == case["state"]["next_step"] - case["first"]
        assert next(made.stream()).step == case["state"]["next_step"]


def test_the_golden_file_is_what_its_definition_gives() -> None:
    """The file is made by plain integers that share no code with headrace."""
    assert make_states.FILE.read_text() == make_states.text()


def test_fingerprints_of_datasets_are_pinned(tmp_path: Path) -> None:
    """Names, sizes and shapes, never paths, times or inodes; the same on every machine."""
    for number in (2, 10, 9):
        np.save(tmp_path / f"part-{number}.npy", np.arange(40, dtype=np.uint16))
    ids = hr.Arrays({"id": np.arange(5, dtype=np.int64)})

    def facts(data: Any) -> Any:
        with hr.Loader(data, 2, workers=0) as made:
            return made.state_dict()["dataset"]

    def short(text: bytes) -> str:
        return sha256(text).hexdigest()[:16]

    one = {"kind": "Arrays", "samples": 5, "columns": [["id", "<i8", []]]}
    assert facts(ids) == one
    assert facts([(1, 2), (3, 4)]) == {"kind": "list", "samples": 2}
    assert facts(hr.TokenShards(str(tmp_path), seq_len=8)) == {
        "kind": "TokenShards",
        "samples": 12,
        "seq_len": 8,
        "dtype": "<u2",
        "columns": ["input", "target"],
        "shards": 3,
        "bytes": 624,
        "names_and_sizes": short(b"part-10.npy\t208\npart-2.npy\t208\npart-9.npy\t208"),
    }
    assert facts(hr.Concat(ids, ids)) == {
        "kind": "Concat",
        "samples": 10,
        "parts": 2,
        "of": short(json.dumps([one, one], sort_keys=True).encode()),
    }
    assert facts(hr.Subset(ids, [3, 1, 3])) == {
        "kind": "Subset",
        "samples": 3,
        "indices": short(b"".join(i.to_bytes(8, "little") for i in (3, 1, 3))),
        "of": one,
    }


def test_an_epoch_of_a_generator_is_pinned() -> None:
    """The state of a torch generator is its bytes in base64."""
    generator = torch.Generator().manual_seed(5)
    wanted = generator.get_state()

    sampler = RandomSampler(range(5), generator=generator)
    with hr.Loader(rows(5), 2, sampler=sampler, workers=0) as made:
        next(made.stream())
        (text,) = json.loads(json.dumps(made.state_dict()))["sampler_epoch"]

    assert b64decode(text) == bytes(wanted.tolist())
