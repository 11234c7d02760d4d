"""The sampler that a loader's arguments ask for."""

from __future__ import annotations

import logging
from typing import Any

from headrace import config
from headrace.errors import ConfigError
from headrace.samplers.sampler import Sampler
from headrace.samplers.sequential import Sequential
from headrace.samplers.shuffled import Shuffled

logger = logging.getLogger("headrace")


def choose_sampler(
    num_samples: int,
    batch_size: int | None,
    seed: int,
    shuffle: bool,
    drop_last: bool | None,
    sampler: Any,
    augment: int,
) -> Sampler:
    """Give the user's sampler as one of ours, or the one that `shuffle` names.

    Args:
        num_samples: Samples of the dataset.
        batch_size: Rows of a batch; None where the sampler brings its own.
        seed: Seed of the loader.
        shuffle: Keyed order, else sequential. Not asked where a sampler is given.
        drop_last: None for as `shuffle` says.
        sampler: A headrace sampler, a torch Sampler or BatchSampler, or None.
        augment: Views of each sample per epoch.

    Raises:
        ConfigError: Knobs are missing or contradict each other.
    """
    augment = max(1, config.integer("augment", augment, 0))
    if batch_size is not None:
        batch_size = config.integer("batch_size", batch_size, 1)
    if sampler is not None:
        if augment > 1:
            raise ConfigError(
                "augment",
                "1 beside a sampler of your own",
                augment,
                "Give the sampler augment=, or let it repeat samples itself.",
            )
        return _own(sampler, num_samples, batch_size, seed, drop_last)
    if batch_size is None:
        raise ConfigError("batch_size", "an int >= 1", None)
    drop = shuffle if drop_last is None else bool(drop_last)
    kind = Shuffled if shuffle else Sequential
    knobs = {"drop_last": drop, "augment": augment}
    if kind is Shuffled:
        return Shuffled(num_samples, batch_size, seed, **knobs)  # type: ignore[arg-type]
    return Sequential(num_samples, batch_size, **knobs)  # type: ignore[arg-type]


def _own(
    sampler: Any, num_samples: int, batch_size: int | None, seed: int, drop_last: bool | None
) -> Sampler:
    if not isinstance(sampler, Sampler):
        # torch is heavy to import and most runs have no torch sampler.
        from headrace.samplers.torch_sampler import TorchBatchSampler, TorchSampler

        own = getattr(sampler, "batch_size", None)
        if batch_size is not None and own is not None and batch_size != own:
            raise _contradicts("batch_size", own, batch_size)
        if batch_size is None or hasattr(sampler, "batch_size"):
            return TorchBatchSampler(sampler, num_samples, seed, batch_size=batch_size)
        drop = bool(drop_last)
        return TorchSampler(sampler, num_samples, batch_size, seed, drop_last=drop)
    if batch_size is not None and batch_size != sampler.global_batch_size:
        raise _contradicts("batch_size", sampler.global_batch_size, batch_size)
    drops = getattr(sampler, "drop_last", drop_last)
    if drop_last is not None and drop_last != drops:
        raise _contradicts("drop_last", drops, drop_last)
    if sampler.num_samples > num_samples:
        raise ConfigError(
            "sampler", f"at most the {num_samples} samples of the data", sampler.num_samples
        )
    if sampler.num_samples < num_samples:
        logger.warning(
            "%s covers samples 0 to %d, but the data has %d: the others never come. Make the "
            "sampler for all of them, or hand over Subset(data, range(%d)) if this is meant.",
            type(sampler).__name__,
            sampler.num_samples - 1,
            num_samples,
            sampler.num_samples,
        )
    return sampler


def _contradicts(knob: str, own: object, given: object) -> ConfigError:
    return ConfigError(
        knob, f"{own}, as the sampler has", given, "Leave it out beside a sampler that has one."
    )
