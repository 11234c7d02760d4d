"""How much of padded batches is padding, counted or planned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace import config
from headrace.collators.padding import Padding
from headrace.errors import ConfigError
from headrace.samplers.sampler import Sampler

# Steps planned at once: enough rows to spread numpy's costs, few enough for any batch size.
_STEPS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class PaddingStats:
    """What padded batches hold.

    Attributes:
        positions: Positions of all rows, padded ones included.
        valid: Positions that are real.
        batches: How many batches.
    """

    positions: int
    valid: int
    batches: int

    @property
    def padding_share(self) -> float:
        """Which share of the positions is padding; 0 where there is none."""
        return 1 - self.valid / self.positions if self.positions else 0.0


def padding_stats(batches: Iterable[Any], multiple: int = 1) -> PaddingStats:
    """Count the positions of batches that are each padded to their longest row.

    Args:
        batches: Lengths of the rows of each batch: whole numbers `[rows]`.
        multiple: Widths are multiples of this.

    Raises:
        ConfigError: The lengths of a batch are no list.
    """
    padding = Padding(multiple)
    positions = valid = count = 0
    for lengths in batches:
        row_lengths = np.asarray(lengths)
        if row_lengths.ndim != 1:
            cure = "Of one batch give [lengths]."
            raise ConfigError("batches", "the lengths of the rows of each batch", lengths, cure)
        longest = int(row_lengths.max(initial=0))
        positions += len(row_lengths) * padding.widths(longest)
        valid += int(row_lengths.sum())
        count += 1
    return PaddingStats(positions, valid, count)


def planned_padding(
    sampler: Sampler, lengths: Any, *, epoch: int = 0, multiple: int = 1
) -> PaddingStats:
    """Count the positions of one epoch as a sampler orders it, without reading any data.

    So samplers and their knobs can be compared before a run: `pool_batches` of Bucketed trades
    padding against mixing.

    Args:
        sampler: The order, such as `loader.sampler`.
        lengths: Length of each sample, `[n]`.
        epoch: Which epoch.
        multiple: Widths are multiples of this.

    Raises:
        ConfigError: There are not as many lengths as samples, or the sampler does not know how
            many steps the epoch has.
    """
    sizes = np.asarray(lengths)
    if len(sizes) != sampler.num_samples:
        raise ConfigError("lengths", f"{sampler.num_samples} lengths", len(sizes))
    steps = sampler.steps_in(config.epoch("epoch", epoch))
    if steps is None:
        raise ConfigError("sampler", "one that knows the steps of an epoch", sampler)
    first = sampler.first_step(epoch)
    positions = valid = 0
    for start in range(first, first + steps, _STEPS_AT_ONCE):
        picks = sampler.picks(range(start, min(start + _STEPS_AT_ONCE, first + steps)), slice(None))
        ends = np.flatnonzero(np.diff(picks.step)) + 1
        found = padding_stats(np.split(sizes[picks.sample], ends), multiple)
        positions, valid = positions + found.positions, valid + found.valid
    return PaddingStats(positions, valid, steps)
