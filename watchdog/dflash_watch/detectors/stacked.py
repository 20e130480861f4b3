"""A thread stands in a place that is known to mean a failure.

Sees:       signatures of the playbooks (`where = "stacks"`), searched in the newest stack sample.
Means:      what the signature's own `meaning` says, if the thread goes on standing there.
Wrong when: the sample met the place by chance; a verdict of standstill is needed beside it.
Source:     front matter of playbooks, `[[signature]]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, stacks, thread
from dflash_watch.model import Severity, Source
from dflash_watch.window.signs import StackSign


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    fresh_s: float = 60.0
    """An older sample says nothing of now."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """One symptom a failure, with the threads that stand there."""
    seen: dict[str, list[StackSign]] = {}
    for sign in view.window.signs.in_stacks:
        if view.now_t - sign.t <= params.fresh_s:
            seen.setdefault(sign.signature.failure, []).append(sign)
    for failure, found in seen.items():
        first = found[0]
        names = ", ".join(dict.fromkeys(one.thread for one in found))
        text = f"{names} in {first.text}"[:200]
        text += f" ({first.signature.meaning})" if first.signature.meaning else ""
        severity = Severity.WARNING if first.signature.grave else Severity.INFO
        answer = symptom("run", severity, first.t, text, Source.STACKS)
        yield msgspec.structs.replace(answer, name=f"stacked-{failure}")


def firing() -> Example:
    """A thread in the place that the example signature names."""
    return example(frames(2), stacks("A", 1.0, thread(10, "torch/utils/file_baton.py:wait")),
                   subject="run")  # fmt: skip


def clear() -> Example:
    """Plain code."""
    return example(frames(2), stacks("A", 1.0, thread(10, "train.py:step")))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear, names_many=True)
