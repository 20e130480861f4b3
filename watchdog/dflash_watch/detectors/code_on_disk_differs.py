"""The source files on disk are not what the run loaded.

Sees:       hashes of what was loaded, told in run.json, against the files now; of other runs the
            files beside the script that were written after it began.
Means:      the run goes on with what it loaded; a change made meanwhile is not in it.
Wrong when: a module that is imported later, or a file that the run does not use.
Source:     docs/run-directory.md, "sources"; docs/frames.md, CodeSample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames
from dflash_watch.frame import CodeFile, CodeSample
from dflash_watch.model import Evidence, EvidenceKind, Severity, Source
from dflash_watch.units import duration

SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """The newest check."""
    code, at_t = view.window.code, view.window.code_t
    if code is None or not code.changed:
        return
    names = [PurePosixPath(one.path).name for one in code.changed[:SHOWN]]
    more = code.num_changed - len(names)
    text = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    ages = [one.age_s for one in code.changed if one.age_s is not None]
    written = f", last written {duration(view.now_t - at_t + min(ages))} ago" if ages else ""
    if code.how == "hashes":
        text += f" on disk {'is' if code.num_changed == 1 else 'are'} not what it loaded"
    else:
        text += " changed after it began"
    text += f" ({code.num_changed} of {code.num_files} files{written})"
    since_t = min(at_t - min(ages), view.now_t) if ages else at_t
    facts = [
        Evidence(kind=EvidenceKind.FOR, text=f"{one.path}: {one.change}", source=Source.PROCESS)
        for one in code.changed[:SHOWN]
    ]
    yield symptom("run", Severity.INFO, since_t, text, Source.PROCESS, *facts)


def _run(*changed: CodeFile) -> Example:
    code = CodeSample(how="hashes", num_files=60, num_changed=len(changed), changed=changed)
    return example(frames(2, code=code), subject="run" if changed else None)


def firing() -> Example:
    """One file was copied in later."""
    return _run(CodeFile(path="/w/train.py", change="differs", age_s=12.0))


def clear() -> Example:
    """All as it was."""
    return _run()


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
