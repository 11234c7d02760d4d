"""The stream as its specification says it, in plain integers: the oracle for the loader.

Nothing here is shared with the package, nothing is vectorised, and nothing is quick. A model
answers one question: which picks does a global step of a run hold?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

WORD = 2**64 - 1

# The last value of `derive`, by what is drawn.
TRANSFORM, PICK_KEY, REPLACEMENT = 0, 2, 4
ORDER, MIXING, BUCKET_ORDER, BUCKET_PLACE = 101, 102, 103, 104
BLOCK_ORDER, BLOCK_WINDOW, UNIFORM = 105, 106, 110


def mix(x: int) -> int:
    """One output of SplitMix64 from state x before its increment."""
    z = (x + 0x9E3779B97F4A7C15) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def derive(seed: int, epoch: int, step: int, slot: int, stream: int) -> int:
    """The key of a place in the run."""
    h = mix((seed & WORD) ^ 0xD1B54A32D192ED03)
    for value in (epoch, step, slot, stream):
        h = mix((h + value) & WORD)
    return h


class Rng:
    """SplitMix64, one draw at a time."""

    def __init__(self, state: int) -> None:
        self.state = state

    def word(self) -> int:
        out = mix(self.state)
        self.state = (self.state + 0x9E3779B97F4A7C15) & WORD
        return out

    def next_double(self) -> float:
        return (self.word() >> 11) / 2**53

    def next_int(self, n: int) -> int:
        product = self.word() * n
        if product & WORD < n:
            bound = (2**64 - n) % n
            while product & WORD < bound:
                product = self.word() * n
        return product >> 64


def permuted(p: int, n: int, key: int) -> int:
    """Where the keyed permutation of [0, n) sends p."""
    if n <= 1:
        return 0
    half = ((n - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1
    x = p
    while True:
        left, right = x >> half, x & mask
        for turn in range(4):
            turned = mix(right ^ key ^ ((turn * 0x632BE59BD9B4E019) & WORD)) & mask
            left, right = right, left ^ turned
        x = left << half | right
        if x < n:
            return x


# An order gives the picks of one epoch, one list per step; a pick is (sample, repeat).
Steps = list[list[tuple[int, int]]]
Order = Callable[[int], Steps]


def dealt(picks: Sequence[int], batch: int, drop_last: bool, augment: int = 1) -> Steps:
    """Cut the picks of an epoch into batches; pick q is view q mod augment of a sample."""
    views = [(pick // augment, pick % augment) for pick in picks]
    steps = [views[at : at + batch] for at in range(0, len(views), batch)]
    return steps[:-1] if drop_last and steps and len(steps[-1]) < batch else steps


def sequential(n: int, batch: int, drop_last: bool, augment: int = 1) -> Order:
    """Index order, in every epoch."""
    return lambda epoch: dealt(range(n * augment), batch, drop_last, augment)


def shuffled(n: int, batch: int, seed: int, drop_last: bool, augment: int = 1) -> Order:
    """The keyed permutation of all picks."""

    def order(epoch: int) -> Steps:
        key = derive(seed, epoch, 0, 0, ORDER)
        picks = [permuted(p, n * augment, key) for p in range(n * augment)]
        return dealt(picks, batch, drop_last, augment)

    return order


def uniform(n: int, batch: int, seed: int, drop_last: bool, augment: int = 1) -> Order:
    """Fisher-Yates from the end."""

    def order(epoch: int) -> Steps:
        rng = Rng(derive(seed, epoch, 0, 0, UNIFORM))
        picks = list(range(n * augment))
        for i in range(len(picks) - 1, 0, -1):
            j = rng.next_int(i + 1)
            picks[i], picks[j] = picks[j], picks[i]
        return dealt(picks, batch, drop_last, augment)

    return order


def block_shuffled(
    n: int, batch: int, seed: int, drop_last: bool, block: int, window: int, augment: int = 1
) -> Order:
    """Blocks in a keyed order, and the picks of every `window` blocks shuffled."""

    def order(epoch: int) -> Steps:
        picks = range(n * augment)
        size = block * augment
        blocks = [picks[at : at + size] for at in range(0, len(picks), size)]
        key = derive(seed, epoch, 0, 0, BLOCK_ORDER)
        placed = [blocks[permuted(p, len(blocks), key)] for p in range(len(blocks))]
        out: list[int] = []
        for number, at in enumerate(range(0, len(placed), window)):
            inside = [pick for each in placed[at : at + window] for pick in each]
            key = derive(seed, epoch, number, 0, BLOCK_WINDOW)
            out += [inside[permuted(p, len(inside), key)] for p in range(len(inside))]
        return dealt(out, batch, drop_last, augment)

    return order


def mixing(
    sources: Sequence[tuple[int, int]],
    shares: Sequence[float],
    batch: int,
    steps_per_epoch: int,
    seed: int,
) -> Order:
    """Each slot draws a source by share, then one of its samples (C05)."""
    taking = [
        (start, size, share)
        for (start, size), share in zip(sources, shares, strict=True)
        if size > 0 and share > 0
    ]
    total = 0.0
    for _, _, share in taking:
        total += share

    def draw(epoch: int, step: int, slot: int) -> tuple[int, int]:
        rng = Rng(derive(seed, epoch, step, slot, MIXING))
        u, reached = rng.next_double(), 0.0
        start, size, _ = taking[-1]
        for begins, holds, share in taking:
            reached += share / total
            if reached > u:
                start, size = begins, holds
                break
        return start + rng.next_int(size), 0

    return lambda epoch: [
        [draw(epoch, step, slot) for slot in range(batch)] for step in range(steps_per_epoch)
    ]


def bucketed(
    lengths: Sequence[int], batch: int, pool_batches: int, seed: int, drop_last: bool
) -> Order:
    """Pools sorted by length, their batches shuffled (C06, C07)."""
    n = len(lengths)

    def order(epoch: int) -> Steps:
        key = derive(seed, epoch, 0, 0, BUCKET_ORDER)
        kept = [permuted(p, n, key) for p in range(n)]
        steps = n // batch if drop_last else -(-n // batch)
        kept = kept[: steps * batch]
        ranked: list[int] = []
        for at in range(0, len(kept), batch * pool_batches):
            pool = kept[at : at + batch * pool_batches]
            ranked += sorted(pool, key=lambda index: (lengths[index], index))
        batches = dealt(ranked, batch, drop_last)
        key = derive(seed, epoch, 1, 0, BUCKET_PLACE)
        placed: Steps = [[]] * steps
        for t, one in enumerate(batches):
            placed[permuted(t, steps, key)] = one
        return placed

    return order


class Step(NamedTuple):
    """What a global step holds.

    Attributes:
        epoch: Its epoch.
        step_in_epoch: Its place there.
        samples: Sample index of each slot.
        repeats: Which view of it.
    """

    epoch: int
    step_in_epoch: int
    samples: list[int]
    repeats: list[int]


@dataclass(frozen=True, eq=False)
class Model:
    """A run: the order of its epochs, one after another."""

    order: Order

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", cache(self.order))

    @property
    def steps_per_epoch(self) -> int:
        """Steps of every epoch."""
        return len(self.order(0))

    def step(self, g: int) -> Step:
        """What global step g holds."""
        epoch, into = divmod(g, self.steps_per_epoch)
        picks = self.order(epoch)[into]
        return Step(epoch, into, [sample for sample, _ in picks], [view for _, view in picks])

    def samples(self, epoch: int) -> list[int]:
        """The samples of an epoch, in order."""
        return [sample for step in self.order(epoch) for sample, _ in step]


def pick_rng(seed: int, epoch: int, sample: int, repeat: int) -> Rng:
    """The rng of one view of a sample, wherever it is delivered."""
    return Rng(derive(seed, epoch, sample, repeat, PICK_KEY))


def slot_rng(seed: int, epoch: int, step_in_epoch: int, slot: int) -> Rng:
    """The rng of one place in the run, whichever sample is there."""
    return Rng(derive(seed, epoch, step_in_epoch, slot, TRANSFORM))


def replacement(
    seed: int, epoch: int, index: int, num_samples: int, is_good: Callable[[int], bool]
) -> int:
    """The sample that stands in for a bad one: the first good index drawn."""
    for k in range(64):
        drawn = Rng(derive(seed, epoch, index, k, REPLACEMENT)).next_int(num_samples)
        if is_good(drawn):
            return drawn
    raise LookupError(f"no good sample in 64 draws for sample {index}")
