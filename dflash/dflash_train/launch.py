"""A run of several processes: torchrun's launcher, started and supervised by us.

The processes belong to a session of their own, so that a Ctrl-C reaches this one alone and is
passed on once. When this process ends, however it ends, so do they.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import psutil
from dflash_events.schema import EVENTS_NAME

from dflash_train.config import Config
from dflash_train.errors import EXIT_DONE, EXIT_FAILED, EXIT_STOPPED, UsageError
from dflash_train.stop import SIGNALS

LAUNCHED = "DFLASH_TRAIN_LAUNCHED"
"""In the environment of processes that this launcher started."""
LOOK_S = 0.2


def wants_processes(launch: str, config: Config, environ: Mapping[str, str]) -> bool:
    """Whether `--launch` means several processes: `auto` does where each drafter has a GPU.

    Raises:
        UsageError: asked for, and two drafters share a GPU: their gradients could not meet.
    """
    if "RANK" in environ:  # a launcher has started this one
        return False
    gpus = [device for device in config.drafter.devices if device.startswith("cuda")]
    shared = next((device for device in gpus if gpus.count(device) > 1), None)
    if launch != "auto":
        if launch == "processes" and shared is not None:
            raise UsageError(
                f"--launch processes: several drafters on {shared}, expected a GPU for each",
                hint="--launch threads, or other --drafter-devices",
            )
        return launch == "processes" and config.num_drafters > 1
    on_gpus = len(gpus) == config.num_drafters and shared is None
    enough = config.num_targets >= config.num_drafters > 1
    return on_gpus and enough and config.drill.fault != "lock-cycle"


def launch(words: Sequence[str], config: Config, run_dir: Path) -> int:
    """Start one process for each drafter, pass signals on, wait for their end.

    Args:
        words: the command line of this process, which each of them gets.
        config: number of processes, threads in each.
        run_dir: where how the run ended is read from.

    Returns:
        The exit code of the run.
    """
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "dflash_train.elastic"),
            *("--nproc-per-node", str(config.num_drafters), "--standalone"),
            *("-m", "dflash_train.cli", *words),
        ],
        env={
            **os.environ,
            LAUNCHED: "1",
            "OMP_NUM_THREADS": str(config.pipeline.num_threads),
        },
        start_new_session=True,
    )
    forward = _Forwarding(child.pid)
    while child.poll() is None:
        forward.pass_on()
        try:
            child.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            continue
    if child.returncode != 0:
        return EXIT_FAILED
    return EXIT_STOPPED if _last_code(run_dir) == EXIT_STOPPED else EXIT_DONE


class _Forwarding:
    """Signals of this process, for the run's processes and not for the launcher between."""

    def __init__(self, launcher: int) -> None:
        self._launcher = launcher
        self._asked: list[int] = []
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._asked.append(number)

    def pass_on(self) -> None:
        """Give each signal to each process, once it is there."""
        asked, self._asked = self._asked, []
        if not asked:
            return
        try:
            ranks = psutil.Process(self._launcher).children()
        except psutil.NoSuchProcess:
            return
        for number in asked:
            if not ranks:
                os.kill(self._launcher, number)
            for rank in ranks:
                try:
                    rank.send_signal(number)
                except psutil.NoSuchProcess:
                    continue


def _last_code(run_dir: Path) -> int | None:
    """The code in the run's `exit` event."""
    try:
        last = (run_dir / EVENTS_NAME).read_bytes().splitlines()[-1]
        event = json.loads(last)
    except (OSError, ValueError, IndexError):
        return None
    return event.get("code") if event.get("kind") == "exit" else None
