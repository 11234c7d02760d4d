"""What memory a view keeps alive, and when it is better copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

MOST_TIMES_OWN = 2
"""A view that keeps more than so many times its own bytes is copied."""


def kept_bytes(value: Any) -> int:
    """Give the bytes that an array or a dense tensor keeps alive: all of what it is a view of."""
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        return int(value.nbytes)
    return int(value.untyped_storage().nbytes())


def thrifty(value: Any) -> Any:
    """Give an array or tensor of the same values that keeps at most twice its own bytes.

    What is read ahead is bounded in bytes, and a slice of a large array would keep all of it. A
    tensor that is no dense one of the host, or that a gradient goes through, stays as it is.
    """
    if isinstance(value, torch.Tensor):
        is_plain = value.layout is torch.strided and value.device.type == "cpu"
        if not is_plain or value.requires_grad:
            return value
        own_bytes = value.numel() * value.element_size()
        return value.clone() if kept_bytes(value) > MOST_TIMES_OWN * own_bytes else value
    if isinstance(value, np.ndarray) and kept_bytes(value) > MOST_TIMES_OWN * value.nbytes:
        return value.copy()
    return value
