"""Counters' names that count nothing: settings (`max_steps=1000`) and plans (`from step 500`)."""

from __future__ import annotations

import re

_SETTINGS = frozenset({
    "max", "maximum", "min", "total", "num", "number", "warmup", "up", "save", "saving", "log",
    "logging", "accum", "accumulation", "decay", "per", "every", "each", "from", "until", "n",
    "inference", "sampling", "diffusion", "denoising", "optimization", "optimisation", "anneal",
    "annealing", "cycle",
})  # fmt: skip
_PLURAL_SETTINGS = frozenset({"eval", "evaluation", "test", "val", "valid", "validation"})
_RESUMED = ("resum", "restor", "load")
_PLURAL = re.compile(r"(?i)[a-z_ -]{0,12}?(?:steps|iters|iterations|updates|batches|epochs)")
_LAST_WORDS = re.compile(r"(?:([a-z]{1,20})[_ .-]{1,3})?(?<![a-z])([a-z]{1,20})[_ .-]{1,3}$")


def is_setting(before: str, name: str) -> bool:
    """The counter of this name is a setting or a plan, as what stands before it says.

    Args:
        before: the line up to the name, in small letters, its newest 40 characters are enough.
        name: the counter's own words, e.g. `global_step: 5`.
    """
    if any(word in before.rpartition(",")[2] for word in _RESUMED):
        return True
    plural = _PLURAL.match(name) is not None
    if plural and name[:5].lower() == "train":
        return True
    found = _LAST_WORDS.search(before[-30:]) if before[-1:] in ("_", " ", ".", "-") else None
    if found is None:
        return False
    last = found.group(2)
    if last == "of":
        return found.group(1) in _SETTINGS
    if last in ("train", "training"):
        return plural or found.group(1) in _SETTINGS
    return last in _SETTINGS or (plural and last in _PLURAL_SETTINGS)
