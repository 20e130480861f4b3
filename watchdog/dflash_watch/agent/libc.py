"""The C library as far as there is one to call: a static Python has none, musl lacks some calls."""

from __future__ import annotations

import ctypes
from typing import Any, Optional


def function(name: str) -> Optional[Any]:
    """A function of the C library that runs this Python; None where it cannot be reached."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
