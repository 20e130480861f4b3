"""Detectors: one symptom a file, found by walking this package, named after their files."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache

import msgspec

from dflash_watch.detectors.base import Answer, Detector, View
from dflash_watch.model import Inconclusive, Severity, Source, Symptom

NOT_DETECTORS = frozenset(
    {"base", "examples", "finite", "idle", "queue_waits", "ranks", "shortages", "stuck"}
)


@cache
def catalogue() -> Mapping[str, Detector]:
    """Symptom name -> its detector.

    Raises:
        TypeError: a module of this package has no `DETECTOR`.
    """
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name in NOT_DETECTORS:
            continue
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        detector = getattr(loaded, "DETECTOR", None)
        if not isinstance(detector, Detector):
            raise TypeError(f"{loaded.__name__}: no DETECTOR")
        found[module.name.replace("_", "-")] = detector
    return found


def run_all(view: View) -> tuple[tuple[Symptom, ...], tuple[Inconclusive, ...]]:
    """Ask every detector; one that fails is itself a symptom and stops nothing."""
    answers = [answer for name, one in catalogue().items() for answer in _ask(name, one, view)]
    symptoms = tuple(one for one in answers if isinstance(one, Symptom))
    return symptoms, tuple(one for one in answers if isinstance(one, Inconclusive))


def _ask(name: str, detector: Detector, view: View) -> Iterator[Answer]:
    try:
        for answer in detector.detect(view, detector.params):
            stamp = answer.name if detector.names_many and answer.name else name
            yield msgspec.structs.replace(answer, name=stamp)
    except Exception as error:  # noqa: BLE001 - one rule must not stop the cycle
        reason = f"rule failed: {type(error).__name__}: {error}"
        yield Inconclusive(name=name, subject="run", missing=reason)
        yield Symptom(
            name="rule-failed", subject=name, severity=Severity.WARNING, since_t=view.now_t,
            summary=reason, source=Source.PROCESS, starts=False,
        )  # fmt: skip
