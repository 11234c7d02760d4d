"""Warnings that point at the user's line, however deep in this package they arise."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path

# What ends a `with` of ours runs in a frame of contextlib.
_OURS = (str(Path(__file__).parent.parent), contextlib.__file__)


def warn_at_users_line(text: str) -> None:
    """Warn at the innermost line outside this package, on the calling thread."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
