"""Building plain batches: fetch the samples of a key, collate them, pin the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from headrace.batch import Batch
from headrace.build.builder import Finish
from headrace.build.built import Built
from headrace.build.calls import Raised, attempt
from headrace.build.estimated import EstimatedBuilder
from headrace.plan import Span
from headrace.torch.draws import Keys
from headrace.torch.reader_threads import Subject
from headrace.torch.tensor_rows import TensorRows

_NO_INDICES = np.empty(0, np.int64)


class FetchBuilder(EstimatedBuilder):
    """Makes what torch's loader would return for each step.

    Args:
        finish: Counts times.
        here: Gives dataset and collate function for the calling thread, made ready for a step.
        keys: What each step fetches.
        is_batched: Whether a key is a list of keys, whose samples are collated.
        pin: Pins a batch; None to leave it.
        rows: Gathers whole batches where it can; None without batching.
    """

    def __init__(
        self,
        finish: Finish,
        here: Callable[[int], Subject],
        keys: Keys,
        is_batched: bool,
        pin: Callable[[Any], Any] | None,
        rows: TensorRows | None,
    ) -> None:
        super().__init__(finish)
        self._here = here
        self._keys = keys
        self._is_batched = is_batched
        self._pin = pin
        self._rows = rows

    @property
    def waits(self) -> bool:
        return False

    def build_blocking(self, span: Span) -> list[Built]:
        return [self._build(step) for step in span.steps]

    def _build(self, step: int) -> Built:
        key = attempt(self._keys.get, step)
        if isinstance(key, Raised):
            return Built(failure=key.error)
        data = attempt(self._data, step, key)
        if isinstance(data, Raised):
            return _failed(data)
        self._estimate.add(_bytes_in(data))
        return Built(plain(step, data))

    def _data(self, step: int, key: Any) -> Any:
        subject = self._here(step)
        began = self.times.clock()
        data = None if self._rows is None else self._rows.batch(key)
        if data is not None:
            self.times.add_read(began)
        else:
            samples = _fetched(subject.samples(), key, self._is_batched)
            self.times.add_read(began)
            data = self.assemble(subject.collate, samples)
        return data if self._pin is None else self._pin(data)


def _failed(raised: Raised) -> Built:
    """Give a failed step, and leave the error to it alone.

    The traceback leads back to the frame that holds `raised`: held there too, the error would be
    a cycle that keeps a dropped pass, and its threads, until the collector happens to run.
    """
    built = Built(failure=raised.error)
    del raised.error
    return built


def plain(step: int, data: Any) -> Batch:
    """Give anything as a batch of one column, the form in which slots hold it."""
    return Batch(("data",), (data,), step=step, epoch=0, num_rows=1, indices=_NO_INDICES)


def _fetched(dataset: Any, key: Any, is_batched: bool) -> Any:
    if not is_batched:
        return dataset[key]
    many = getattr(dataset, "__getitems__", None)
    return many(key) if many else [dataset[each] for each in key]


def _bytes_in(data: Any) -> int:
    """Give what a plain batch holds; what is no tensor, array or text is taken for 64 bytes."""
    if isinstance(data, torch.Tensor | np.ndarray):
        return int(data.nbytes)
    if isinstance(data, str | bytes):
        return len(data)
    if isinstance(data, Mapping):
        return sum(map(_bytes_in, data.values()))
    if isinstance(data, list | tuple):
        return sum(map(_bytes_in, data))
    return 64
