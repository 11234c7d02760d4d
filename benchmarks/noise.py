"""Numbers that look random and are the same on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def noise(stream: int, size_bytes: int) -> NDArray[np.uint8]:
    """Give bytes that are the same under every numpy: raw output of a bit generator is fixed."""
    words = np.random.PCG64(stream).random_raw(-(-size_bytes // 8))
    return np.asarray(words, "<u8").view(np.uint8)[:size_bytes]
