"""Token sequences as inputs and the tokens that follow them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from headrace.collate import Columns
from headrace.collators.numbers import as_number, whole_numbers
from headrace.collators.padding import Padding, PadTo, TooLong, lay_out
from headrace.collators.sequences import joined, parts
from headrace.collators.text import TOKENS
from headrace.datasets.shards import starts_of
from headrace.pick import PickKeys

# What torch's cross entropy leaves out unless told otherwise.
IGNORE_INDEX = -100


class NextTokenCollator:
    """Makes batches for language models: every token of a sequence but the first is a target.

    A sample is a vector of whole numbers, or a mapping or tuple whose `field` is one. One of n
    tokens gives a row of n - 1 real positions: "input", the tokens but the last; and "target",
    the token that follows each. The rest of the row is padded: "input" by `pad_value`, and
    "target" by `ignore_index`, which losses leave out, so their mean is over real positions
    only. Both are int64 `[rows, width]`, as are "lengths" `[rows]` and the bool "mask". Samples
    of fewer than two tokens give an empty row; one of a batch must have more.

    Args:
        field: Key of the tokens in a sample that is a mapping, or their position in a tuple;
            None where samples are the tokens themselves.
        pad_value: What fills the inputs, a whole number.
        ignore_index: What fills the targets.
        multiple: The width is a multiple of this.
        max_length: The most real positions there may be in a row.
        too_long: What becomes of a longer one: "error", or "cut" to keep its beginning.
        pad_to: "longest" of the batch, or "max_length" for batches of one width.

    Raises:
        ConfigError: A knob is out of its range.
    """

    def __init__(
        self,
        field: str | int | None = None,
        *,
        pad_value: int = 0,
        ignore_index: int = IGNORE_INDEX,
        multiple: int = 1,
        max_length: int | None = None,
        too_long: TooLong = "error",
        pad_to: PadTo = "longest",
    ) -> None:
        self.field = field
        self.padding = Padding(multiple, max_length, too_long, pad_to)
        self.pad_value = as_number("pad_value", pad_value, TOKENS, "input")
        self.ignore_index = as_number("ignore_index", ignore_index, TOKENS, "target")

    def __call__(self, samples: Sequence[Any], keys: PickKeys) -> Columns:
        """Collate samples; see the class.

        Raises:
            CollateError: There is none; or one has no such field, holds what is no vector of
                whole numbers, or is too long; or none has two tokens.
        """
        indices = keys.sample
        name = "tokens" if self.field is None else str(self.field)
        (tokens,) = parts(samples, (self.field,), indices)
        flat, counts = joined(tokens, name, indices, dims=1)
        lengths, width = self.padding.fit(np.maximum(counts - 1, 0), name, indices)
        numbers, offsets = whole_numbers(flat, TOKENS, name, indices, counts), starts_of(counts)
        inputs, mask = lay_out(numbers, offsets, lengths, width, self.pad_value)
        targets, _ = lay_out(numbers, offsets + 1, lengths, width, self.ignore_index)
        columns = {"input": inputs, "target": targets, "lengths": lengths, "mask": mask}
        return Columns(tuple(columns), tuple(map(torch.from_numpy, columns.values())), len(samples))
