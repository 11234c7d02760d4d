"""What a loader holds of host memory, worked out from its settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """What an estimate follows from.

    Attributes:
        step_bytes: What one batch holds.
        beside_bytes: What making a batch takes beside it: samples, or rows in stored form.
        prefetch_steps: Steps read ahead at most; 0 where nothing is read ahead.
        ring_bytes: Bytes read ahead at most.
        builders: How many spans are being built at once.
        span_steps: Steps of the longest span.
        copies: Copies of a foreign dataset.
        copy_bytes: What each of them holds.
    """

    step_bytes: int
    beside_bytes: int
    prefetch_steps: int
    ring_bytes: int
    builders: int
    span_steps: int
    copies: int
    copy_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MemoryEstimate:
    """Host memory that a loader takes for itself, in bytes: the most in steady state.

    Your data is not counted, be it in memory or mapped: it exists once, whatever `workers` is.
    Neither is what torch and Python take, nor batches that you keep.

    Attributes:
        step_bytes: One batch. Exact for rows of one shape; where lengths differ, a guess from
            lengths all over the data; else what recent batches held, 1 MiB before the first.
        ahead_bytes: Batches read ahead: `prefetch` of them, within `ring_bytes`. With
            `workers=0` the rest of the span that the last batch came from.
        hand_bytes: The batch just taken, and the span of the one before it, which a loop holds
            until it has the next.
        building_bytes: What builders hold beside the batches that they make: samples, or rows
            in the form that they are stored in.
        spare_bytes: Blocks that wait to be used again. Spans differ in length, and each length
            has blocks of its own.
        copies_bytes: Copies of a foreign dataset, one for each thread that reads it.
        ring_bytes: The bound on `ahead_bytes`, whatever `prefetch` is.
    """

    step_bytes: int
    ahead_bytes: int
    hand_bytes: int
    building_bytes: int
    spare_bytes: int
    copies_bytes: int
    ring_bytes: int

    @property
    def total_bytes(self) -> int:
        """All parts together."""
        batches_bytes = self.ahead_bytes + self.hand_bytes
        return batches_bytes + self.building_bytes + self.spare_bytes + self.copies_bytes

    def __repr__(self) -> str:
        parts = {
            "ahead": self.ahead_bytes,
            "in hand": self.hand_bytes,
            "building": self.building_bytes,
            "spare": self.spare_bytes,
            "copies": self.copies_bytes,
        }
        listed = ", ".join(f"{name} {in_words(nbytes)}" for name, nbytes in parts.items())
        return (
            f"MemoryEstimate({in_words(self.total_bytes)}: {listed}; batches of "
            f"{in_words(self.step_bytes)}, at most {in_words(self.ring_bytes)} ahead)"
        )


def estimated(facts: MemoryFacts) -> MemoryEstimate:
    """Work out an estimate.

    A block lives until its last step has died, and a span is one block. So beside the steps in
    flight there are the step just taken and the whole span of the one before it. As much again
    may wait in blocks of other sizes, unless a span is one step and all have one size.
    """
    in_flight_steps = facts.prefetch_steps or facts.span_steps - 1
    ahead_bytes = min(in_flight_steps * facts.step_bytes, facts.ring_bytes)
    hand_bytes = (facts.span_steps + 1) * facts.step_bytes
    return MemoryEstimate(
        step_bytes=facts.step_bytes,
        ahead_bytes=ahead_bytes,
        hand_bytes=hand_bytes,
        building_bytes=facts.builders * facts.span_steps * facts.beside_bytes,
        spare_bytes=ahead_bytes + hand_bytes if facts.span_steps > 1 else 0,
        copies_bytes=facts.copies * facts.copy_bytes,
        ring_bytes=facts.ring_bytes,
    )


def in_words(nbytes: int) -> str:
    """Write a number of bytes with the largest unit that it fills."""
    size, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"
