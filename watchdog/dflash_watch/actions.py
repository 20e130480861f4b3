"""What the watchdog does to the world: the only module that changes anything.

Two things: stack samples of the watched process (reading, never stopping it) and the person's own
hook. Both are bounded in number, noted in the journal, and left out while nothing can be seen.
`--dry-run` says what would have been done and does nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from dflash_watch.clock import Clock
from dflash_watch.frame import StackSample
from dflash_watch.hook import Hook, HookResult, HookRun, hook_environment
from dflash_watch.incidents import DAMPING_S
from dflash_watch.journal import Note
from dflash_watch.model import ASKED, Incident, IncidentStage, Snapshot, StackRequest, Verdict
from dflash_watch.rates import HOUR_S, Bucket, Hourly

logger = logging.getLogger(__name__)
ANSWER_LIMIT_S = 30.0
DRY_RUN = "not taken: --dry-run"
HOOK_VERDICTS = (Verdict.STALLED, Verdict.CRASHED)
HOOKS_AN_HOUR = 10
STALE_S = 10.0
SAMPLES, SAMPLE_EVERY_S = 40, 60.0
"""Of one process: so many at once, then one a minute. A person may ask for any number."""
LEFT_BEHIND = ("left stopped", "still traces", "since the sample: continue it")
"""Of what a sample tells, that which a person must hear at once."""
FOR_SUSPICIONS, FOR_INCIDENTS = 12, 6
"""Samples that the names of threads, and suspicions that came to nothing, leave for later."""


class StackSource(Protocol):
    """Whoever can take a stack sample."""

    def request_stacks(self, pid: int, label: str, *, native: bool = False) -> None:
        """Ask; the sample arrives as a record."""


class Told:
    """Incidents that the hook was run for, over restarts of the watcher.

    Args:
        entries: of the journal, oldest first; only those of `host` count.
        host: the way to the run.
        now_t: this machine's clock.
    """

    def __init__(
        self, entries: Iterable[Mapping[str, Any]] = (), host: str = "", now_t: float = 0.0
    ) -> None:
        self._before: deque[str] = deque(maxlen=200)
        self._own: deque[str] = deque(maxlen=200)
        self.ages_s: list[float] = []
        """Of the runs of the hook in the last hour."""
        for one in entries:
            if (one.get("action"), one.get("outcome"), one.get("host")) != (
                "hook", "started", host,
            ):  # fmt: skip
                continue
            self._before.append(str(one.get("incident", "")))
            t = one.get("t")
            if isinstance(t, int | float) and 0 <= now_t - t < HOUR_S:
                self.ages_s.append(now_t - t)

    def add(self, key: str) -> None:
        """It was told by this watcher."""
        self._own.append(key)

    def __contains__(self, key: str) -> bool:
        """Was this incident told, or, by an earlier watcher, the same dated a little otherwise?"""
        return key in self._own or any(_is_same(key, told) for told in self._before)


def _is_same(key: str, told: str) -> bool:
    """A watcher that was restarted may date what it finds a little later or earlier."""
    what, _, when = key.rpartition("@")
    before, _, then = told.rpartition("@")
    if key == told or what != before or not what:
        return key == told
    try:
        return abs(float(when) - float(then)) <= DAMPING_S
    except ValueError:
        return False


class Actions:
    """Does what the engine or a person asks for, and notes it.

    Args:
        stacks: takes stack samples; None when nothing can (a recording).
        note: where it is noted.
        clock: this machine's.
        hook: run once an incident; None for none.
        dry_run: do nothing, note what would have been done.
        told: incidents that the hook was run for before.
        stale_s: what was seen longer ago is no reason to do anything now.
    """

    def __init__(
        self,
        stacks: StackSource | None,
        note: Note,
        clock: Clock,
        *,
        hook: Hook | None = None,
        dry_run: bool = False,
        told: Told | None = None,
        stale_s: float = STALE_S,
    ) -> None:
        self._stacks, self._note, self._clock = stacks, note, clock
        self._hook, self._dry_run, self._stale_s = hook, dry_run, stale_s
        self._asked_s: dict[tuple[int, str], float] = {}
        self._refused: list[tuple[StackRequest, str]] = []
        self._samples: dict[int, Bucket] = {}
        self._told, self._said = told or Told(), set[str]()
        now_s = clock.monotonic_s()
        self._hooks = Hourly(HOOKS_AN_HOUR, (now_s - age_s for age_s in self._told.ages_s))
        self._running: HookRun | None = None

    # -- stacks ----------------------------------------------------------------------------------

    def take_stacks(self, want: StackRequest, snapshot: Snapshot | None = None) -> None:
        """Ask for a sample, unless the same one is still on its way or it must not be taken.

        Args:
            want: of which process, and what for.
            snapshot: what is known now; None when a person asks.
        """
        if self._stacks is None:
            return
        key, now_s = (want.pid, want.label), self._clock.monotonic_s()
        if now_s - self._asked_s.get(key, float("-inf")) < ANSWER_LIMIT_S:
            return
        self._asked_s[key] = now_s
        refusal = DRY_RUN if self._dry_run else self._refusal(want, snapshot, now_s)
        details: dict[str, object] = {"pid": want.pid, "label": want.label, "reason": want.reason}
        details |= {"native": True} if want.native else {}
        if refusal is not None:
            self._refused.append((want, refusal))
            outcome = "dry-run" if self._dry_run else refusal
            self._note_once(f"{want.pid} {outcome}", "stacks", outcome, **details)
            return
        self._note("stacks", "asked", **details)
        self._stacks.request_stacks(want.pid, want.label, native=want.native)

    def _refusal(self, want: StackRequest, snapshot: Snapshot | None, now_s: float) -> str | None:
        if snapshot is None or want.label == ASKED:
            return None
        if (blindness := self.blindness(snapshot)) is not None:
            return f"not taken: {blindness}"
        if len(self._samples) > 1000:  # processes that came and went
            self._samples.clear()
        bucket = self._samples.setdefault(want.pid, Bucket(SAMPLES, SAMPLE_EVERY_S))
        incident = snapshot.incident
        is_open = incident is not None and incident.stage is not IncidentStage.RESOLVED
        reserve = FOR_INCIDENTS if want.label != "census" else FOR_SUSPICIONS
        if bucket.take(now_s, 0 if is_open and want.label != "census" else reserve):
            return None
        return f"not taken: after {SAMPLES} of one process one in {SAMPLE_EVERY_S:.0f} s"

    def blindness(self, snapshot: Snapshot) -> str | None:
        """Why nothing may be done on the strength of this snapshot; None when it may."""
        if snapshot.link.state in ("lost", "closed"):
            return "the connection is lost"
        if snapshot.verdict is Verdict.BLIND:
            return "nothing can be seen"
        if snapshot.received_t is None:
            return None
        age_s = self._clock.wall_s() - snapshot.received_t
        return f"the newest look is {age_s:.0f} s old" if abs(age_s) > self._stale_s else None

    def arrived(self, sample: StackSample) -> None:
        """A sample came: the same one may be asked for again."""
        asked = self._asked_s.pop((sample.pid, sample.label), None) is not None
        for one in (*sample.did, *(sample.note or "").split("; ")):
            if any(words in one for words in LEFT_BEHIND):
                logger.warning("process %d: %s", sample.pid, one)
        if asked and not (sample.error or "").startswith("not taken: "):
            self._note(
                "stacks", sample.error or "taken", pid=sample.pid, label=sample.label,
                tool=sample.tool, mode=sample.mode, took_s=round(sample.duration_s, 4),
                why=sample.note, did=list(sample.did) or None,
            )  # fmt: skip

    def refusals(self, t: float) -> tuple[StackSample, ...]:
        """Samples that were not taken, as the engine should see them."""
        refused, self._refused = self._refused, []
        return tuple(
            StackSample(t=t, pid=want.pid, label=want.label, tool="none", error=why)
            for want, why in refused
        )

    # -- the hook --------------------------------------------------------------------------------

    def announce(self, snapshot: Snapshot) -> None:
        """Run the hook, once an incident; one at a time, in its own thread."""
        incident, hook = snapshot.incident, self._hook
        if hook is None or incident is None or not self._is_news(incident):
            return
        if self.blindness(snapshot) is not None:
            return  # it is run when it can be seen again that it holds
        if self._running is not None and self._running.is_alive():
            return
        self._told.add(incident.key)
        program = hook.argv[0]
        details = {"program": program, "incident": incident.key, "path": incident.path}
        if self._dry_run:
            self._note("hook", "dry-run", **details)
            logger.warning("dry run: would run %s", program)
            return
        if not self._hooks.take(self._clock.monotonic_s()):
            outcome = f"not run: {HOOKS_AN_HOUR} in an hour"
            self._note("hook", outcome, **details)
            logger.warning("on-stall command %s", outcome)
            return
        self._note("hook", "started", **details)
        told = hook_environment(snapshot, incident)
        self._running = HookRun(hook, told, lambda ended: self._ended(ended, details))
        self._running.start()

    def _is_news(self, incident: Incident) -> bool:
        if incident.verdict not in HOOK_VERDICTS or incident.stage is IncidentStage.RESOLVED:
            return False
        return incident.key not in self._told

    def _ended(self, ended: HookResult, details: Mapping[str, object]) -> None:
        said = f": {ended.output.splitlines()[-1][:200]}" if ended.output else ""
        is_well = ended.outcome == "exit 0"
        logger.log(
            logging.INFO if is_well else logging.WARNING,
            "on-stall command: %s%s", ended.outcome, "" if is_well else said,
        )  # fmt: skip
        self._note(
            "hook", ended.outcome, **details, took_s=ended.seconds, output=ended.output or None
        )

    def finish(self) -> None:
        """Let a hook that runs come to its end or to its limit: its run is over, it is not."""
        if self._running is not None and self._hook is not None:
            self._running.join(self._hook.limit_s)

    def close(self) -> None:
        """End a hook that still runs."""
        if self._running is not None:
            self._running.end()

    def _note_once(self, key: str, action: str, outcome: str, **details: object) -> None:
        """What repeats for as long as something lasts is noted when it begins."""
        if key in self._said:
            return
        if len(self._said) > 1000:
            self._said.clear()
        self._said.add(key)
        self._note(action, outcome, **details)
