"""One run from its directory to its exit code; imports torch only once the run can be watched."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dflash_events import RunWriter
from dflash_events.manifest import source_hashes
from dflash_events.ranks import JoinedWriter, RankCollector, await_run, launch_id
from dflash_events.schema import EVENTS_NAME
from dflash_events.stack_signal import Armed, declaration, stack_signal

from dflash_train import access, logs, provenance
from dflash_train.config import Config
from dflash_train.errors import (
    EXIT_DONE,
    EXIT_STOPPED,
    DflashError,
    UsageError,
)
from dflash_train.fate import describe
from dflash_train.place import ALONE, Place
from dflash_train.settings import as_mapping
from dflash_train.stop import StopRequest
from dflash_train.watch import Watchdog

logger = logging.getLogger(__name__)

JOIN_PATIENCE_S = 120.0
"""How long the other processes wait for the first one's run.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What the command line asked for."""

    config: Config
    run_dir: Path
    command: Sequence[str]
    watch: bool = True
    resume: bool = False
    place: Place = ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How it ended."""

    code: int
    stuck: tuple[str, ...] = ()
    """Workers and trackers that could not be ended: the process does not wait for them."""


def execute(request: RunRequest) -> RunResult:
    """Train; every ending has its line in the log, its event and its exit code.

    The log stays open until the process ends: a process that has closed its log and still lives
    looks from outside as if it wrote elsewhere.

    Raises:
        UsageError: the directory cannot be used; nothing was started.
    """
    if request.place.size > 1:
        access.end_with_parent()
    if not request.place.is_first:
        return _join(request)
    run_dir = prepare_directory(request.run_dir, resume=request.resume)
    logs.open_log(run_dir, sys.stdout, sys.stderr)
    stop = StopRequest()
    stop.install()
    access.allow_tracing()
    watchdog = Watchdog(run_dir)
    if not request.resume:
        say_what_is_set_aside(run_dir)
    try:
        with stack_signal(run_dir) as armed, ExitStack() as open_:
            writer = _writer(request, run_dir, watchdog, armed)
            others = RankCollector(writer, request.place.size)
            open_.enter_context(writer)
            open_.enter_context(others)
            if request.watch:
                watchdog.start()
            return _train(request, run_dir, writer, stop, watchdog.look, others)
    except Exception as error:
        raise _unforeseen(error, run_dir) from error
    finally:
        watchdog.leave()


def _join(request: RunRequest) -> RunResult:
    """What a process other than the first does: its workers, and nothing for the whole run."""
    run_dir, place = request.run_dir.absolute(), request.place
    stop = StopRequest()
    stop.install()
    access.allow_tracing()
    manifest = await_run(run_dir, launch_id(), JOIN_PATIENCE_S)
    logs.open_log(run_dir, sys.stdout, sys.stderr, place.rank)
    try:
        with (
            stack_signal(run_dir, place.rank),
            JoinedWriter(run_dir, place.rank, manifest.get("beats_path")) as writer,
        ):
            return _train(request, run_dir, writer, stop, lambda: None, None)
    except Exception as error:
        raise _unforeseen(error, run_dir) from error


def _unforeseen(error: Exception, run_dir: Path) -> DflashError:
    logs.log_only_to_file(traceback.format_exc())
    return DflashError(describe(error), hint=f"traceback in {run_dir / logs.LOG_NAME}")


def say_what_is_set_aside(run_dir: Path) -> None:
    """One line when an earlier run left its events here and nothing to go on from."""
    events = run_dir / EVENTS_NAME
    if events.is_file() and events.stat().st_size:
        logger.info(
            "%s holds an earlier run without a checkpoint: this one starts anew,"
            " the earlier events are set aside as %s-*%s",
            run_dir,
            events.stem,
            events.suffix,
        )


def prepare_directory(run_dir: Path, *, resume: bool) -> Path:
    """Make the run directory, or refuse one that another run lives in.

    Raises:
        UsageError: not a directory, not writable, or it holds checkpoints of another run.
    """
    run_dir = run_dir.absolute()
    has_checkpoints = any((run_dir / "checkpoints").glob("step-*"))
    if has_checkpoints and not resume:
        raise UsageError(
            f"--run-dir {run_dir}: holds checkpoints of an earlier run",
            hint=f"go on with `dflash-train resume --run-dir {run_dir}` or take another directory",
        )
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        probe = run_dir / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"--run-dir {run_dir}: {error.strerror}") from error
    return run_dir


def _writer(request: RunRequest, run_dir: Path, watchdog: Watchdog, armed: Armed) -> RunWriter:
    config = request.config
    return RunWriter(
        run_dir,
        config=as_mapping(config),
        command=list(request.command),
        total_steps=config.optim.steps,
        log_path=run_dir / logs.LOG_NAME,
        versions=provenance.versions(),
        sources=source_hashes(provenance.source_files()),
        expected_tokens_per_s=config.report.expected_tokens_per_s,
        incidents_path=watchdog.incidents if request.watch else None,
        launch={"id": launch_id(), "processes": request.place.size}
        if request.place.size > 1
        else None,
        **declaration(armed),
    )


def _train(
    request: RunRequest,
    run_dir: Path,
    writer: RunWriter,
    stop: StopRequest,
    look: Callable[[], None],
    others: RankCollector | None,
) -> RunResult:
    from dflash_train import trainer  # noqa: PLC0415  (torch: seconds, and the run is visible by now)

    training = trainer.Training(request.config, run_dir, writer, stop, look, request.place)

    def end(code: int, reason: str, message: str | None = None) -> None:
        if others is not None:
            others.finish()  # `exit` is the last event
        writer.exit(code, reason, message)

    try:
        is_whole = training.run(resume=request.resume)
    except DflashError as error:
        logger.error("%s", error)  # noqa: TRY400  (one line for people; the traceback is in the log file)
        end(error.exit_code, "failed", str(error))
        return RunResult(code=error.exit_code, stuck=training.stuck())
    if not is_whole:
        logger.info(
            "stopped on request (%s), checkpoint written; go on with: "
            "dflash-train resume --run-dir %s",
            *(stop.signal_name, run_dir),
        )
        end(EXIT_STOPPED, "stopped", f"stopped by {stop.signal_name}, checkpoint written")
        return RunResult(code=EXIT_STOPPED, stuck=training.stuck())
    logger.info("training is done: %d steps", request.config.optim.steps)
    end(EXIT_DONE, "done")
    return RunResult(code=EXIT_DONE, stuck=training.stuck())
