"""Which verdicts pasted evidence leaves open, the likeliest first.

What a person observed decides; without it the evidence itself has to: a log that ends in an error,
a dump that only a living process gives, counters that still move.
"""

from __future__ import annotations

import re

from dflash_watch.engine import Engine
from dflash_watch.model import Symptom, Verdict
from dflash_watch.pasted.echoes import first_own_error
from dflash_watch.pasted.evidence import Evidence
from dflash_watch.pasted.interrupt import INTERRUPTS, is_interrupted
from dflash_watch.readers.facts import TracebackSeen

V = Verdict
YOUNG_S = 300.0
"""Silence below which a run that was seen to step is only quiet."""
FRESH_LINES = 25
"""A step so near the end of the log is its newest word."""
OUTLIVED = 3
"""Steps after an error that make it no end: a bar that is closed prints its last one again."""
FAR_FROM_END = 400
"""Lines after an error that are too many for it to have been the end."""
ENDS = frozenset({"worker-failed", "main-process-zombie", "exit-recorded", "gpu-memory-unowned"})
CAUSES = ("logged-", "log-end-", "stacked-", "allocation-", "memory-kill", "driver-", "storage-")
"""Beginnings of symptoms that tell why a process ended."""
_TROUBLE = re.compile(r"(?i)error|exception|fail|fatal|kill|abort|signal|traceback|panic|terminat")
_LAST_WORDS = re.compile(
    r"(?i)exit ?code|exit status|exited|core dumped"
    r"|(?:^|\])\s*(?:killed|aborted|segmentation fault|bus error)\b"
    r"|terminate called|terminating|fatal (?:python )?error|slurmstepd|childfailederror"
    r"|process group has been shut down|job (?:was )?cancelled|sending process \d+ closing signal"
)


class Outlook:
    """What the evidence says of life and movement, None where it says nothing.

    Args:
        evidence: as given.
        engine: after it took the evidence's records.
        symptoms: all that were found.
    """

    def __init__(self, evidence: Evidence, engine: Engine, symptoms: tuple[Symptom, ...]) -> None:
        self._observed = evidence.observed
        self._logs = engine.window.logs
        self.symptoms = symptoms
        self._names = {one.name for one in symptoms}
        self._has_stacks = bool(evidence.all_stacks)
        self._dumped = bool(evidence.stacks)
        self._listed = evidence.all_processes
        given = (evidence.log, evidence.stacks, evidence.gpus, evidence.all_processes or None)
        self.has_any = any(part is not None for part in given)
        self.steps_seen = engine.progress.first_step_t is not None
        self.alive = self._alive()

    @property
    def steps_advance(self) -> bool:
        """Somebody saw steps go on."""
        return self._observed.steps_advancing is True

    @property
    def seen_alive(self) -> bool | None:
        """Did somebody, or a look at the process itself, see it live? None: nothing tells."""
        observed = self._observed
        if observed.process_alive is not None:
            return observed.process_alive
        if observed.steps_advancing or observed.silent_s is not None or self._dumped:
            return True
        if is_interrupted(self._logs):
            return True
        states = {(one.state or "?")[0] for one in self._listed}
        return True if states & set("DRSTtI") else None

    def _alive(self) -> bool | None:
        if self.seen_alive is not None:
            return self.seen_alive
        if "main-process-zombie" in self._names or self.ends_in_error():
            return False
        return True if self._has_stacks or self.steps_at_end() else None

    def ends_in_error(self) -> bool:
        """Are the log's last words those of an end?"""
        return self.last_words() is not None

    def last_words(self) -> str | None:
        """The error that the log ends in: its exception, else the line that speaks of an end."""
        track = self._logs.main()
        if track is None:
            return None
        last = self._last_raised()
        if last is not None and self._lines() - last.line < FAR_FROM_END:
            own = first_own_error(self._logs) or last
            return f"{own.exception}: {own.message}".strip().rstrip(":")
        ends = [line for line in list(track.lines)[-FRESH_LINES:] if _LAST_WORDS.search(line)]
        return ends[0].strip() if ends else None

    def _last_raised(self) -> TracebackSeen | None:
        raised = self._logs.tracebacks
        fatal = [one for one in raised if one.fatal and one.exception not in INTERRUPTS]
        last = fatal[-1] if fatal else None
        return None if last is None or self._logs.steps_since(last) >= OUTLIVED else last

    def steps_at_end(self) -> bool:
        """Do counters still move in the last lines?"""
        newest = self._logs.newest_step_line()
        return newest is not None and self._lines() - newest < FRESH_LINES

    def _ends_in_step(self) -> bool:
        newest = self._logs.newest_step_line()
        return newest is not None and self._lines() - newest <= 1

    def _lines(self) -> int:
        track = self._logs.main()
        return track.num_lines if track is not None else 0

    @property
    def is_done(self) -> bool:
        """Does the log say that the work is complete?"""
        return self._logs.done is not None and self._logs.done.how in {"words", "saved"}

    def plausible(self) -> tuple[Verdict, ...]:
        """Verdicts that fit, the likeliest first."""
        if self._observed.steps_advancing:
            return V.RUNNING, V.SLOW
        if self.alive is False:
            if self.is_done and not self.ends_in_error():
                return V.FINISHED, V.CRASHED
            return (V.CRASHED, V.BLIND) if self._has_cause() else (V.BLIND,)
        if self._observed.silent_s is not None or self._observed.steps_advancing is False:
            return self._silent()
        if self.alive and (self._has_stacks or is_interrupted(self._logs)):
            return (V.FINISHED, *self._silent()) if self.is_done else self._silent()
        if self.is_done:
            return V.FINISHED, V.CRASHED, V.STALLED, V.BLIND
        if self.steps_at_end():
            moving = V.RUNNING, V.SLOW, V.CRASHED, V.STALLED, V.BLIND
            return moving if self._ends_in_step() else (*moving, V.QUIET)
        return V.CRASHED, V.STALLED, V.BLIND, V.SLOW, V.RUNNING, V.INITIALISING, V.QUIET

    def _has_cause(self) -> bool:
        """Does anything say how it ended? Gone without a word is not seen, not crashed."""
        named = any(name.startswith(CAUSES) for name in self._names)
        return bool(self._names & ENDS) or named or self.has_trouble()

    def has_trouble(self) -> bool:
        """Does any line speak of an error or an end?"""
        track = self._logs.main()
        lines = list(track.lines) if track is not None else []
        return self.ends_in_error() or any(_TROUBLE.search(line) for line in lines)

    def _silent(self) -> tuple[Verdict, ...]:
        first = self._observed.first_step_seen
        if self.is_done:
            return V.FINISHED, V.STALLED, V.BLIND
        if first is False or (first is None and self._starts()):
            return V.INITIALISING, V.STALLED, V.BLIND, V.QUIET
        if (self._observed.silent_s or YOUNG_S) < YOUNG_S:
            return V.QUIET, V.STALLED, V.INITIALISING, V.BLIND
        return V.STALLED, V.BLIND, V.QUIET, V.INITIALISING

    def _starts(self) -> bool:
        """Is there positive evidence of work before the first step?"""
        return not self.steps_seen and bool(self._names & {"phase-loading", "phase-compiling"})
