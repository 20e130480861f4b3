"""What a log says, as records: the output of `logtext.LogReader`.

Every fact carries the moment it was written, as well as that can be known: for text that was there
before anybody looked (`backlog`) that is the file's last change, a latest possible moment.
"""

from __future__ import annotations

import msgspec


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A text that proves or suggests a failure: `[[signature]]` of a playbook."""

    failure: str
    pattern: str
    """Regular expression, searched in a line, or in a whole traceback when `multiline`."""
    meaning: str = ""
    where: str = "log"
    """`log` anywhere, `end` the newest lines of the log together, `stacks` one thread's frames."""
    multiline: bool = False
    weak: bool = False
    """Counts only for pasted evidence: a living run is looked at again instead."""
    grave: bool = True
    """Does its failure stop a run? Of the playbook's own severity."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Base: when and in which log."""

    t: float
    """Wall clock of the watched host, seconds."""
    path: str
    backlog: bool = False
    """Read in the first look at this log: it proves that it happened, not that it happens now."""
    line: int = 0
    """Lines of this log read before it: what stands earlier is nearer to the cause."""


class LineSeen(Fact, frozen=True, kw_only=True, tag_field="kind", tag="line"):
    """One whole line, control characters removed, at most `logtext.LINE_LIMIT` characters."""

    text: str


class StepSeen(Fact, frozen=True, kw_only=True, tag_field="kind", tag="step"):
    """A number that counts work went up (or was seen for the first time).

    Reported only when it moved: the same number again is not progress. `restarted` says that it
    went down: a new epoch, an evaluation loop, or a new run in the same file.
    """

    value: float
    """What moved; compare only within one `series`."""
    step: int | None = None
    """The same as a step number; None when the line counts epochs or something unnamed."""
    total: int | None = None
    epoch: float | None = None
    tokens_per_s: float | None = None
    steps_per_s: float | None = None
    """As a bar says it; its steps may be batches."""
    loss: float | None = None
    fmt: str = "learned"
    """`bar` (tqdm and its kind), `dict` (HF Trainer), `words` (`step 100`, `iter 7`), `learned`."""
    series: str = ""
    """Which counter: the bar's name, the word, or the line's shape."""
    rank: int | None = None
    phase: str = "training"
    """`evaluating` for a bar that counts an evaluation or a sanity check, `checkpointing` for one
    that counts what is written."""
    restarted: bool = False
    text: str = ""


class NumbersSeen(Fact, frozen=True, kw_only=True, tag_field="kind", tag="numbers"):
    """Loss or gradient norm that is not a finite number, as written."""

    what: str
    value: str
    step: int | None = None
    text: str = ""


class TracebackSeen(Fact, frozen=True, kw_only=True, tag_field="kind", tag="traceback"):
    """An exception, whole or cut, put together from its lines.

    Told again, longer, when more of the same arrives later (a chained exception).
    """

    subject: str
    """`target-2`, `rank-1`, a thread's or process's name, `main` (its outermost frame is the
    script), `unknown` when nothing names it."""
    exception: str
    """Type without module: `OutOfMemoryError`; `unknown` while only the heading was seen."""
    message: str = ""
    text: str = ""
    thread: str | None = None
    rank: int | None = None
    mixed: bool = False
    """Another thread printed into it: who raised what of them is not certain."""
    fatal: bool = True
    """False when the text itself says that it was caught and work goes on."""


class SignatureSeen(Fact, frozen=True, kw_only=True, tag_field="kind", tag="signature"):
    """Text of a playbook's signature."""

    failure: str
    subject: str
    """As in `TracebackSeen`; `run` for a plain line that names nobody."""
    text: str
    """The line that matched."""
    meaning: str = ""
    grave: bool = True
    """As in `Signature`."""


class DoneSeen(Fact, frozen=True, kw_only=True, tag_field="kind", tag="done"):
    """The run says that it is over, in its own words."""

    how: str
    """`words`, `saved` (final model written), `bar` (the largest bar is full; weak: the bar of an
    epoch is full each time, and steps after it take it back), `bare` (the one word "done" of nobody
    knows what: believed after the last of a known number of steps, of a process that is gone)."""
    text: str


class LoadingSeen(Fact, frozen=True, kw_only=True, tag_field="kind", tag="loading"):
    """Work before the first step: weights, data, models."""

    what: str
    """`Loading weights`, `target-1 on cuda:1`."""
    done: int | None = None
    total: int | None = None
    subject: str | None = None
    """`target-1` when a line or the heading above a bar names it."""
    device: str | None = None
    took_s: float | None = None
    """From a `Loaded in 7.2s` line."""
    finished: bool = False
    text: str = ""


class PhaseSeen(Fact, frozen=True, kw_only=True, tag_field="kind", tag="phase"):
    """A line that announces or ends a finite phase."""

    name: str
    """`compiling`, `tuning`, `evaluating`, `checkpointing`, `training`."""
    edge: str = "begin"
    text: str = ""


class RepeatSeen(Fact, frozen=True, kw_only=True, tag_field="kind", tag="repeat"):
    """The same line again, no number in it moving apart from its time stamp: not progress.

    Reported at the 3rd, 10th, 30th, 100th, 300th, ... time.
    """

    text: str
    count: int
    every_s: float | None = None
    """Mean distance, from when the lines were read."""


class RewriteSeen(Fact, frozen=True, kw_only=True, tag_field="kind", tag="rewrite"):
    """New bytes, but only a bar rewriting one line: no line end since `since_t`."""

    text: str
    """The line as it stands now."""
    since_t: float
    moved: bool
    """A number in it went up (a `StepSeen` stands beside it)."""


class LogRestarted(Fact, frozen=True, kw_only=True, tag_field="kind", tag="restarted"):
    """Another file, or the same one cut to nothing: what was learned of partial lines is void."""

    reason: str


LogFact = (
    LineSeen
    | StepSeen
    | NumbersSeen
    | TracebackSeen
    | SignatureSeen
    | DoneSeen
    | LoadingSeen
    | PhaseSeen
    | RepeatSeen
    | RewriteSeen
    | LogRestarted
)
