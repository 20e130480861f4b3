"""Announces what the autotuner does, where there is one."""

from __future__ import annotations

import importlib.util
import logging

from dflash_events import RunWriter

logger = logging.getLogger(__name__)


def announce_tuning(writer: RunWriter) -> bool:
    """Have Triton (3.8 and newer) report each kernel it has tuned.

    Returns:
        False where there is nothing to listen to.
    """
    if importlib.util.find_spec("triton") is None:
        return False
    from triton import knobs  # noqa: PLC0415  (optional)

    if not hasattr(getattr(knobs, "autotuning", None), "listener"):
        return False

    def on_tuned(*, fn: object, key: object, duration: float, cache_hit: bool, **_: object) -> None:
        name = getattr(fn, "__name__", str(fn))
        if not cache_hit:
            logger.info("tuned kernel %s for %s in %.1f s", name, key, duration)
        writer.autotune(name, key=str(key), edge="end")

    knobs.autotuning.listener = on_tuned
    return True
