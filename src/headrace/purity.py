"""Which samples of a run are probed for impurity, and how they are read for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.build.calls import is_awaited
from headrace.build.samples import SampleTransform
from headrace.datasets.access import Samples
from headrace.datasets.adapt import AnyDataset
from headrace.datasets.adapters import Foreign
from headrace.datasets.dataset import BatchDataset, BulkDataset
from headrace.datasets.probe import probe_purity
from headrace.datasets.row_samples import BlockingRowSamples, WaitingRowSamples
from headrace.errors import PurityError
from headrace.loop_thread import Main
from headrace.pick import PickKey

Get = Callable[[int], Any]
Call = Callable[[Main[Any]], Any]


def probe_run(
    dataset: AnyDataset, sample_transform: SampleTransform | None, seed: int, call: Call
) -> None:
    """Make a few samples twice, as a run makes them, and compare.

    What must be awaited is left unprobed where an event loop runs in the calling thread, which
    would stand still meanwhile.

    Args:
        dataset: Any dataset; those of headrace are pure by themselves.
        sample_transform: The user's; it gets the same key both times.
        seed: Seed of the loader, for the keys.
        call: Runs a coroutine function to its end on a loop that has the dataset open.

    Raises:
        PurityError: They differ, or a global generator moved; it names which of the two did it.
    """
    transform = None if isinstance(dataset, BatchDataset) else sample_transform
    if transform is None and not isinstance(dataset, Foreign):
        return
    read = _as_samples(dataset)
    read.thread_open()
    try:
        _probe(dataset, _getter(read, call), transform, seed)
    except PurityError:
        raise
    except Exception:  # noqa: BLE001 - a bad sample is met again, in its own step
        return
    finally:
        read.thread_close()


def _probe(dataset: AnyDataset, get: Get, transform: SampleTransform | None, seed: int) -> None:
    last = len(dataset) - 1
    indices, what = sorted({0, last // 2}), repr(dataset)
    if transform is not None:
        try:
            probe_purity(_transformed(get, transform, seed), indices, f"sample_transform of {what}")
        except PurityError:
            # The dataset alone is asked again, to name it where the fault is not the transform's.
            _probe_alone(dataset, get, indices, what)
            raise
        except Exception:  # noqa: BLE001 - met again in its own step; the dataset is still probed
            _probe_alone(dataset, get, indices, what)
        return
    _probe_alone(dataset, get, indices, what)


def _probe_alone(dataset: AnyDataset, get: Get, indices: list[int], what: str) -> None:
    if isinstance(dataset, Foreign):
        probe_purity(get, indices, what)


def _transformed(get: Get, transform: SampleTransform, seed: int) -> Get:
    return lambda index: transform(get(index), PickKey(index, 0, 0, seed, 0, 0))


def _as_samples(dataset: AnyDataset) -> Any:
    if not isinstance(dataset, BulkDataset):
        return dataset
    return WaitingRowSamples(dataset) if dataset.waits else BlockingRowSamples(dataset)


def _getter(dataset: Any, call: Call) -> Get:
    """Give what reads one sample, or a batch of one, for the calling thread."""
    if isinstance(dataset, BatchDataset):
        if is_awaited(dataset.get_batch):
            return lambda index: call(lambda: dataset.get_batch([index]))
        return lambda index: dataset.get_batch([index])
    samples = Samples(dataset)
    if samples.waits:
        return lambda index: samples.decode(call(lambda: samples.fetch([index]))[0])
    return samples.get_one_blocking
