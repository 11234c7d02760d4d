"""Windows of tokens: the rows that a language model trains on."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.config import integer
from headrace.datasets.bounds import Indices, as_run, check_indices
from headrace.datasets.dataset import BulkDataset, Column, Layout, Out
from headrace.datasets.names import wanted_names
from headrace.errors import FormatError, RowErrors

INPUT, TARGET, TOKENS = "input", "target", "tokens"


class TokenWindows(BulkDataset):
    """Rows of `seq_len + 1` tokens as stored, delivered as int64 input and target.

    The target is the input shifted by one, so both come out of one stored row and the stored
    form costs a quarter of one delivered column (uint16). A subclass says where windows are.
    """

    def __init__(self, seq_len: int, dtype: np.dtype[Any], vocab_size: int | None) -> None:
        self.seq_len = seq_len = integer("seq_len", seq_len, 1)
        self.vocab_size = None if vocab_size is None else integer("vocab_size", vocab_size, 1)
        self._layout: Layout = (Column(TOKENS, dtype, (seq_len + 1,)),)
        self._delivered: Layout = tuple(
            Column(name, np.dtype(np.int64), (seq_len,)) for name in (INPUT, TARGET)
        )

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def delivered(self) -> Layout:
        return self._delivered

    def select(self, *names: str) -> TokenWindows:
        """Give only "input", only "target", or both in the order named."""
        chosen = copy.copy(self)
        columns = {column.name: column for column in self._delivered}
        chosen._delivered = tuple(columns[name] for name in wanted_names(names, columns))
        return chosen

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        check_indices(indices, len(self), self)
        tokens = out[TOKENS]
        assert isinstance(tokens, np.ndarray)
        if len(indices):
            self._copy(indices, tokens, rows)
            self._check_vocabulary(indices, tokens, rows)

    def deliver(self, stored: Mapping[str, torch.Tensor], out: Mapping[str, torch.Tensor]) -> None:
        tokens = stored[TOKENS]
        if INPUT in out:
            widen(tokens[:, :-1], out[INPUT])
        if TARGET in out:
            widen(tokens[:, 1:], out[TARGET])

    @abstractmethod
    def _copy(self, indices: Indices, tokens: NDArray[Any], rows: Indices) -> None:
        """Copy checked windows into rows of `tokens`."""

    @abstractmethod
    def _place(self, index: int) -> tuple[str, int]:
        """Give the file of a window, for messages, and its first token's position there."""

    def _check_vocabulary(self, indices: Indices, tokens: NDArray[Any], rows: Indices) -> None:
        """Refuse rows with token ids outside the vocabulary.

        One maximum over the rows just copied; negative ids are huge when seen as unsigned.
        """
        if self.vocab_size is None:
            return
        every = int(np.iinfo(tokens.dtype).max) + 1
        limit = min(self.vocab_size, every)
        if limit == every and tokens.dtype.kind == "u":
            return
        run = as_run(rows)
        got = tokens[rows if run is None else run].view(f"u{tokens.dtype.itemsize}")
        if int(got.max()) < limit:
            return
        bad_rows = np.nonzero((got >= limit).any(axis=1))[0]
        raise RowErrors(
            {
                int(rows[i]): self._vocabulary_error(int(indices[i]), tokens[rows[i]], limit)
                for i in bad_rows.tolist()
            }
        )

    def _vocabulary_error(self, index: int, row: NDArray[Any], limit: int) -> FormatError:
        position = int(np.nonzero((row < 0) | (row >= limit))[0][0])
        file, first_token = self._place(index)
        return FormatError(
            file,
            f"token ids in [0, {limit}) (vocab_size)",
            f"{int(row[position])} at token {first_token + position}",
            f"Is the file really {row.dtype}, and is vocab_size right?",
        )


def widen(tokens: torch.Tensor, out: torch.Tensor) -> None:
    """Copy token ids into int64 `out` of the same shape, on the device where they are."""
    if tokens.device.type == "cpu":
        # As quick as torch on one core, and never shared out among torch's threads, whose
        # hand-over costs more than the copy and which belong to the training step.
        np.copyto(out.numpy(), tokens.numpy())
    elif tokens.dtype not in _SIGNED:
        out.copy_(tokens)
    else:
        widen_as_signed(tokens, out)


def widen_as_signed(tokens: torch.Tensor, out: torch.Tensor) -> None:
    """Do as `widen` does for uint16 and uint32, by operations that every device has."""
    signed, mask = _SIGNED[tokens.dtype]
    out.copy_(tokens.view(signed)).bitwise_and_(mask)


_SIGNED = {torch.uint16: (torch.int16, 0xFFFF), torch.uint32: (torch.int32, 0xFFFF_FFFF)}
