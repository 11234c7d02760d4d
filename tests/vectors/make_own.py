"""Makes `own_*.json`: golden orders and keys of what the stream's specification leaves to headrace.

Plain integers and lists, written from the definitions and sharing no code with headrace, so that
the two check each other. Run it as `python tests/vectors/make_own.py` to write the files again;
other bytes mean that every user's seed gives another order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WORD = 2**64


def mix(x: int) -> int:
    """SplitMix64's output for a state."""
    z = (x + 0x9E3779B97F4A7C15) % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def derive(seed: int, *place: int) -> int:
    """The key of (epoch, step, slot, stream)."""
    h = mix((seed % WORD) ^ 0xD1B54A32D192ED03)
    for value in place:
        h = mix((h + value) % WORD)
    return h


def words(state: int, count: int) -> list[int]:
    """The first words of an rng."""
    return [mix((state + k * 0x9E3779B97F4A7C15) % WORD) for k in range(count)]


def placed(position: int, n: int, key: int) -> int:
    """Where a position goes under the keyed permutation of n."""
    if n <= 1:
        return 0
    half = -(-(n - 1).bit_length() // 2)
    x = position
    while True:
        left, right = x // 2**half, x % 2**half
        for k in range(4):
            f = mix(right ^ key ^ (k * 0x632BE59BD9B4E019 % WORD)) % 2**half
            left, right = right, left ^ f
        x = left * 2**half + right
        if x < n:
            return x


def permuted(n: int, key: int) -> list[int]:
    """Where each of n positions goes under the keyed permutation."""
    return [placed(position, n, key) for position in range(n)]


def uniform(n: int, state: int) -> list[int]:
    """Fisher-Yates from the top, each place swapped with one up to itself."""
    order, step = list(range(n)), 0
    for i in range(n - 1, 0, -1):
        while True:
            product = mix((state + step * 0x9E3779B97F4A7C15) % WORD) * (i + 1)
            step += 1
            if product % WORD >= (WORD - i - 1) % (i + 1):
                break
        j = product // WORD
        order[i], order[j] = order[j], order[i]
    return order


def blocks(n: int, block: int, window: int, seed: int, epoch: int) -> list[int]:
    """Blocks in keyed order (stream 105), the picks of every window shuffled (stream 106)."""
    cut = [list(range(start, min(start + block, n))) for start in range(0, n, block)]
    served = [cut[b] for b in permuted(len(cut), derive(seed, epoch, 0, 0, 105))]
    order: list[int] = []
    for number, first in enumerate(range(0, len(served), window)):
        inside = [pick for picks in served[first : first + window] for pick in picks]
        places = permuted(len(inside), derive(seed, epoch, number, 0, 106))
        order += [inside[place] for place in places]
    return order


def views(order: list[int], augment: int) -> list[list[int]]:
    """Sample and repeat of each pick."""
    return [[pick // augment, pick % augment] for pick in order]


def uniform_file() -> dict[str, Any]:
    cases = []
    for n, augment, seed in [(0, 1, 42), (1, 1, 42), (2, 1, 42), (7, 1, -1), (23, 3, 42)]:
        cases += [
            {
                "num_samples": n,
                "augment": augment,
                "seed": seed,
                "epoch": epoch,
                "views": views(uniform(n * augment, derive(seed, epoch, 0, 0, 110)), augment),
            }
            for epoch in (0, 1, 1000)
        ]
    return {
        "comment": "Shuffled(order='uniform'): Fisher-Yates with an rng of stream 110.",
        "schema": "views: (sample, repeat) of every pick of the epoch, in order.",
        "cases": cases,
    }


def blocks_file() -> dict[str, Any]:
    shapes = [
        (23, 5, 2, 1, 42),  # a short last block
        (24, 4, 3, 1, 42),
        (24, 4, 100, 1, 7),  # one window
        (10, 100, 2, 1, 42),  # one block
        (9, 1, 1, 1, 42),  # the order of the blocks alone
        (11, 3, 2, 2, -5),
        (1, 1, 1, 1, 42),
        (101, 7, 4, 1, 2**64 - 1),
    ]
    cases = []
    for n, block, window, augment, seed in shapes:
        cases += [
            {
                "num_samples": n,
                "block": block,
                "window": window,
                "augment": augment,
                "seed": seed,
                "epoch": epoch,
                "views": views(blocks(n * augment, block * augment, window, seed, epoch), augment),
            }
            for epoch in (0, 1, 77)
        ]
    return {
        "comment": "BlockShuffled: order of blocks by stream 105, inside a window by stream 106.",
        "schema": "block: in samples; views: (sample, repeat) of every pick, in order.",
        "cases": cases,
    }


def keys_file() -> dict[str, Any]:
    places = [(42, 0, 0, 0), (42, 3, 5, 7), (0, 1, 0, 0), (-1, 2**40, 2**33, 2**31), (7, 9, 1, 2)]
    return {
        "comment": "Keys of the streams that headrace adds, 107 and 108 among them.",
        "schema": "key: derive(seed, epoch, step, slot, stream) in hex.",
        "cases": [
            {
                "seed": seed,
                "epoch": epoch,
                "step": step,
                "slot": slot,
                "stream": stream,
                "key": f"{derive(seed, epoch, step, slot, stream):#018x}",
            }
            for seed, epoch, step, slot in places
            for stream in (2, 3, 4, 105, 106, 107, 108, 109, 110)
        ],
    }


def picks_file() -> dict[str, Any]:
    places = [
        # sample, repeat, epoch, seed, step in epoch, slot
        (0, 0, 0, 42, 0, 0),
        (7, 0, 0, 42, 0, 0),
        (7, 1, 0, 42, 0, 0),
        (7, 1, 3, 42, 12, 63),
        (7, 1, 3, -9, 12, 63),
        (10**12, 5, 10**6, 2**63, 10**9, 65_535),
    ]
    cases = []
    for sample, repeat, epoch, seed, step, slot in places:
        cases.append(
            {
                "sample": sample,
                "repeat": repeat,
                "epoch": epoch,
                "seed": seed,
                "step_in_epoch": step,
                "slot": slot,
                "rng": [f"{w:#018x}" for w in words(derive(seed, epoch, sample, repeat, 2), 3)],
                "slot_rng": [f"{w:#018x}" for w in words(derive(seed, epoch, step, slot, 0), 3)],
            }
        )
    return {
        "comment": "PickKey: rng() is stream 2 of (epoch, sample, repeat), slot_rng() stream 0.",
        "schema": "rng, slot_rng: the first three words of each.",
        "cases": cases,
    }


def files() -> dict[str, str]:
    """The text of each file by its name."""
    made = {
        "own_blocks.json": blocks_file(),
        "own_keys.json": keys_file(),
        "own_picks.json": picks_file(),
        "own_uniform.json": uniform_file(),
    }
    return {name: _text(document) for name, document in made.items()}


def _text(document: dict[str, Any]) -> str:
    """One line per case, so that a changed order shows as such."""
    lines = ",\n".join("  " + json.dumps(case) for case in document["cases"])
    head = {key: document[key] for key in ("comment", "schema")}
    return json.dumps(head)[:-1] + ',\n "cases": [\n' + lines + "\n]}\n"


if __name__ == "__main__":
    for file_name, text in files().items():
        (HERE / file_name).write_text(text)
