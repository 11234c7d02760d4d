"""Makes `own_states.json`: golden states of known loaders at known steps.

Plain integers, written from the definitions and sharing no code with headrace. Run it as
`python -m tests.vectors.make_states` to write the file again; another file means that the states
users have saved no longer load, which takes a new format version.
"""

from __future__ import annotations

import json
import struct
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tests.vectors.make_own import WORD, blocks, derive, permuted, uniform

FILE = Path(__file__).parent / "own_states.json"
PLACE, SAMPLE, REPEAT, FINISH = (
    0x910A2DEC89025CC1,
    0xBEEB8DA1658EEC67,
    0xF893A2EEFB32555F,
    0x71C18690EE42C90B,
)

Pick = tuple[int, int, int, int]
"""Step, slot, sample, repeat."""


def pick_hash(pick: Pick) -> int:
    step, slot, sample, repeat = pick
    z = ((step * 2**32 + slot) * PLACE + sample * SAMPLE + repeat * REPEAT) % WORD
    z = (z ^ (z >> 32)) * FINISH % WORD
    return z ^ (z >> 29)


def content_hash(pick: Pick) -> int:
    """Of the two columns of a row: "id", int64 [1], and "x", float32 [2] of i / 2 and -i."""
    step, slot, i, _ = pick
    columns = {
        "id|torch.int64|(1,)": struct.pack("<q", i),
        "x|torch.float32|(2,)": struct.pack("<2f", i / 2, -i),
    }
    total = 0
    for kind, row in columns.items():
        text = f"{step}|{slot}|{kind}|".encode() + row
        total += int.from_bytes(blake2b(text, digest_size=8).digest(), "little")
    return total


def digest(hashes: list[int]) -> str:
    return f"{sum(hashes) % WORD:016x}"


def ordered(order: dict[str, Any], samples: int, epoch: int) -> list[int]:
    """The picks of an epoch, in order."""
    seed, picks = order["seed"], samples * order["augment"]
    if order["kind"] == "Sequential":
        return list(range(picks))
    if order["kind"] == "BlockShuffled":
        return blocks(picks, order["block"] * order["augment"], order["window"], seed, epoch)
    if order["order"] == "uniform":
        return uniform(picks, derive(seed, epoch, 0, 0, 110))
    return permuted(picks, derive(seed, epoch, 0, 0, 101))


def run(order: dict[str, Any], pieces: list[list[int]], steps: int) -> list[list[Pick]]:
    """The picks of each step, and the places of all; pieces are (first step, batch, samples)."""
    made: list[list[Pick]] = []
    epoch = 0
    while len(made) < steps:
        _, _, samples = [piece for piece in pieces if piece[0] <= len(made)][-1]
        left = ordered(order, samples, epoch)
        while left:
            step = len(made)
            _, batch, _ = [piece for piece in pieces if piece[0] <= step][-1]
            if len(left) < batch and order["drop_last"]:
                break
            row = enumerate(left[:batch])
            made.append([(step, slot, *divmod(pick, order["augment"])) for slot, pick in row])
            left = left[batch:]
        epoch += 1
    return made[:steps]


def state(
    order: dict[str, Any],
    pieces: list[list[int]],
    step: int,
    place: list[int],
    first: int = 0,
    skips: tuple[int, ...] = (),
) -> dict[str, Any]:
    """The state at a step, of a run that was begun at `first`."""
    by_step = run(order, pieces, step)
    revisions = sorted({samples for _, _, samples in pieces})
    taken = [
        pick
        for number, picks in enumerate(by_step)
        if number >= first and number not in skips
        for pick in picks
    ]
    made: dict[str, Any] = {
        "version": 1,
        "next_step": step,
        "epoch": place[0],
        "step_in_epoch": place[1],
        "seed": order["seed"],
        "global_batch": pieces[-1][1],
        "sampler": {key: value for key, value in order.items() if _is_fact(order, key)},
        "dataset": {
            "kind": "Arrays",
            "samples": pieces[-1][2],
            "columns": [["id", "<i8", [1]], ["x", "<f4", [2]]],
        },
        "schedule": [[a, batch, revisions.index(samples)] for a, batch, samples in pieces],
        "data_revisions": revisions,
        "order_check": digest([pick_hash(pick) for pick in by_step[-1]]) if step else "",
        "history": {"from_step": first, "digest": digest([pick_hash(pick) for pick in taken])},
        "resume": "seek",
        "content": {"from_step": first, "digest": digest([content_hash(pick) for pick in taken])},
    }
    if skips:
        made["skips"] = list(skips)
    return made


def _is_fact(order: dict[str, Any], key: str) -> bool:
    # The sequential order has no seed of its own; the loader's stands beside it.
    return order["kind"] != "Sequential" or key != "seed"


def case(
    order: dict[str, Any], pieces: list[list[int]], step: int, place: list[int], **more: Any
) -> dict[str, Any]:
    made = state(order, pieces, step, place, **more)
    first, skips = more.get("first", 0), list(more.get("skips", ()))
    return {"order": order, "pieces": pieces, "first": first, "skips": skips, "state": made}


def cases() -> list[dict[str, Any]]:
    keyed = {"kind": "Shuffled", "drop_last": True, "augment": 1, "seed": 42, "order": "keyed"}
    views = {**keyed, "augment": 2, "seed": -7, "drop_last": False}
    even = {**keyed, "order": "uniform", "seed": 2**64 - 1}
    block = {"kind": "BlockShuffled", "drop_last": True, "augment": 1, "seed": 42}
    block |= {"block": 4, "window": 2}
    plain = {"kind": "Sequential", "drop_last": False, "augment": 1, "seed": 42}
    one = [[0, 4, 23]]
    return [
        case(keyed, one, 0, [0, 0]),
        case(keyed, one, 3, [0, 3]),
        case(keyed, one, 5, [1, 0]),
        case(keyed, one, 7, [1, 2]),
        case(keyed, one, 9, [1, 4], first=6),
        case(keyed, one, 9, [1, 4], skips=(1, 7)),
        case(views, one, 12, [1, 0]),
        case(views, one, 14, [1, 2]),
        case(even, one, 7, [1, 2]),
        case(block, one, 7, [1, 2]),
        case(plain, one, 6, [1, 0]),
        case(plain, one, 8, [1, 2]),
        case(keyed, [[0, 4, 23], [3, 3, 23]], 7, [1, 1]),
        case(keyed, [[0, 4, 23], [3, 3, 23], [5, 5, 30]], 9, [1, 3]),
    ]


def text() -> str:
    """The file, one line per case."""
    head = {
        "comment": "States of loaders over Arrays of id and x, at their step.",
        "schema": "order: sampler and seed; pieces: (first step, batch, samples) as loaders that "
        "took over there had them; first: step at which the run began; skips: steps skipped.",
    }
    lines = ",\n".join("  " + json.dumps(each) for each in cases())
    return json.dumps(head)[:-1] + ',\n "cases": [\n' + lines + "\n]}\n"


if __name__ == "__main__":
    FILE.write_text(text())
