"""Training as it can be read aloud: make the materials, run the pipeline, say how it went."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from dflash_events import RunWriter, Worker
from transformers.utils import logging as transformers_logging

from dflash_train import access, checkpoint, kernels
from dflash_train.backends import backends_of
from dflash_train.config import Config
from dflash_train.devices import check_devices, give_back_memory
from dflash_train.errors import DflashError
from dflash_train.group import Group, PeerLostError
from dflash_train.materials import Materials, make_materials, make_untaught
from dflash_train.pipeline import Meeter, ThreadPipeline, build_line
from dflash_train.place import Place
from dflash_train.plan.bench import make_bench
from dflash_train.plan.check import State
from dflash_train.plan.examine import examine, refuse
from dflash_train.report import Reporter
from dflash_train.stop import StopRequest
from dflash_train.tracking import Trackers
from dflash_train.workers import Line, build_replica, save_checkpoint

logger = logging.getLogger(__name__)

LOADING_BUDGET_S, PREFLIGHT_BUDGET_S = 180.0, 120.0
SAID = ("kernels", "memory", "time", "leak")
"""Checks whose figures stand in the log when all is well; the others are in run.json."""


class _StopWhileLoadingError(DflashError):
    """A stop was requested before the first step."""


class Training:
    """One run of one process.

    Args:
        config: all settings.
        run_dir: exists.
        writer: open.
        stop: installed.
        on_look: called a few times a second while workers work.
        place: which of the run's processes this is.
    """

    def __init__(
        self,
        config: Config,
        run_dir: Path,
        writer: RunWriter,
        stop: StopRequest,
        on_look: Callable[[], None],
        place: Place,
    ) -> None:
        self._config, self._run_dir, self._writer = config, run_dir, writer
        self._stop, self._on_look = stop, on_look
        self._place = place
        self._group: Group | None = None
        self._pipeline: ThreadPipeline | None = None
        self._is_resumed = False
        self._trackers: Trackers | None = None

    def run(self, *, resume: bool) -> bool:
        """Train to the end, or to a stop request.

        Returns:
            True when all steps were made, False when stopped with a checkpoint.

        Raises:
            DflashError: it failed.
        """
        transformers_logging.set_verbosity_error()  # what is bound is said in our own lines
        torch.set_num_threads(self._config.pipeline.num_threads)
        name, rank = self._place.name("main"), self._place.rank
        main = self._writer.worker(name, role="main", index=rank, device="cpu")
        access.name_process("dflash-train")
        check_devices(self._config)
        if self._place.size == 1:
            return self._run(main, resume=resume)
        self._group = Group(self._place)
        try:
            is_whole = self._run(main, resume=resume)
            self._group.wait()  # the first process has saved
        except Exception as error:
            self._group.tell_failure(str(error))
            raise
        self._group.close()
        return is_whole

    def _run(self, main: Worker, *, resume: bool) -> bool:
        with self._writer.phase("loading", budget_s=LOADING_BUDGET_S):
            resumed = self._resumed() if resume else None
            self._is_resumed = resume
            materials = self._materials_of_all(main)
        kernels.announce_tuning(self._writer)
        if materials is None or not self._looks_right(main, materials):
            return False
        first_step = resumed.step if resumed else 0
        if self._place.is_first:
            backends = backends_of(self._config, self._run_dir, first_step)
            self._trackers = Trackers(backends, self._writer)
        reporter = Reporter(
            self._config,
            self._writer,
            first_step,
            show_bar=self._place.is_first and sys.stderr.isatty() and sys.stdout.isatty(),
            speaks=self._place.is_first,
            trackers=self._trackers,
        )
        line = build_line(
            *(self._config, self._run_dir, materials, resumed),
            *(self._writer, reporter, Meeter(self._stop, self._group)),
        )
        self._pipeline = ThreadPipeline(line, self._stop, partial(self._look, line))
        detail = "threads" if self._group is None else f"{self._place.size} processes"
        try:
            with self._writer.phase("training", detail=detail):
                self._pipeline.run(main)
        finally:
            reporter.close()
        main.ended()
        return reporter.done == self._config.optim.steps

    def _look(self, line: Line) -> None:
        self._on_look()
        cause = self._group.failure() if self._group else None
        if cause is not None:
            line.fate.fail("another process", PeerLostError(cause))

    def stuck(self) -> tuple[str, ...]:
        """Workers and trackers that could not be ended."""
        workers = self._pipeline.alive() if self._pipeline else ()
        return (*workers, *(self._trackers.alive() if self._trackers else ()))

    def _resumed(self) -> checkpoint.Checkpoint:
        found = checkpoint.load_newest(self._run_dir)
        logger.info("resuming from %s", found.path)
        return found

    def _materials_of_all(self, main: Worker) -> Materials | None:
        """The first process makes what is made, then the others read it."""
        if self._group is None:
            return self._materials(main)
        materials = self._materials(main) if self._place.is_first else None
        has_stopped = torch.tensor(int(self._place.is_first and materials is None))
        with main.waiting("peer", object="materials", on="main"):
            self._group.add(has_stopped)
        if self._place.is_first or has_stopped:
            return materials
        return self._materials(main)

    def _materials(self, main: Worker) -> Materials | None:
        """None when a stop was requested meanwhile; then a checkpoint of step 0 is written."""

        def on_step(_: int) -> None:
            main.beat()
            if self._stop.is_requested:
                self._stop.announce("ending before the first step")
                raise _StopWhileLoadingError("stopped while loading")

        try:
            return make_materials(self._config, self._run_dir, on_step)
        except _StopWhileLoadingError:
            self._save_untouched(make_untaught(self._config))
            return None

    def _looks_right(self, main: Worker, materials: Materials) -> bool:
        """The first process looks at everything a run must have right.

        Returns:
            False when a stop was requested meanwhile. Several processes stop at a step, not here.

        Raises:
            UsageError: a check failed and was not overridden.
        """
        if not self._place.is_first:
            return True

        def on_check(_: str) -> None:
            main.beat()
            if self._group is None and self._stop.is_requested:
                self._stop.announce("ending before the first step")
                raise _StopWhileLoadingError("stopped while looking")

        try:
            with self._writer.phase("warm-up", budget_s=PREFLIGHT_BUDGET_S, detail="preflight"):
                bench = make_bench(self._config, self._run_dir, materials)
                checks = examine(bench, on_check)
                measured = bench.measured
                del bench  # its replicas, before the workers make theirs
                give_back_memory()
        except _StopWhileLoadingError:
            if not self._is_resumed:
                self._save_untouched(materials)
            return False
        self._writer.note("plan", [check.as_mapping() for check in checks])
        for key, value in measured.items():
            self._writer.note(key, value)
        for check in checks:
            if check.name in SAID and check.state is State.OK:
                logger.info("%s: %s", check.name, check.observed)
        refuse(checks)
        return True

    def _save_untouched(self, materials: Materials) -> None:
        replica = build_replica(self._config, materials, None, "cpu")
        save_checkpoint(self._writer, self._run_dir, self._config, replica, 0, must=True)
