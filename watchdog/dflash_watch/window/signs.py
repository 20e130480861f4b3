"""Signatures of the playbooks outside of log lines: in stacks, and in what the log ends with."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dflash_watch.frame import StackSample, ThreadStack
from dflash_watch.readers.facts import Signature
from dflash_watch.readers.signatures import Matcher
from dflash_watch.readers.stacks import label_of, short_file
from dflash_watch.readers.waits import is_helper

END_LINES = 12
"""Newest lines of a log that are its end."""


class StackSign(msgspec.Struct, frozen=True):
    """A signature in one thread's stack."""

    signature: Signature
    thread: str
    text: str
    """The frame that matched."""
    t: float


class Signs:
    """What the newest stack samples show, and what a log ends with."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._stacks, self._end = Matcher(signatures, "stacks"), Matcher(signatures, "end")
        self.in_stacks: tuple[StackSign, ...] = ()
        """Of the newest sample that could be read."""
        self._ended: tuple[str, tuple[Signature, ...]] = ("", ())

    def take(self, sample: StackSample) -> None:
        """Take one stack sample; one without threads says nothing."""
        if sample.threads:
            self.in_stacks = tuple(
                StackSign(match.signature, label_of(thread), match.text, sample.t)
                for thread in sample.threads
                if thread.frames and not is_helper(thread)
                for match in self._stacks.in_text(thread_text(thread))
            )

    def at_end(self, lines: Sequence[str]) -> tuple[Signature, ...]:
        """Signatures of the last lines of a log; read again only when they changed."""
        text = "\n".join(list(lines)[-END_LINES:])
        if text != self._ended[0]:
            found = [*self._end.in_whole(text)]
            found += self._end.in_line(text.rsplit("\n", 1)[-1])
            self._ended = (text, tuple(match.signature for match in found))
        return self._ended[1]


def thread_text(thread: ThreadStack) -> str:
    """One thread as signatures see it: `name (file)` a frame, innermost first."""
    return "\n".join(f"{frame.name} ({short_file(frame.file)})" for frame in thread.frames)
