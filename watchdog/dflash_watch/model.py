"""What the watchdog concludes: the records every later stage reads and nobody changes.

Pure data: no input or output, no time, no torch, no textual. Moments (`t`, `*_t`) are wall-clock
seconds of the watched host; durations end in `_s`. A value of None means "not known", never zero.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """The one word for a run."""

    RUNNING = "running"
    SLOW = "slow"
    QUIET = "quiet"
    INITIALISING = "initialising"
    STALLED = "stalled"
    CRASHED = "crashed"
    FINISHED = "finished"
    BLIND = "blind"


VERDICT_MEANINGS = {
    Verdict.RUNNING: "steps go on within their learned limit",
    Verdict.SLOW: "steps go on, clearly below the baseline or with idle hardware",
    Verdict.QUIET: "silent in a phase that ends, or no step but work goes on",
    Verdict.INITIALISING: "no first step yet, and work is seen",
    Verdict.STALLED: "alive, no progress, will not recover by itself",
    Verdict.CRASHED: "ended in an error, or certain to",
    Verdict.FINISHED: "ended well",
    Verdict.BLIND: "the view is what failed: nothing is claimed about the run",
}
"""What each word says of a run, in one clause."""


class Severity(StrEnum):
    """How bad."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Confidence(StrEnum):
    """How sure."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class EvidenceKind(StrEnum):
    """What a piece of evidence does to a conclusion."""

    FOR = "for"
    AGAINST = "against"
    MISSING = "missing"


class Source(StrEnum):
    """Where evidence was seen."""

    STACKS = "stacks"
    LOG = "log"
    GPU = "gpu"
    PROCESS = "process"
    BEATS = "beats"
    EVENTS = "events"
    HOST = "host"
    LINK = "link"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records: immutable, named fields only."""


class Evidence(Record, frozen=True, kw_only=True):
    """One observed fact and what it says about the conclusion."""

    kind: EvidenceKind
    text: str
    source: Source


class Symptom(Record, frozen=True, kw_only=True):
    """Something observably wrong with one subject."""

    name: str
    """File name of the detector, stamped by the runner of detectors."""
    subject: str
    """`run`, a worker (`target-1`), `gpu0`, `host`, `link`, a log path."""
    severity: Severity
    since_t: float
    """When it became true, not when it was noticed."""
    summary: str
    """Observed and limit, one line."""
    source: Source
    evidence: tuple[Evidence, ...] = ()
    starts: bool = True
    """False between the clear and the raise bound: keeps an incident alive, never opens one."""
    order: int = 0
    """Line of the log in which it stands first; of two equal causes the earlier one counts."""
    next: tuple[str, ...] = ()
    """Steps that this very observation calls for; they come before the playbook's."""


class Inconclusive(Record, frozen=True, kw_only=True):
    """A detector that could not decide: which input is missing."""

    name: str
    subject: str
    missing: str


class Candidate(Record, frozen=True, kw_only=True):
    """A failure that might explain the symptoms."""

    failure: str
    score: float
    """0..1; the ranking, not a probability."""
    subject: str = "run"


class Limit(Record, frozen=True, kw_only=True):
    """How long silence may last now, and how that was arrived at."""

    seconds: float
    why: str


ASKED = "asked"
"""Label of a stack sample that a person asked for."""


class StackRequest(Record, frozen=True, kw_only=True):
    """A stack sample the engine wants taken; the live loop takes it."""

    label: str
    """`census` (healthy, thread names), `A` (suspicion), `B`, `C` (confirmation), ASKED."""
    pid: int
    reason: str
    native: bool = False
    """C frames too: stops the process meanwhile; only a person asks for that."""


class IncidentStage(StrEnum):
    """Life of an incident."""

    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"
    RESOLVED = "resolved"


class Incident(Record, frozen=True, kw_only=True):
    """One failure over time. Its folder is written once, when `ready`."""

    key: str
    """`<failure>/<subject>@<opened_t>`: equal for the same thing, so nothing is written twice."""
    failure: str
    subject: str
    verdict: Verdict
    severity: Severity
    stage: IncidentStage
    opened_t: float
    confirmed_t: float | None = None
    resolved_t: float | None = None
    stack_labels: tuple[str, ...] = ()
    """Labels of the stack samples that belong to it, in order."""
    stacks_missing: str | None = None
    """Why there are no stacks (process gone, none needed); None while there are or may be."""
    ready: bool = False
    """All evidence that will come has come: write the folder now."""
    path: str | None = None
    """Folder, once written."""
    acknowledged_t: float | None = None
    """When a person said that they know, on the watcher's clock."""


class Finding(Record, frozen=True, kw_only=True):
    """A line of the findings panel: an edge, dated when it happened."""

    key: str
    opened_t: float
    closed_t: float | None = None
    severity: Severity
    failure: str
    """Failure or symptom name, as in codes.md."""
    subject: str
    text: str


# -- the board: what the dashboard draws --------------------------------------------------------


class GpuRow(Record, frozen=True, kw_only=True):
    """One GPU as drawn; None is "not known" and drawn as a dash."""

    index: int
    name: str | None = None
    role: str | None = None
    """`target`, `drafter`, or None when nobody said."""
    state: str = "ok"
    """`ok`, `lost`, `failed`, `stale` (no answer: values are old)."""
    note: str | None = None
    """What the driver said, or how old the values are."""
    utilization_ratio: float | None = None
    """Share of time any kernel ran, mean over the newest seconds of driver history."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    sm_ratio: float | None = None
    power_history: tuple[float | None, ...] = ()
    """Mean watts per bucket of the plot window, oldest first; None is a gap."""
    marks: tuple[str, ...] = ()
    """Field names outside their own recent band, e.g. `power_watts`."""
    load: str | None = None
    """What it does, read over seconds: `idle`, `work`, `memory-bound`, `host-bound`, `spin`,
    `collective-spin`, `half-idle`, `allocator`; None while that is not known."""
    load_text: str | None = None
    """The same in words, with its figures and what holds the clocks down."""
    clocks: str | None = None
    """Why the clocks are where they are, in words; `none`: nothing holds them down."""


class QueueRow(Record, frozen=True, kw_only=True):
    """The hidden-state queue between targets and drafters."""

    depth: int | None = None
    capacity: int | None = None
    in_per_s: float | None = None
    out_per_s: float | None = None
    trend: str | None = None
    """`steady`, `filling`, `draining`, `FULL`, `EMPTY`."""
    waiting: str | None = None
    """`target waits`, `drafter waits`, or None."""


class WorkerRow(Record, frozen=True, kw_only=True):
    """One worker of the pipeline as its beat slot says."""

    name: str
    role: str
    device: str | None = None
    tid: int | None = None
    phase: str | None = None
    step: int | None = None
    items: int | None = None
    wait: str | None = None
    wait_s: float | None = None
    waits_for: str | None = None
    progress_age_s: float | None = None
    state: str = "running"


class Point(Record, frozen=True, kw_only=True):
    """One sample of the throughput plot; `low`..`high` over its bucket."""

    t: float
    low: float | None
    high: float | None
    mean: float | None = None


class LogView(Record, frozen=True, kw_only=True):
    """The log panel: newest lines, already stripped of control characters."""

    path: str | None = None
    lines: tuple[str, ...] = ()
    silent_s: float | None = None
    note: str | None = None


class Board(Record, frozen=True, kw_only=True):
    """All that is drawn beside the verdict."""

    run_name: str | None = None
    where: str = ""
    """`10.1.2.6 · ct 200`, `this machine`."""
    pid: int | None = None
    run_dir: str | None = None
    phase: str | None = None
    phase_s: float | None = None
    phase_budget_s: float | None = None
    step: int | None = None
    total_steps: int | None = None
    eta_s: float | None = None
    loss: float | None = None
    tokens_per_s: float | None = None
    steps_per_s: float | None = None
    """Only of a run that says no tokens a second."""
    baseline_tokens_per_s: float | None = None
    last_step_age_s: float | None = None
    run_age_s: float | None = None
    gpus: tuple[GpuRow, ...] = ()
    queue: QueueRow | None = None
    workers: tuple[WorkerRow, ...] = ()
    throughput: tuple[Point, ...] = ()
    """Plot window, one point a bucket, oldest first."""
    recent: tuple[Point, ...] = ()
    """The newest five minutes in finer buckets; only those in which something was said."""
    throughput_unit: str = "tok/s"
    """Of `throughput` and `recent`; `steps/s` when the run says no tokens a second."""
    window_s: float = 1800.0
    findings: tuple[Finding, ...] = ()
    """Newest first."""
    log: LogView = LogView()
    host_line: str | None = None
    """Load, memory, disk of the watched host in one short line."""


class Link(Record, frozen=True, kw_only=True):
    """State of the way to the run."""

    state: str = "connecting"
    """`connecting`, `up`, `lost`, `closed`."""
    step: str | None = None
    """While connecting: `resolve`, `ssh`, `container`, `agent`, `first sample`."""
    reason: str | None = None
    since_t: float | None = None
    retry_at_t: float | None = None


class Serving(Record, frozen=True, kw_only=True):
    """The server that handed a snapshot to its viewers."""

    name: str
    """As typed after `dflash-watch attach`."""
    pid: int
    since_t: float
    """When it began to watch, on the watcher's clock."""
    viewers: int = 1


class Snapshot(Record, frozen=True, kw_only=True):
    """Everything known about a run at one moment; what all sinks read."""

    t: float
    """Moment of the newest record, on the watched host's clock."""
    data_t: float | None = None
    """Moment of the newest frame; the data age is now minus this."""
    received_t: float | None = None
    """When that frame arrived, on the watcher's clock."""
    run: str
    verdict: Verdict
    since_t: float
    """Since when the verdict holds, dated when it became true."""
    last_verdict: Verdict | None = None
    """What held before the view was lost; only while blind."""
    failure: str
    subject: str = "run"
    severity: Severity = Severity.INFO
    confidence: Confidence = Confidence.LOW
    summary: str
    """One sentence a person can act on."""
    evidence: tuple[Evidence, ...] = ()
    explains: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    limit: Limit | None = None
    views: dict[str, str] = msgspec.field(default_factory=dict)
    """source -> `ok`, `gap: why`, `none: why`."""
    next: tuple[str, ...] = ()
    playbook: str | None = None
    incident: Incident | None = None
    """The open incident, or the one resolved last."""
    wants: tuple[StackRequest, ...] = ()
    stacks_path: str | None = None
    """Where the newest sample that a person asked for is, or why it is not kept."""
    stacks_way: tuple[str, ...] = ()
    """How the newest stack sample was taken, and which better ways were passed over."""
    symptoms: tuple[Symptom, ...] = ()
    inconclusive: tuple[Inconclusive, ...] = ()
    link: Link = Link()
    board: Board = Board()
    serving: Serving | None = None
    """Whose snapshot it is; None from an engine that belongs to one dashboard or to no one."""

    @property
    def names_failure(self) -> bool:
        """Is there a failure to name? An unknown that worries nobody is none."""
        is_calm = self.failure == "unknown" and self.severity is Severity.INFO
        return self.failure != "healthy" and not is_calm


class RunOptions(Record, frozen=True, kw_only=True):
    """What the person said about the run; part of every capture so that replay knows it too."""

    name: str | None = None
    roles: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """role -> GPU indices, from `--roles target=0-4,drafter=5-7`."""
    expect_tokens_per_s: float | None = None
    watched_log: str | None = None
    where: str = "this machine"
