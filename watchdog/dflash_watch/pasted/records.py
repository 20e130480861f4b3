"""Pasted evidence as the records that the live engine reads: one look, and the stacks given."""

from __future__ import annotations

import msgspec

from dflash_watch.frame import (
    Frame,
    Gap,
    GpuSample,
    Hello,
    LogSample,
    ProcessSample,
    Record,
    RunSample,
    StackSample,
)
from dflash_watch.model import RunOptions
from dflash_watch.pasted.evidence import Evidence, PastedProcess
from dflash_watch.readers.collectivelog import render_ranks

LOG = "log.txt"
FIRST_PID = 1_000_000_000
"""Of processes whose number nobody said."""
MOST_STACKS = 6
"""Samples that reach the engine: it keeps few."""


def build_options(evidence: Evidence) -> RunOptions:
    """What the person said about the run."""
    context = evidence.context
    return RunOptions(
        name="pasted",
        roles={} if context is None else dict(context.roles),
        expect_tokens_per_s=None if context is None else context.expected_tokens_per_s,
        watched_log=LOG if evidence.log is not None else None,
        where="pasted evidence",
    )


def build_records(evidence: Evidence, now_t: float) -> list[Record]:
    """The records, in the order in which an agent would have sent them.

    Args:
        evidence: what was given; what was not becomes a gap with its reason.
        now_t: moment of the look, wall clock.
    """
    hello = Hello(
        protocol=1, agent_version="none", python="none", hostname="pasted", agent_pid=0, uid=0
    )
    gone = evidence.observed.process_alive is False
    frame = Frame(
        seq=1, t=now_t, boot_s=1e6,
        run=RunSample(state="found", how="log", name="pasted"),
        processes=_processes(evidence, is_gone=gone),
        logs=_logs(evidence),
        gpus=_gpus(evidence),
        gpu_driver=evidence.gpus.driver if evidence.gpus is not None else None,
        gaps=tuple(_gaps(evidence)),
    )  # fmt: skip
    samples = list(evidence.all_stacks)[-MOST_STACKS:]
    stamped = [_stamped(one, i, now_t) for i, one in enumerate(samples)]
    return [hello, frame, *stamped]


def _stamped(sample: StackSample, i: int, now_t: float) -> StackSample:
    return msgspec.structs.replace(sample, t=now_t, label=f"given-{i + 1}")


def _logs(evidence: Evidence) -> tuple[LogSample, ...] | None:
    if evidence.log is None and not evidence.ranks:
        return None
    # What a recorder holds is what the watchdog of its rank would have printed.
    text = f"{render_ranks(evidence.ranks)}{evidence.log or ''}"
    text = text if text.endswith("\n") else f"{text}\n"
    sample = LogSample(
        path=LOG, via="option", watched_path=LOG, text=text, offset=0,
        ended=True, mtime_age_s=evidence.observed.silent_s, newlines=text.count("\n"),
        carriage_returns=text.count("\r"),
    )  # fmt: skip
    return (sample,)


def _processes(evidence: Evidence, *, is_gone: bool) -> tuple[ProcessSample, ...] | None:
    listed = evidence.all_processes
    if not listed or is_gone:
        return None
    return tuple(_process(one, i) for i, one in enumerate(listed))


def _process(told: PastedProcess, i: int) -> ProcessSample:
    pid = told.pid if told.pid is not None else FIRST_PID + i
    cmd = told.cmd or ""
    return ProcessSample(
        pid=pid, ppid=1, start_ticks=0, age_s=None, state=(told.state or "?")[:1], comm=cmd[:15],
        cmd=cmd, is_python="python" in cmd, wchan=told.wchan,
    )  # fmt: skip


def _gpus(evidence: Evidence) -> tuple[GpuSample, ...] | None:
    if evidence.gpus is None or not evidence.gpus.gpus:
        return None
    context = evidence.context
    if context is None or not context.gpu_table_empty:
        return evidence.gpus.gpus
    return tuple(msgspec.structs.replace(one, processes=()) for one in evidence.gpus.gpus)


def _gaps(evidence: Evidence) -> list[Gap]:
    out = []
    if not evidence.all_processes:
        out.append(Gap(source="process", reason="no process list was given"))
    if evidence.log is None:
        out.append(Gap(source="log", reason="no log was given"))
    if evidence.gpus is None:
        out.append(Gap(source="gpu", reason="no GPU figures were given"))
    elif not evidence.gpus.gpus:
        trouble = [one.text for one in evidence.gpus.trouble]
        out.append(
            Gap(source="gpu", reason=trouble[0] if trouble else "the GPU text tells nothing")
        )
    return out
