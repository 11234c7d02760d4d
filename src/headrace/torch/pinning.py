"""Pinned memory, where there is an accelerator that copies from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from headrace.torch.users_line import warn_at_users_line


def pinning(wanted: bool, device: str) -> Callable[[Any], Any] | None:
    """Give what pins a batch, keeping its types; None where it is left as it is.

    Args:
        wanted: The argument `pin_memory`.
        device: The argument `pin_memory_device`, which torch no longer follows either.
    """
    if not wanted:
        return None
    if device:
        warn_at_users_line(
            f"pin_memory_device={device!r} is ignored: memory is pinned for the current "
            "accelerator. Leave it out."
        )
    if not torch.accelerator.is_available():
        warn_at_users_line("pin_memory=True changes nothing: there is no accelerator.")
        return None
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None and accelerator.type == "mps":
        warn_at_users_line("pin_memory=True changes nothing: MPS has no pinned memory.")
        return None
    return _Pin(_of_device("current_device")())


class _Pin:
    """Pins for the device that was current where the pass began, on whatever thread."""

    def __init__(self, device_index: int) -> None:
        self._device_index = device_index

    def __call__(self, data: Any) -> Any:
        if _of_device("current_device")() != self._device_index:
            _of_device("set_device")(self._device_index)
        return pin_memory(data)  # type: ignore[no-untyped-call]


def _of_device(name: str) -> Callable[..., Any]:
    """Give one of torch's functions for the current device: torch 2.6 has `idx` for `index`."""
    accelerator: Any = torch.accelerator
    found: Callable[..., Any]
    found = getattr(accelerator, f"{name}_index", None) or getattr(accelerator, f"{name}_idx")
    return found
