"""Stacks as other tools print them: py-spy's text and faulthandler's dump become a StackSample.

Each parser takes lines; a new tool is a new parser in `_PARSERS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from dflash_watch.frame import StackFrame, StackSample, ThreadStack

FRAME_LIMIT = 500
"""Frames kept of one thread."""
THREAD_LIMIT = 4096

_SPY_THREAD = re.compile(
    r"^Thread (?P<id>\d+|0x[0-9A-Fa-f]+)(?:/0x[0-9A-Fa-f]+)? \((?P<flags>[\w+, ]{1,40})\)"
    r'(?:: "(?P<name>.*)")?\s*$'
)
_SPY_FRAME = re.compile(r"^\s{2,}(?P<name>\S.*?)(?: \((?P<file>[^()]*?)(?::(?P<line>\d+))?\))?\s*$")
_SPY_PROCESS = re.compile(r"^Process (?P<pid>\d+): ")
_FAULT_THREAD = re.compile(
    r"^(?:Current t|T)hread 0x(?P<id>[0-9a-f]+)(?: \[(?P<name>[^\]]*)\])?"
    r" \(most recent call first\):\s*$"
)
_FAULT_FRAME = re.compile(
    r'^\s+File "(?P<file>[^"]*)"(?:, line (?P<line>\d+))? in (?P<name>.+?)\s*$'
)


def parse_stacks(
    text: str, *, t: float = 0.0, pid: int = 0, label: str = "given"
) -> StackSample | None:
    """The first dump that the text holds, or None when it holds none.

    Args:
        text: py-spy's or faulthandler's output, anything around it allowed.
        t: moment to stamp on it, seconds.
        pid: process, where the text does not say.
        label: label of the sample.
    """
    found = _SPY_PROCESS.search(text) or re.search(r"(?m)^Process (?P<pid>\d+): ", text)
    for tool, parser in _PARSERS:
        threads = tuple(parser(text.splitlines()))
        if threads:
            return StackSample(
                t=t,
                pid=int(found["pid"]) if found else pid,
                label=label,
                tool=tool,
                mode="unknown",
                threads=threads[:THREAD_LIMIT],
                raw=text,
            )
    return None


def _spy(lines: list[str]) -> Iterator[ThreadStack]:
    head: re.Match[str] | None = None
    frames: list[StackFrame] = []
    for line in [*lines, ""]:
        frame = _SPY_FRAME.match(line) if head else None
        if frame and not line.lstrip().startswith(("Arguments:", "Locals:")):
            frames.append(_frame(frame))
            continue
        started = _SPY_THREAD.match(line)
        if head and (started or not line.strip()):
            yield _spy_thread(head, frames)
            head = None
        if started:
            head, frames = started, []


def _spy_thread(head: re.Match[str], frames: list[StackFrame]) -> ThreadStack:
    flags = head["flags"].lower()
    return ThreadStack(
        tid=int(head["id"], 0),
        name=head["name"],
        frames=tuple(frames[:FRAME_LIMIT]),
        active="active" in flags,
        owns_gil="gil" in flags or None,
    )


def _fault(lines: list[str]) -> Iterator[ThreadStack]:
    head: re.Match[str] | None = None
    frames: list[StackFrame] = []
    for line in [*lines, ""]:
        frame = _FAULT_FRAME.match(line) if head else None
        if frame:
            frames.append(_frame(frame))
            continue
        if head:
            yield ThreadStack(
                tid=int(head["id"], 16), name=head["name"], frames=tuple(frames[:FRAME_LIMIT])
            )
        head, frames = _FAULT_THREAD.match(line), []


def _frame(found: re.Match[str]) -> StackFrame:
    return StackFrame(found["name"], found["file"] or "", int(found["line"] or 0))


_PARSERS: tuple[tuple[str, Callable[[list[str]], Iterator[ThreadStack]]], ...] = (
    ("py-spy", _spy),
    ("faulthandler", _fault),
)
