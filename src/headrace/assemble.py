"""From a loader's knobs, checked, to the settings of its engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from headrace import config
from headrace.build.bad_samples import BadSamplePolicy, OnBadSample
from headrace.build.bulk import typical_row_bytes
from headrace.build.nested import NestedStates
from headrace.build.samples import SampleTransform
from headrace.datasets.adapt import AnyDataset
from headrace.datasets.dataset import BulkDataset
from headrace.datasets.foreign import ThreadCopies
from headrace.datasets.parts import everything_in
from headrace.engine import Settings
from headrace.errors import ConfigError
from headrace.landing import Landing

# What batches read ahead may hold where nothing is said: a few seconds of most training steps.
RING_BYTES = 1 << 30


def settings_of(
    dataset: AnyDataset,
    landing: Landing,
    states: NestedStates,
    *,
    seed: int,
    batch_rows: int,
    workers: int | None,
    prefetch: int | None,
    ring_bytes: int | None,
    on_bad_sample: OnBadSample,
    names: Sequence[str] | None,
    collate: Callable[..., Any] | None,
    sample_transform: SampleTransform | None,
    pure: bool | None,
) -> Settings:
    """Check the knobs that decide how batches are built.

    Raises:
        ConfigError: One is out of its range.
    """
    count = config.workers(workers)
    if workers is None and _is_quick_to_gather(dataset, batch_rows):
        count = 1
    is_serial = bool(states) or pure is False
    copies = ThreadCopies(dataset) if count and not is_serial else None
    if copies is not None and copies.sharing == "serial":
        is_serial = True
    names = config.names(names)
    if names is not None:
        _check_names(dataset, names)
    return Settings(
        workers=count,
        prefetch=None if prefetch is None else config.prefetch(prefetch),
        ring_bytes=RING_BYTES
        if ring_bytes is None
        else config.integer("ring_bytes", ring_bytes, 1),
        seed=seed,
        batch_rows=batch_rows,
        policy=BadSamplePolicy(
            config.one_of("on_bad_sample", on_bad_sample, "raise", "replace", "mask"),
            seed,
            len(dataset),
        ),
        names=names,
        transform=landing.host_transform,
        sample_transform=sample_transform,
        collate=None if collate is None else _with_keys(collate),
        with_content=landing.hashes_on_host,
        copies=None if is_serial or copies is None or copies.sharing != "copies" else copies,
        is_serial=is_serial,
        states=states,
    )


def stateful_of(dataset: AnyDataset, **functions: Any) -> dict[str, Any]:
    """Pick the user's objects that have a state to be kept, by role.

    Those inside a composed dataset count too, each once. The state of a torch module is its
    weights, which belong to no place in the data.
    """
    found: dict[int, tuple[str, Any]] = {}
    for role, held in (*everything_in(dataset, "dataset"), *functions.items()):
        if _has_state(held):
            found.setdefault(id(held), (role, held))
    return dict(found.values())


def _has_state(held: Any) -> bool:
    return (
        hasattr(held, "state_dict")
        and hasattr(held, "load_state_dict")
        and not isinstance(held, torch.nn.Module)
    )


# Under this a step is gathered in about the time that two readers lose to each other's turns at
# the interpreter: 256 KiB steps of workload S came 1.3 times as fast from one reader as from
# two, 1 MiB steps of workload T 0.75 times (two cores; benchmarks/run.py has both workloads).
QUICK_STEP_BYTES = 512 << 10


def _is_quick_to_gather(dataset: AnyDataset, batch_rows: int) -> bool:
    """Whether one reader is better than several: small steps out of memory-like rows."""
    if not isinstance(dataset, BulkDataset) or dataset.waits or dataset.decodes:
        return False
    return batch_rows * typical_row_bytes(dataset, dataset.delivered) < QUICK_STEP_BYTES


def _check_names(dataset: AnyDataset, names: Sequence[str]) -> None:
    if isinstance(dataset, BulkDataset) and not any(c.is_open for c in dataset.delivered):
        found = [column.name for column in dataset.delivered]
        if len(found) != len(names):
            wanted = f"{len(found)} names, one for each of {found}"
            raise ConfigError("names", wanted, list(names))


def _with_keys(collate: Callable[..., Any]) -> Callable[..., Any]:
    """Give a collate function that takes samples and keys, whatever the user's takes.

    A second parameter with a default is an option of the user's: keys are not for it.
    """
    try:
        parameters = list(inspect.signature(collate).parameters.values())[:2]
    except (TypeError, ValueError):
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters) or (
        len(parameters) == 2
        and parameters[1].kind in positional
        and parameters[1].default is inspect.Parameter.empty
    ):
        return collate
    return lambda samples, keys: collate(samples)
