"""The run directory: what a trainer promises to whoever looks at it from outside.

Standard library only, Python 3.8 or newer: the reading half travels to the watched machine. Names
of the writing half are loaded on first use, so that a reader never imports a writer. See
docs/run-directory.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dflash_events.schema import RunDirError

if TYPE_CHECKING:
    from dflash_events.worker import Worker
    from dflash_events.writer import RunWriter

__version__ = "0.1.0"
__all__ = ["RunDirError", "RunWriter", "Worker", "__version__"]

_WRITING = {"RunWriter": "dflash_events.writer", "Worker": "dflash_events.worker"}


def __getattr__(name: str) -> object:
    if name not in _WRITING:
        raise AttributeError(f"module 'dflash_events' has no attribute {name!r}")
    return getattr(importlib.import_module(_WRITING[name]), name)
