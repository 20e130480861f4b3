"""What can be broken, how, and which answer is right: data, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Program = Literal["tiny", "foreign"]
By = Literal[
    "run",
    "stop",
    "kill",
    "rename-log",
    "cut-log",
    "freeze-link",
    "cut-link",
    "limit-memory",
    "hang-driver",
]
Need = Literal["trainer", "tmpfs", "memory-cgroup", "compiler"]
TINY: tuple[str, ...] = (
    "target.pretrain_steps=2", "data.num_documents=96", "report.every_steps=1",
    "optim.steps=1000000",
)  # fmt: skip
"""Ready within seconds, and long enough for any drill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """A fault and the right answer to it."""

    name: str
    breaks: str
    """What goes wrong, for people."""
    program: Program = "tiny"
    settings: tuple[str, ...] = ()
    """Of `dflash-train`, or words for the foreign program."""
    by: By = "run"
    """Who sets it off: the program itself once the trigger file is there, or the drill."""
    verdicts: frozenset[str]
    failure: str
    subject: str
    """`{log}` stands for the log that the run writes."""
    samples: int = 0
    """Stack files that must be in the incident at least; 0: none are asked for."""
    needs: frozenset[Need] = frozenset()
    within_s: float = 60.0
    """The drill is missed after so long."""
    room_bytes: int = 24 << 20
    """`limit-memory`: what the run may use besides what it uses at the fault."""
    heals: bool = False
    """The fault is taken back at the end, and the verdict must be `running` again."""


STALLED, CRASHED, RUNNING = frozenset({"stalled"}), frozenset({"crashed"}), frozenset({"running"})
GOES_ON = frozenset({"running", "slow"})
HELD = frozenset({"slow", "stalled"})
TRAINER: frozenset[Need] = frozenset({"trainer"})

DRILLS: tuple[Drill, ...] = (
    Drill(
        name="lock-cycle", breaks="two drafters hold their weights and want each other's",
        settings=("drill.fault=lock-cycle", "drill.at_step=1"), needs=TRAINER,
        verdicts=STALLED, failure="pipeline-deadlock", subject="drafter-0, drafter-1", samples=2,
    ),
    Drill(
        name="target-raises", breaks="a target raises in mid-epoch",
        settings=("drill.fault=raise", "drill.worker=target-1", "drill.at_step=1"), needs=TRAINER,
        verdicts=CRASHED, failure="worker-died", subject="target-1", samples=1,
    ),
    Drill(
        name="swallowed-exception", breaks="a target swallows its exception and is gone; no hint",
        program="foreign", settings=("swallow",),
        verdicts=STALLED, failure="worker-died", subject="target-1", samples=2,
    ),
    Drill(
        name="autotune-oom", breaks="two targets die in the Triton autotuner, out of memory",
        program="foreign", settings=("autotune-oom",),
        verdicts=STALLED, failure="triton-autotune-oom", subject="target-0, target-1", samples=2,
    ),
    Drill(
        name="drafter-stops", breaks="a drafter takes nothing any more while the queue is full",
        settings=("drill.fault=stop-taking", "drill.worker=drafter-1", "drill.at_step=1"),
        needs=TRAINER, verdicts=HELD, failure="drafter-idle", subject="drafter-1", samples=2,
    ),
    Drill(
        name="gil-busy", breaks="a C call computes for hours and keeps the interpreter lock",
        settings=("drill.fault=gil-busy", "drill.worker=target-1", "drill.at_step=1"),
        needs=TRAINER, verdicts=STALLED, failure="gil-held", subject="target-1", samples=2,
    ),
    Drill(
        name="gil-asleep", breaks="a C call sleeps and keeps the interpreter lock",
        settings=("drill.fault=gil-asleep", "drill.worker=target-1", "drill.at_step=1"),
        needs=TRAINER, verdicts=STALLED, failure="gil-held", subject="target-1", samples=2,
    ),
    Drill(
        name="gil-hog", breaks="a thread keeps the interpreter lock most of the time",
        settings=("drill.fault=gil-hog", "drill.worker=target-1", "drill.at_step=1"),
        needs=TRAINER, verdicts=GOES_ON, failure="gil-contention", subject="run",
        within_s=120,
    ),
    Drill(
        name="stopped", breaks="SIGSTOP: somebody, or a profiler, stopped the process", by="stop",
        needs=TRAINER, verdicts=STALLED, failure="process-stopped", subject="run", samples=2,
        heals=True,
    ),
    Drill(
        name="killed", breaks="SIGKILL: the process is gone without a word", by="kill",
        needs=TRAINER, verdicts=CRASHED, failure="main-process-died", subject="run",
    ),
    Drill(
        name="vanished", breaks="SIGKILL of a program that is not ours: nobody knows why it went",
        program="foreign", settings=("well",), by="kill",
        verdicts=frozenset({"blind"}), failure="process-vanished", subject="run",
    ),
    Drill(
        name="exit-hang", breaks="training is done, and the process does not end",
        program="foreign", settings=("exit-hang",),
        verdicts=frozenset({"finished"}), failure="exit-hang", subject="run", samples=2,
    ),
    Drill(
        name="log-renamed", breaks="the log is renamed away while the run writes it",
        by="rename-log", needs=TRAINER, verdicts=RUNNING, failure="log-moved", subject="{log}.1",
    ),
    Drill(
        name="log-cut", breaks="the log is copied and cut to nothing", by="cut-log",
        needs=TRAINER, verdicts=RUNNING, failure="log-moved", subject="{log}",
    ),
    Drill(
        name="log-buffered", breaks="lines wait in a buffer while steps go on",
        settings=("buffered", "report.every_steps=20"), needs=TRAINER,
        verdicts=RUNNING, failure="log-not-flushed", subject="{log}",
        within_s=150,
    ),
    Drill(
        name="log-bar", breaks="a progress bar redraws one line that never ends",
        program="foreign", settings=("bar",),
        verdicts=RUNNING, failure="log-no-newline", subject="{log}",
    ),
    Drill(
        name="gpu-driver-hangs", breaks="a call of the GPU driver never returns",
        by="hang-driver", needs=frozenset({"trainer", "compiler"}),
        verdicts=RUNNING, failure="gpu-view-lost", subject="host",
    ),
    Drill(
        name="link-frozen", breaks="the connection is there and nothing comes through",
        by="freeze-link", needs=TRAINER, heals=True,
        verdicts=frozenset({"blind"}), failure="watch-lost", subject="link",
    ),
    Drill(
        name="link-cut", breaks="the connection is cut and cannot be made again at once",
        by="cut-link", needs=TRAINER, heals=True,
        verdicts=frozenset({"blind"}), failure="watch-lost", subject="link",
    ),
    Drill(
        name="nan-loss", breaks="features that are no numbers: the loss is nan",
        settings=(
            "drill.fault=nan-loss", "drill.worker=target-0,target-1", "drill.at_step=1",
            "optim.max_skipped=100000",
        ),
        needs=TRAINER, verdicts=GOES_ON, failure="nan-loss", subject="run",
    ),
    Drill(
        name="data-starvation", breaks="the loader takes long over each batch",
        settings=(
            "drill.fault=data-starvation", "drill.worker=loader", "drill.at_step=1",
            "report.expected_tokens_per_s=2500",
        ),
        needs=TRAINER, verdicts=frozenset({"slow"}), failure="input-starved", subject="run",
        within_s=120,
    ),
    Drill(
        name="slow-disk", breaks="a checkpoint comes onto the disk in drops",
        settings=(
            "drill.fault=slow-disk", "drill.worker=drafter-0", "drill.at_step=1",
            "checkpoint.every_steps=5",
        ),
        needs=TRAINER, verdicts=frozenset({"quiet"}), failure="checkpoint-in-progress",
        subject="run",
    ),
    Drill(
        name="memory-leak", breaks="host memory grows and grows, and will not last",
        settings=("drill.fault=memory-leak", "drill.worker=drafter-1", "drill.at_step=1"),
        by="limit-memory", room_bytes=3 << 30, needs=frozenset({"trainer", "memory-cgroup"}),
        verdicts=GOES_ON, failure="memory-leak", subject="run", within_s=240,
    ),
    Drill(
        name="disk-full", breaks="the disk under the run directory is full",
        settings=("drill.fault=none", "checkpoint.every_steps=20"),
        needs=frozenset({"trainer", "tmpfs"}),
        verdicts=GOES_ON, failure="disk-full", subject="host", within_s=90,
    ),
    Drill(
        name="host-oom", breaks="the memory limit of its cgroup kills the run", by="limit-memory",
        settings=("drill.fault=memory-leak", "drill.worker=drafter-1", "drill.at_step=1"),
        needs=frozenset({"trainer", "memory-cgroup"}),
        verdicts=CRASHED, failure="host-oom", subject="run",
    ),
)  # fmt: skip
