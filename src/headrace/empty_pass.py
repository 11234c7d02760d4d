"""What to say of an epoch without a batch, over which a loop does nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from headrace.samplers.sampler import Sampler

# More arrays than these are rather samples than the columns of some.
_MOST_COLUMNS = 4


def sentence(sampler: Sampler, data: Any) -> str:
    """Say that no epoch of a sampler has a batch, why, and what to change.

    Args:
        sampler: The order.
        data: What the loader was given, since a list may have been meant as columns.
    """
    batch_size = sampler.global_batch_size
    said = (
        f"an epoch of this loader has no batch, so a loop over it does nothing: "
        f"{sampler.num_samples} samples do not fill a batch of {batch_size}. "
        "Pass drop_last=False or a smaller batch_size."
    )
    if _looks_like_columns(data):
        said += (
            f" The data is a {type(data).__name__}, so each of its {len(data)} arrays is one "
            'sample: for columns pass a dict, such as {"x": x, "y": y}.'
        )
    return said


def _looks_like_columns(data: Any) -> bool:
    if not isinstance(data, list | tuple) or not 1 <= len(data) <= _MOST_COLUMNS:
        return False
    if not all(isinstance(part, np.ndarray | torch.Tensor) and part.ndim for part in data):
        return False
    return len({len(part) for part in data}) == 1
