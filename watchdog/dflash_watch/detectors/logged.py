"""Text that proves a failure stands in the log or in a worker's traceback.

Sees:       signatures of the playbooks, searched in new lines, tracebacks and failure events.
Means:      what the signature's own `meaning` says; that it happened, not that it still matters.
Wrong when: the text was only quoted, or steps have gone on for long since.
Source:     front matter of playbooks, `[[signature]]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import T0, example, frames
from dflash_watch.model import Evidence, EvidenceKind, Severity, Source
from dflash_watch.readers.facts import SignatureSeen
from dflash_watch.units import clipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    outlived_s: float = 60.0
    """Steps for so long after it: it did not stop the run."""
    outlived_steps: int = 20
    """Or so many steps after it in the same log."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """One symptom a failure; its subjects together."""
    last_t = view.progress.last_step_t
    seen: dict[str, list[SignatureSeen]] = {}
    for fact in view.window.logs.signatures:
        seen.setdefault(fact.failure, []).append(fact)
    for failure, found in seen.items():
        newest = found[-1]
        named = {one.subject for one in found} - {"run", "unknown", "main"}
        subject = ", ".join(sorted(named)) or "run"
        outlived = last_t is not None and last_t > newest.t + params.outlived_s
        outlived = outlived or view.window.logs.steps_since(newest) >= params.outlived_steps
        text = clipped(newest.text) + (f" ({newest.meaning})" if newest.meaning else "")
        source = {"events.jsonl": Source.EVENTS, "kernel": Source.HOST}.get(newest.path, Source.LOG)
        more = [
            Evidence(kind=EvidenceKind.FOR, text=f"the same from {one.subject}", source=source)
            for one in found[:-1]
            if one.subject != newest.subject
        ]
        answer = symptom(
            subject,
            Severity.WARNING if newest.grave else Severity.INFO,
            found[0].t,
            text,
            source,
            *more[:3],
            starts=not outlived,
        )
        yield msgspec.structs.replace(answer, name=f"logged-{failure}", order=found[0].line)


def firing() -> Example:
    """A worker's traceback that carries the signature of the example failure."""
    event = {
        "kind": "worker-failed", "seq": 1, "t": T0, "worker": "target-1", "role": "target",
        "exception": "OutOfMemoryError", "message": "m",
        "traceback": "triton/runtime/autotuner.py in do_bench\nCUDA out of memory",
    }  # fmt: skip
    return example(frames(2, events=(event,)), subject="target-1")


def clear() -> Example:
    """Another exception."""
    event = {
        "kind": "worker-failed", "seq": 1, "t": T0, "worker": "target-1", "role": "target",
        "exception": "ValueError", "message": "m", "traceback": "ValueError: m",
    }  # fmt: skip
    return example(frames(2, events=(event,)))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear, names_many=True)
