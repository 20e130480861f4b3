"""Kernel lines and the driver's events about GPUs: those of the run's own cards, each told once."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from dflash_watch.frame import Frame, GpuSample
from dflash_watch.readers.facts import SignatureSeen
from dflash_watch.readers.signatures import Matcher
from dflash_watch.readers.xids import Xid, event_line, parse_xid, words
from dflash_watch.window.gpus import Gpus

KEPT = 50
SAME_S = 30.0
"""An event and a kernel line of the same Xid within so long are one error."""
RECENT_S, MOST_QUOTED = 900.0, 2
"""Lines that are quoted are at most so old and so many."""
_TASK = re.compile(
    r"\btask \S+:(\d{1,10}) blocked|\bpid[= ](\d{1,10})|[Kk]illed process (\d{1,10})"
)
_OF_GPUS = re.compile(r"NVRM|\bS?Xid\b|nvidia|nvswitch|off the bus", re.IGNORECASE)
_OF_THE_BUS = re.compile(r"\bAER\b|pcieport|pciehp")
"""Of any device: only lines that name a card count."""
_STAMP = re.compile(r"\[\s*(\d+\.\d+)\]")
_MEMORY_KILL = re.compile(r"(?i)\boom[-_ ]|out of memory|killed process")
"""Whose process that was, the rule `memory-kill` knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidSeen:
    """An Xid that no playbook has a signature for."""

    t: float
    card: int | None
    """None: no card that is known has that address."""
    xid: Xid


@dataclass(frozen=True, slots=True)
class _Told:
    t: float
    line: str
    card: int | None
    is_event: bool


class KernelLog:
    """What was told, until it can be known whose cards it is about; then signatures in it."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self.lines: list[str] = []
        """Newest ones, of all kinds."""
        self.unnamed: deque[XidSeen] = deque(maxlen=KEPT)
        self._due: list[_Told] = []
        self._seen: deque[str] = deque(maxlen=4 * KEPT)
        self._cards: tuple[GpuSample, ...] | None = None
        self._heard: dict[tuple[int | None, int], tuple[float, bool]] = {}

    def take(self, frame: Frame) -> None:
        """Lines and events of a frame."""
        self.lines.extend(frame.kernel or ())
        del self.lines[:-KEPT]
        self.note(frame.kernel or (), frame.t, frame.boot_s)
        if frame.gpus is self._cards:
            return  # rows of the host stand in several frames
        self._cards = frame.gpus
        for sample in frame.gpus or ():
            for number in sample.xids:
                line = event_line(sample.pci, number)
                self._due.append(_Told(frame.t, line, sample.index, is_event=True))

    def note(self, lines: Sequence[str], t: float, boot_s: float) -> None:
        """Of new kernel lines those about GPUs wait for the search; the host may read them too.

        Args:
            lines: as the kernel wrote them.
            t: moment of the look.
            boot_s: the same as seconds since boot, which is what lines are stamped with.
        """
        for line in lines:
            is_of_gpus = _OF_GPUS.search(line) or _OF_THE_BUS.search(line)
            if not is_of_gpus or _MEMORY_KILL.search(line) or line in self._seen:
                continue
            self._seen.append(line)
            stamp = _STAMP.match(line)
            line_t = t - (boot_s - float(stamp[1])) if stamp else t
            self._due.append(_Told(min(line_t, t), line, None, is_event=False))

    def quote(
        self, pattern: re.Pattern[str], boot_s: float, pids: Collection[int], host: Sequence[str]
    ) -> list[str]:
        """Newest lines that match, last first; not of others, none of long ago.

        Args:
            pattern: what is looked for.
            boot_s: now.
            pids: processes of the run.
            host: lines of the container's host that are no stranger's.
        """
        own = (line for line in self.lines if not _names_a_stranger(line, pids))
        found = []
        for line in dict.fromkeys([*host, *own]):
            stamp = _STAMP.match(line)
            if pattern.search(line) and stamp and boot_s - float(stamp[1]) <= RECENT_S:
                found.append(line)
        return found[::-1][:MOST_QUOTED]

    def search(
        self, gpus: Gpus, pids: Collection[int], begun_t: float | None
    ) -> Iterator[SignatureSeen]:
        """Signatures in what is due, unless older than the run or about a stranger's card.

        Args:
            gpus: know whose card an address is.
            pids: processes of the run.
            begun_t: when the run began; None is not known.
        """
        for told in self._due:
            card = told.card if told.card is not None else gpus.named_in(told.line)
            if begun_t is not None and told.t < begun_t:
                continue
            if card is None and not _OF_GPUS.search(told.line):
                continue
            if card is not None and not gpus.is_used(card, pids):
                continue
            yield from self._facts(told, card)
        self._due.clear()

    def _facts(self, told: _Told, card: int | None) -> Iterator[SignatureSeen]:
        xid = parse_xid(told.line)
        if xid is not None and not self._is_new(told, card, xid.number):
            return
        matches = self._matcher.in_line(told.line)
        for match in matches:
            meaning = match.signature.meaning if xid is None else words(xid.number)
            yield SignatureSeen(
                t=told.t, path="kernel", text=told.line, meaning=meaning,
                failure=match.signature.failure, subject="run" if card is None else f"gpu{card}",
            )  # fmt: skip
        if xid is not None and not matches:
            self.unnamed.append(XidSeen(t=told.t, card=card, xid=xid))

    def _is_new(self, told: _Told, card: int | None, number: int) -> bool:
        """False when the other source has told it already."""
        heard = self._heard.get((card, number))
        if heard is not None and heard[1] != told.is_event and abs(told.t - heard[0]) <= SAME_S:
            return False
        self._heard[card, number] = (told.t, told.is_event)
        return True


def _names_a_stranger(line: str, pids: Collection[int]) -> bool:
    """Does it name a process, and none of the run's?"""
    found = _TASK.search(line)
    return found is not None and int(next(filter(None, found.groups()))) not in pids
