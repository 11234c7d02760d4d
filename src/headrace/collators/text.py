"""Labelled token sequences, padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from headrace.collate import Columns
from headrace.collators.numbers import as_number, whole_numbers
from headrace.collators.padding import Padding, PadTo, TooLong, lay_out
from headrace.collators.sequences import joined, parts
from headrace.datasets.shards import starts_of
from headrace.pick import PickKeys

TOKENS = np.dtype(np.int64)


class TextCollator:
    """Makes batches of token sequences that have one label each, for classifiers.

    A sample is a pair (tokens, label), or a mapping that has "tokens" and "label". Tokens are a
    vector of whole numbers, and labels one each. The batch has "tokens", int64 `[rows, width]`;
    "lengths", int64 `[rows]`; "mask", bool `[rows, width]`, made of the lengths and never of the
    tokens, so 0 may be a token; and "labels", int64 `[rows]`. Whole numbers of any width become
    int64, which embeddings and losses of torch take; one that does not fit is refused. A sample
    may be empty, but not all those of a batch.

    For labels of each token see NextTokenCollator, and PadCollator with a column of targets.

    Args:
        pad_value: What fills the rest of a row, a whole number.
        multiple: The width is a multiple of this.
        max_length: The longest row there may be.
        too_long: What becomes of a longer one: "error", or "cut" to keep its beginning.
        pad_to: "longest" of the batch, or "max_length" for batches of one width.

    Raises:
        ConfigError: A knob is out of its range.
    """

    def __init__(
        self,
        *,
        pad_value: int = 0,
        multiple: int = 1,
        max_length: int | None = None,
        too_long: TooLong = "error",
        pad_to: PadTo = "longest",
    ) -> None:
        self.padding = Padding(multiple, max_length, too_long, pad_to)
        self.pad_value = as_number("pad_value", pad_value, TOKENS, "tokens")

    def __call__(self, samples: Sequence[Any], keys: PickKeys) -> Columns:
        """Collate samples; see the class.

        Raises:
            CollateError: There is none; or one is no such sample, holds what is no vector of
                whole numbers, or is too long; or all are empty.
        """
        indices = keys.sample
        tokens, labels = parts(samples, ("tokens", "label"), indices)
        flat, sizes = joined(tokens, "tokens", indices, dims=1)
        lengths, width = self.padding.fit(sizes, "tokens", indices)
        numbers = whole_numbers(flat, TOKENS, "tokens", indices, sizes)
        padded, mask = lay_out(numbers, starts_of(sizes), lengths, width, self.pad_value)
        columns = {
            "tokens": padded,
            "lengths": lengths,
            "mask": mask,
            "labels": whole_numbers(labels, TOKENS, "label", indices),
        }
        return Columns(tuple(columns), tuple(map(torch.from_numpy, columns.values())), len(samples))
