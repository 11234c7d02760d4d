"""Whether an array is one of numpy's masked arrays."""

from __future__ import annotations

import sys
from typing import Any


def is_masked_array(value: Any) -> bool:
    """Whether a value is a masked array, whatever its mask.

    A program that has not imported `numpy.ma` has none of them, and importing it to ask would
    hold up its first batch by some 100 ms.
    """
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)
