"""The mean over real positions."""

from __future__ import annotations

from typing import Any

import torch

from headrace.errors import DataError


def masked_mean(values: Any, mask: Any) -> torch.Tensor:
    """Give the mean of the values at which the mask is True, as a 0-d tensor.

    Padded positions count neither above nor below the line, whatever they hold. Gradients pass
    through. Values and mask may be tensors or arrays, on any device.

    Args:
        values: Floating-point numbers, such as the loss of each position.
        mask: bool, of the same shape, or of one that broadcasts with it.

    Raises:
        DataError: The shapes do not broadcast. Or, on the CPU, nothing counts; on an
            accelerator the mean is then NaN, since a look at the mask would wait for it.
    """
    numbers, real = torch.as_tensor(values), torch.as_tensor(mask)
    if real.dtype != torch.bool:
        raise DataError(f"mask: wanted bool, got {real.dtype}. Compare it: mask != 0.")
    if not _broadcast(numbers, real):
        raise DataError(
            f"mask: wanted the shape of the values, {list(numbers.shape)}, or one that broadcasts "
            f"with it, got {list(real.shape)}. Beside several numbers for each position give "
            "mask[..., None]."
        )
    if real.device.type == "cpu" and not bool(real.any()):
        raise DataError(f"mask: no position of {list(real.shape)} counts, so there is no mean.")
    # Not numbers * mask: what is padded may be infinite or no number.
    counted = torch.where(real, numbers, 0)
    return counted.sum() / real.expand_as(counted).sum()


def _broadcast(one: torch.Tensor, other: torch.Tensor) -> bool:
    sizes = zip(reversed(one.shape), reversed(other.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in sizes)
