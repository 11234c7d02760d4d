"""Digests for fingerprints: long lists as sixteen bytes that are the same on every machine."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray


def digest_of_array(values: NDArray[np.int64]) -> str:
    """Give the hex digest of int64 values, whatever the byte order of the machine."""
    return blake2b(values.astype("<i8", copy=False).tobytes(), digest_size=16).hexdigest()


def digest_of_json(facts: Any) -> str:
    """Give the hex digest of JSON facts."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()
