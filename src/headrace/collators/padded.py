"""Padding named fields to a common length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from headrace.collate import Columns, default_collate
from headrace.collators.numbers import as_number
from headrace.collators.padding import Padding, PadTo, TooLong, lay_out
from headrace.collators.sequences import joined
from headrace.datasets.dataset import Layout
from headrace.datasets.shards import starts_of
from headrace.errors import CollateError, ConfigError
from headrace.nesting import names_in
from headrace.pick import PickKeys

LENGTHS = "/lengths"
MASK = "/mask"
# Enough to find the right name by; a list of numbers has one for each position.
NAMES_SHOWN = 8


class PadCollator:
    """Pads fields of open length; every other field is stacked as by default.

    A field "x" becomes three columns: "x", `[rows, width, ...]` of the dtype that the samples
    have; "x/lengths", int64 `[rows]`; and "x/mask", bool `[rows, width]`, which is True where a
    position is real. The mask comes from the lengths and never from the values, so the pad
    value may also be a real one. Samples may be empty, but not all those of a batch.

    Pass it as `collate=`. Over a BulkDataset with open columns the loader then pads without
    Python per sample; the batches are the same. A sequence is an array or tensor
    `[length, ...]`, or a list of numbers.

    Args:
        names: The fields, by the names that their columns have: all of open length.
        pad_value: What fills the rest, for all fields or by name.
        multiple: The width is a multiple of this.
        max_length: The longest row there may be.
        too_long: What becomes of a longer one: "error", or "cut" to keep its beginning.
        pad_to: "longest" of the batch, or "max_length" for batches of one width.

    Raises:
        ConfigError: A knob is out of its range.
    """

    def __init__(
        self,
        *names: str,
        pad_value: float | Mapping[str, float] = 0,
        multiple: int = 1,
        max_length: int | None = None,
        too_long: TooLong = "error",
        pad_to: PadTo = "longest",
    ) -> None:
        if not all(isinstance(name, str) for name in names):
            cure = 'Pass them one by one: PadCollator("x", "y"). The parts of a tuple are "0", "1".'
            raise ConfigError("names", "the names of the fields to pad, as text", names, cure)
        if not names or len(set(names)) != len(names):
            raise ConfigError("names", "the names of the fields to pad, each once", names)
        self.names = names
        self.padding = Padding(multiple, max_length, too_long, pad_to)
        self.pad_values = _by_name(pad_value, names)

    def __call__(self, samples: Sequence[Any], keys: PickKeys) -> Columns:
        """Collate samples; see the class.

        Raises:
            CollateError: A named field is missing, no sequence, too long, or empty in all
                samples; or samples differ in what must agree.
        """
        indices = keys.sample
        own = {name: partial(self._pad, name) for name in self.names}
        try:
            stacked = default_collate(samples, indices, own=own)
        except CollateError:
            # A field that was meant, but is called something else, does not stack.
            if len(samples):
                self._check_named(names_in(samples[0], own))
            raise
        self._check_named(stacked.names)
        columns: dict[str, Any] = {}
        for name, value in zip(stacked.names, stacked.values, strict=True):
            columns |= value if name in own else {name: value}
        return Columns(tuple(columns), tuple(columns.values()), len(samples))

    def _check_named(self, found: Sequence[str]) -> None:
        missing = [name for name in self.names if name not in found]
        if missing:
            listed = ", ".join(map(repr, found[:NAMES_SHOWN]))
            more = ", ..." if len(found) > NAMES_SHOWN else ""
            raise CollateError(
                f"PadCollator: no field {missing[0]!r}; samples have {listed}{more}.", missing[0]
            )

    def _pad(self, name: str, values: Sequence[Any], indices: Any) -> dict[str, torch.Tensor]:
        flat, sizes = joined(values, name, indices)
        lengths, width = self.padding.fit(sizes, name, indices)
        pad_value = self.pad_for(name, flat.dtype)
        column, mask = lay_out(flat, starts_of(sizes), lengths, width, pad_value)
        return {
            name: torch.from_numpy(column),
            name + LENGTHS: torch.from_numpy(lengths),
            name + MASK: torch.from_numpy(mask),
        }

    def pad_for(self, name: str, dtype: np.dtype[Any]) -> Any:
        """Give the pad value of a field, as a number of its dtype.

        Raises:
            ConfigError: It does not fit.
        """
        return as_number("pad_value", self.pad_values[name], dtype, name)

    def check_layout(self, delivered: Layout) -> None:
        """Check that the open columns of a bulk dataset are those named.

        Raises:
            ConfigError: They are not, or a pad value does not fit its column.
        """
        found = sorted(column.name for column in delivered if column.is_open)
        if found != sorted(self.names):
            cure = "Name all open columns and no other, or select columns of the dataset."
            raise ConfigError("collate", f"PadCollator over {found}", list(self.names), cure)
        for column in delivered:
            if column.is_open:
                self.pad_for(column.name, column.dtype)


def _by_name(pad_value: Any, names: Sequence[str]) -> dict[str, Any]:
    if not isinstance(pad_value, Mapping):
        return dict.fromkeys(names, pad_value)
    unknown = [name for name in pad_value if name not in names]
    if unknown:
        raise ConfigError("pad_value", f"values for {list(names)}", dict(pad_value))
    return {name: pad_value.get(name, 0) for name in names}
