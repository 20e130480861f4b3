"""What a run says about itself, with everything of the wrong kind left out.

Any program may write run.json and events: a step that is a text, a list as a name, a number that no
float can hold. Such a value is missing, as docs/frames.md has it, and never reaches the engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LARGEST = 1e18
"""No moment, count or rate is larger."""
_WHOLE = frozenset({
    "seq", "step", "total_steps", "queue_depth", "queue_capacity", "pid", "start_ticks",
    "native_tid", "index", "code",
})  # fmt: skip
_NUMBERS = frozenset({
    "t", "m", "budget_s", "window_s", "tokens_per_s", "tokens_total", "loss", "lr", "grad_norm",
    "padding_ratio", "acceptance_length", "estimate", "seconds", "bytes", "started_t",
    "expected_tokens_per_s",
})  # fmt: skip
_TEXTS = frozenset({
    "kind", "worker", "name", "role", "device", "gpu_uuid", "edge", "detail", "kernel", "key",
    "exception", "message", "traceback", "reason", "path", "error", "run_id", "boot_id",
})  # fmt: skip


def clean_event(event: Mapping[str, Any], now_t: float, ahead_s: float = 0.0) -> dict[str, Any]:
    """The event with known keys of the right kind only; `t` is always a moment.

    Args:
        event: as it was written.
        now_t: moment of the look; stands in where the event has no moment.
        ahead_s: how far the clock that wrote the event was set ahead since the first look.
    """
    cleaned = _clean(event)
    shares = cleaned.get("wait_shares")
    if shares is not None:
        cleaned["wait_shares"] = _shares(shares)
    t = cleaned.get("t")
    cleaned["t"] = t - ahead_s if t else now_t
    return cleaned


def clean_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """run.json with known keys of the right kind only."""
    cleaned = _clean(manifest)
    process, workers = cleaned.get("process"), cleaned.get("workers")
    cleaned["process"] = _clean(process) if isinstance(process, Mapping) else {}
    listed = workers if isinstance(workers, list) else []
    cleaned["workers"] = [_clean(one) for one in listed if isinstance(one, Mapping)]
    return cleaned


def _clean(told: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if _fits(key, value)}


def _fits(key: str, value: object) -> bool:
    if value is None:
        return True
    if key in _WHOLE:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST
    if key in _NUMBERS:
        return _is_number(value)
    return isinstance(value, str) if key in _TEXTS else True


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < LARGEST and not math.isnan(value)


def _shares(told: object) -> dict[str, dict[str, float]]:
    """`{worker: {reason: 0..1}}`."""
    workers = told if isinstance(told, Mapping) else {}
    return {
        worker: {reason: float(share) for reason, share in shares.items() if _is_number(share)}
        for worker, shares in workers.items()
        if isinstance(shares, Mapping)
    }
