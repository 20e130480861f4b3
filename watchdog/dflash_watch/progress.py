"""Steps, phases and work: does the run get on, and if not, does anything move?

Three different facts: a *step* was made, a *phase* explains silence, *work* moves (CPU ticks, I/O,
SM activity) although no step is seen. GPU utilisation is none of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dflash_watch.activity import busy_compiler, large_loads, large_writes
from dflash_watch.phases import (
    BUDGETS_S,
    Phase,
    build_phase,
    phase_of_stacks,
    told_phase,
)
from dflash_watch.readers.facts import StepSeen
from dflash_watch.window import Window
from dflash_watch.window.speed import StepPace

WORK_WINDOW_S = 3.0
CPU_BELIEVED = 0.03
"""Cores; pollers and tickers stay below."""
IO_BELIEVED = 256 * 1024.0
"""Bytes a second."""
GPU_BELIEVED = 0.01
STACK_FRESH_S = 45.0
STACK_FRESH_BEFORE_STEPS_S = 60.0
STEPPING_S = 5.0
EVALUATION_S = 30.0
"""An evaluation bar that moved so lately explains silence of the steps."""
UNNAMED_MOVES = 3
HELD_S = 12.0
"""A phase known by what the process tree does lasts for so long after the newest sign of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What moves, step or not."""

    cpu_cores: float | None = None
    io_bytes_per_s: float | None = None
    sm_ratio: float | None = None
    moves: bool | None = None
    """None: nothing about work could be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGap:
    """Steps made between two looks: the longest silence among them."""

    phase: str
    longest_s: float
    steps: int
    over_s: float


UNTOLD_S = 10.0
"""Events and beats of a step come with its line in the log, or within so long of it."""
RANKS_APART = 10
"""Steps by which ranks that write one log may differ in one look; a larger fall is a new start."""


class Progress:
    """Follows steps, phases and work of one run."""

    def __init__(self) -> None:
        self.first_step_t: float | None = None
        self.last_step_t: float | None = None
        self.step: int | None = None
        self.total_steps: int | None = None
        self.source: str | None = None
        """What counted last: `events`, `beats`, `log`."""
        self.loss: float | None = None
        self.phase: Phase | None = None
        """A finite phase that explains silence; None in plain training."""
        self.ended: Phase | None = None
        """The phase that the newest record ended."""
        self.work = Work()
        self.usual_cores: float | None = None
        """Cores in use while steps were made."""
        self.still_since_t: float | None = None
        """Since when nothing moves; None while it moves or nothing is known."""
        self.quiet_end_t: float | None = None
        """End of the last finite phase: silence counts from there."""
        self.pace: deque[tuple[float, int]] = deque(maxlen=60)
        """(moment, step), at least five seconds apart."""
        self.steps = StepPace()
        """Steps a second, for a run that says no tokens a second."""
        self._longest_s = 0.0
        self._phase_in_gap: str | None = None
        self._steps = 0
        self._series: dict[str, int] = {}
        self._totals: dict[str, int] = {}
        self._main_series: str | None = None
        self._evaluated_t: float | None = None
        """When a bar that counts an evaluation last moved."""
        self._told_t = 0.0
        """Of the newest step by events or beats."""
        self._sign_t = 0.0
        """When a phase was last seen in stacks, or by what the process tree does."""

    def advance(self, window: Window) -> StepGap | None:
        """Take the newest record; returns what it tells about gaps between steps."""
        before_t, before = self.last_step_t, self.step
        self._take_steps(window)
        self._take_phase(window)
        self._take_work(window)
        gap = None
        if self.last_step_t is not None and before_t is not None and self.last_step_t > before_t:
            gap = self._close_gap(window, before_t, before)
        if self.last_step_t is not None:
            self._longest_s = max(self._longest_s, window.now_t - self.last_step_t)
        return gap

    def _close_gap(self, window: Window, before_t: float, before: int | None) -> StepGap | None:
        now_t = self.last_step_t or before_t
        steps = max((self.step or 0) - (before or 0), 1)
        seconds = max((now_t - before_t) / steps, self._longest_s)
        phase = self._phase_in_gap or "training"
        self._longest_s, self._phase_in_gap = 0.0, None
        self._steps += 1
        hidden = any(end > before_t and begin < now_t for begin, end in window.sight.unseen)
        if hidden or self._steps < 2:
            return None
        return StepGap(phase=phase, longest_s=seconds, steps=steps, over_s=now_t - before_t)

    @property
    def is_counted_out(self) -> bool:
        """The last of a known number of steps was seen."""
        return self.total_steps is not None and (self.step or 0) >= self.total_steps

    # -- steps -----------------------------------------------------------------------------

    def _take_steps(self, window: Window) -> None:
        told = window.told
        if told.steps:
            self._count(*told.steps[-1], "events")
        if told.newest is not None:
            self.total_steps = told.newest.get("total_steps") or self.total_steps
            self.loss = told.newest.get("loss")
        self._take_beats(window)
        for fact in window.logs.fresh:
            if isinstance(fact, StepSeen) and (not window.tells_steps or self._is_untold(fact)):
                self._take_log_step(window, fact)
                if fact.series == self._main_series:
                    self.total_steps = fact.total or self.total_steps
                self.loss = fact.loss if fact.loss is not None else self.loss
        if self.total_steps is None:
            self.total_steps = window.manifest.get("total_steps")

    def _is_untold(self, fact: StepSeen) -> bool:
        """The log goes on with a step that the run's own words should have told by now.

        A full disk under events.jsonl ends events and beats, not the training.
        """
        silent_s = fact.t - self._told_t
        return fact.step is not None and fact.step > (self.step or 0) and silent_s > UNTOLD_S

    def _take_log_step(self, window: Window, fact: StepSeen) -> None:
        """A number in the log moved; an unnamed one is believed when it keeps moving."""
        if fact.phase == "evaluating":
            self._evaluated_t = window.now_t
        if fact.phase != "training":
            return
        if fact.step is not None and self._is_main_series(fact):
            self._count(fact.t, fact.step, "log")
            return
        self._series[fact.series] = moved = self._series.get(fact.series, 0) + 1
        if moved >= UNNAMED_MOVES:
            self._count(fact.t, self.step if self.step is not None else int(fact.value), "log")

    def _is_main_series(self, fact: StepSeen) -> bool:
        """Of several counters the one that goes furthest counts steps; others only show life."""
        known = self._totals.get(self._main_series or "", 0)
        self._totals[fact.series] = fact.total or 0
        if self._main_series is None or (fact.total or 0) > known:
            self._main_series = fact.series
        return fact.series == self._main_series

    def _take_beats(self, window: Window) -> None:
        told = window.told
        if told.beats_t is None:
            return
        workers = told.in_role("drafter") or [
            worker for worker in told.workers.values() if worker.role not in {"main", "loader"}
        ]
        for worker in workers:
            if worker.step is not None and worker.step > 0 and worker.progress_age_s is not None:
                self._count(told.beats_t - worker.progress_age_s, worker.step, "beats")

    def _count(self, t: float, step: int, source: str) -> None:
        if self.first_step_t is None:
            self.first_step_t = t
        last_t, before = self.last_step_t, self.step or 0
        anew = source == "log" and step < before - RANKS_APART  # the log of several starts
        if source != "log":
            self._told_t = max(self._told_t, t)
        if last_t is None or t > last_t or (t == last_t and (step > before or anew)):
            self.last_step_t, self.source = t, source
            if not self.pace or t - self.pace[-1][0] >= 5.0:
                self.pace.append((t, step))
            elif t == self.pace[-1][0]:  # lines that were there already are all read at once
                self.pace[-1] = (t, step)
            self.step = step
            self.steps.take(t, step)

    def last_step_age_s(self, window: Window) -> float | None:
        """Seconds since the last step, whatever passed meanwhile: what people are shown."""
        return None if self.last_step_t is None else max(window.now_t - self.last_step_t, 0.0)

    def age_s(self, window: Window) -> float | None:
        """Seconds of silence that count: unseen spans and finite phases left out."""
        if self.last_step_t is None:
            return None
        from_t = max(self.last_step_t, self.quiet_end_t or 0.0)
        return window.sight.seen_s(from_t, window.data_t)

    def eta_s(self) -> float | None:
        """Seconds to the last step at the pace of the last minutes."""
        if not self.total_steps or len(self.pace) < 2 or self.step is None:
            return None
        (t0, step0), (t1, step1) = self.pace[0], self.pace[-1]
        if t1 <= t0 or step1 <= step0:
            return None
        return max(self.total_steps - self.step, 0) * (t1 - t0) / (step1 - step0)

    # -- phases ----------------------------------------------------------------------------

    def _take_phase(self, window: Window) -> None:
        found = told_phase(window) or self._seen_phase(window)
        self.ended = None
        if self.phase is not None and (found is None or found.name != self.phase.name):
            self.ended = self.phase
            # Signs of it that merely grew old end it when they were seen.
            aged = found is None and self.phase.source in ("stacks", "process")
            stays = aged and not self._stepping(window)
            self.quiet_end_t = self._sign_t if stays else window.now_t
        self.phase = found
        short = [e.get("name") for e in window.fresh_events if e.get("kind") == "phase"]
        for name in [found.name if found else None, *short]:
            if name in BUDGETS_S:
                self._phase_in_gap = name

    def _seen_phase(self, window: Window) -> Phase | None:
        """Phase of a run that says nothing about it, by log lines, stacks and compilers."""
        fact = window.logs.phase
        if fact is not None and fact.name in BUDGETS_S:
            return build_phase(fact.name, fact.t, "log", detail=fact.text)
        if self._stepping(window):
            return None
        if self._evaluated_t is not None and window.now_t - self._evaluated_t < EVALUATION_S:
            return self._since("evaluating", self._evaluated_t, "log")
        sample = window.samples.order[-1] if window.samples.order else None
        fresh_s = STACK_FRESH_BEFORE_STEPS_S if self.first_step_t is None else STACK_FRESH_S
        if sample is not None and window.now_t - sample.t < fresh_s:
            name = phase_of_stacks(sample)
            if name is not None and not (name == "loading" and self.first_step_t is not None):
                self._sign_t = sample.t
                return self._since(name, sample.t, "stacks")
        return self._busy_phase(window) or self._held_phase(window)

    def _busy_phase(self, window: Window) -> Phase | None:
        """Phase by what the process tree is busy with."""
        compiler, loading = busy_compiler(window), window.logs.loading
        if compiler is not None:
            found = self._by_work("compiling", window, compiler)
        elif self.first_step_t is not None:
            found = self._by_work("checkpointing", window, large_writes(window))
        elif loading:
            return self._since("loading", loading[0].t, "log", loading[-1].text)
        else:
            found = self._by_work("loading", window, large_loads(window))
        if found is not None:
            self._sign_t = window.now_t
        return found

    def _by_work(self, name: str, window: Window, seen: str | None) -> Phase | None:
        return self._since(name, window.now_t, "process", seen) if seen is not None else None

    def _held_phase(self, window: Window) -> Phase | None:
        """What it was busy with just now: work comes in bursts."""
        known = self.phase
        if known is None or known.source != "process" or window.now_t - self._sign_t > HELD_S:
            return None
        return known

    def _stepping(self, window: Window) -> bool:
        return self.last_step_t is not None and window.now_t - self.last_step_t < STEPPING_S

    def _since(self, name: str, t: float, source: str, detail: str | None = None) -> Phase:
        if self.phase is not None and self.phase.name == name:
            t = self.phase.since_t
        return build_phase(name, t, source, detail=detail)

    # -- work ------------------------------------------------------------------------------

    def _take_work(self, window: Window) -> None:
        if window.frame is None:
            return
        since = window.frame.boot_s - WORK_WINDOW_S
        cores = window.tracks.cpu_ratio(since, window.ticks_per_s)
        io = window.tracks.io_per_s(since)
        sm = window.gpus.activity(window.frame.t - WORK_WINDOW_S, window.tracks.pids())
        known = [value for value in (cores, io, sm) if value is not None]
        moves = None
        if known:
            moves = (
                (cores or 0.0) >= CPU_BELIEVED
                or (io or 0.0) >= IO_BELIEVED
                or (sm or 0.0) >= GPU_BELIEVED
            )
        if cores is not None and self._stepping(window):
            self.usual_cores = (
                cores if self.usual_cores is None else (0.9 * self.usual_cores + 0.1 * cores)
            )
        self.work = Work(cpu_cores=cores, io_bytes_per_s=io, sm_ratio=sm, moves=moves)
        if moves is False:
            since_t = self.still_since_t or window.frame.t
            # A step is a movement, however little work it takes.
            self.still_since_t = max(since_t, min(self.last_step_t or since_t, window.frame.t))
        else:
            self.still_since_t = None

    def still_s(self, window: Window) -> float:
        """For how long nothing has moved, unseen spans left out."""
        if self.still_since_t is None:
            return 0.0
        return window.sight.seen_s(self.still_since_t, window.data_t)
