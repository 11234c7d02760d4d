"""The generators of the whole process, which all of its threads draw from."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from headrace.samplers.epoch_starts import EpochStart, GeneratorStart
from headrace.torch.users_line import warn_at_users_line


def process_generators() -> list[EpochStart]:
    """Give the generators of the process: torch's first."""
    return [GeneratorStart(torch.default_generator), PythonStart(), NumpyStart()]


@contextmanager
def kept_from_init() -> Iterator[None]:
    """Put the generators of the process back where `worker_init_fn` has seeded them.

    In torch's worker processes it seeds those of its own process. In threads it would seed the
    training's, and with torch's own recipe to the same numbers in each pass. Nothing else may
    draw meanwhile, so the consumer waits for all threads to be ready.
    """
    generators = process_generators()
    before = [generator.read() for generator in generators]
    yield
    if before == [generator.read() for generator in generators]:
        return
    for generator, text in zip(generators, before, strict=True):
        generator.write(text)
    warn_at_users_line(
        "worker_init_fn seeded generators of the process, which reader threads share with the "
        "training; they were put back. Draw from headrace.torch.get_worker_info().rng, which is "
        "seeded for each batch, or use num_workers=0."
    )


class PythonStart:
    """The generator of the module `random`, which samplers of users shuffle with."""

    def read(self) -> str:
        return json.dumps(random.getstate())

    def write(self, text: str) -> None:
        version, words, gauss = json.loads(text)
        random.setstate((version, tuple(words), gauss))


class NumpyStart:
    """The generator of `numpy.random`."""

    def read(self) -> str:
        legacy: Any = np.random.get_state()
        name, keys, *rest = legacy
        return json.dumps([name, base64.b64encode(keys.tobytes()).decode(), *rest])

    def write(self, text: str) -> None:
        name, keys, *rest = json.loads(text)
        words = np.frombuffer(base64.b64decode(keys, validate=True), np.uint32)
        np.random.set_state((name, words, *rest))
