"""What decides the next epoch of a foreign sampler, read and written as text."""

from __future__ import annotations

import base64
import json
from typing import Any, Protocol

from headrace.errors import ConfigError


class EpochStart(Protocol):
    """Something that changes with each epoch that is drawn, and can be put back."""

    def read(self) -> str:
        """Give it as text."""
        ...

    def write(self, text: str) -> None:
        """Go back to what `read` gave."""
        ...


class GeneratorStart:
    """The state of a torch generator, in base64; about 7 KB."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def read(self) -> str:
        state: bytes = self._generator.get_state().numpy().tobytes()
        return base64.b64encode(state).decode()

    def write(self, text: str) -> None:
        import torch

        state = bytearray(base64.b64decode(text, validate=True))
        self._generator.set_state(torch.frombuffer(state, dtype=torch.uint8))


class StatefulStart:
    """The state of a sampler with `state_dict` and `load_state_dict`, as JSON."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def read(self) -> str:
        state = self._sampler.state_dict()
        try:
            return json.dumps(state)
        except (TypeError, ValueError) as error:
            wanted = f"plain JSON from state_dict of {type(self._sampler).__name__}"
            raise ConfigError("sampler", wanted, state) from error

    def write(self, text: str) -> None:
        self._sampler.load_state_dict(json.loads(text))


def generators_of(parts: list[Any]) -> list[EpochStart]:
    """Give the generators of their own that some samplers have."""
    generators = [getattr(part, "generator", None) for part in parts]
    return [GeneratorStart(generator) for generator in generators if generator is not None]


def states_of(parts: list[Any]) -> list[EpochStart]:
    """Give the states of those samplers that have one."""
    return [
        StatefulStart(part)
        for part in parts
        if hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
    ]
