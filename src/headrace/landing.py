"""The last leg of a batch: onto its device, through the user's transform."""

from __future__ import annotations

import torch

from headrace.batch import Batch
from headrace.build.builder import Transform, with_result
from headrace.build.content import content_digest
from headrace.errors import ConfigError
from headrace.stats import LandingTimes

# They need no accelerator: the host, and shapes without memory.
_ALWAYS_THERE = ("cpu", "meta")


def as_device(given: torch.device | str | int) -> torch.device:
    """Give the device that batches land on, checked without starting its runtime.

    Raises:
        ConfigError: torch knows no such device, or it is not there.
    """
    if isinstance(given, bool) or not isinstance(given, torch.device | str | int):
        raise ConfigError("device", "a torch.device, its name or its number", given)
    try:
        device = torch.device(given)
        if device.type not in _ALWAYS_THERE:
            _check_there(device)
    except (RuntimeError, AssertionError) as error:
        said = str(error).splitlines()[0]
        raise ConfigError("device", "a device of torch that is there", given, said) from error
    return device


def _check_there(device: torch.device) -> None:
    module = torch.get_device_module(device)
    is_available = getattr(module, "is_available", None)
    if is_available is not None and not is_available():
        raise RuntimeError(f"torch.{device.type}.is_available() is False.")
    count = getattr(module, "device_count", None)
    if device.index is not None and count is not None and device.index >= count():
        raise RuntimeError(f"torch.{device.type}.device_count() is {count()}.")


class Landing:
    """Says where transform and content digest run, and runs them where that is not a reader.

    A batch for the host lands on a reader thread, which does all of it. A batch for another
    device is copied by a blocking copy on the consumer's thread, then transformed there.

    Args:
        device: Where batches land.
        transform: The user's `transform=`.
        with_content: Whether what is delivered is hashed.

    Attributes:
        times: What copies and transforms took here.
    """

    def __init__(
        self, device: torch.device, transform: Transform | None, with_content: bool
    ) -> None:
        self.device = device
        self.is_host = device.type == "cpu"
        self.with_content = with_content
        self._transform = transform
        self.times = LandingTimes()

    @property
    def host_transform(self) -> Transform | None:
        """The transform that readers run."""
        return self._transform if self.is_host else None

    @property
    def hashes_on_host(self) -> bool:
        """Whether readers hash what they build."""
        return self.with_content and self.is_host

    def land(self, batch: Batch) -> Batch:
        """Give a built batch as the consumer gets it; a host batch is that already."""
        if self.is_host:
            return batch
        began = self.times.clock()
        landed = batch.to(self.device)
        copied = self.times.clock()
        if self._transform is not None:
            assert batch.pick_keys is not None
            landed = with_result(landed, self._transform(landed, batch.pick_keys))
        self.times.add(began, copied)
        return landed

    def digest(self, batch: Batch) -> int:
        """Hash a landed batch, 0 where not asked for."""
        if not self.with_content:
            return 0
        assert batch.pick_keys is not None
        return content_digest(batch, batch.pick_keys.slot)
