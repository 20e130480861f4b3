"""A callback for Lightning: `Trainer(callbacks=[RunDirectoryCallback("runs/a")])`."""

# ruff: noqa: ANN401, ARG002 - the signatures are Lightning's own, and untyped.
from __future__ import annotations

from pathlib import Path
from typing import Any, ContextManager

from lightning.pytorch import Callback, __version__

from dflash_events.adapters.context import WatchedLoop
from dflash_events.stack_signal import Armed, declaration
from dflash_events.writer import RunWriter


class RunDirectoryCallback(Callback):  # type: ignore[misc]  # lightning is not installed where we check types
    """Writes the run directory of the process of rank 0.

    Args:
        run_dir: None takes the trainer's `default_root_dir`.
        log_path: where standard output goes, if it goes to a file.
        report_s: pace of `throughput` events; the loss is read from the device only then.
        stack_signal: this signal appends all stacks to `stacks.txt`; None arms nothing.
    """

    def __init__(
        self,
        run_dir: str | Path | None = None,
        *,
        log_path: str | Path | None = None,
        report_s: float = 5.0,
        stack_signal: int | None = None,
    ) -> None:
        self._run_dir, self._log_path, self._report_s = run_dir, log_path, report_s
        self._signal, self._armed = stack_signal, None  # type: int | None, Armed | None
        self._loop: WatchedLoop | None = None
        self._evaluating: ContextManager[None] | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Start writing."""
        if not trainer.is_global_zero:
            return
        steps = trainer.estimated_stepping_batches
        run_dir = self._run_dir or trainer.default_root_dir
        self._armed = Armed(run_dir, number=self._signal) if self._signal is not None else None
        writer = RunWriter(
            run_dir,
            config={str(key): value for key, value in dict(pl_module.hparams).items()},
            total_steps=int(steps) if steps != float("inf") else None,
            log_path=self._log_path,
            versions={"lightning": __version__},
            **declaration(self._armed),
        )
        device = str(trainer.strategy.root_device)
        self._loop = WatchedLoop(writer.start(), device=device, report_s=self._report_s)

    def on_train_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """A batch is done; the step counts optimizer steps."""
        if self._loop is not None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            self._loop.step(trainer.global_step, loss=getattr(loss, "item", None))

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """An evaluation begins."""
        if self._loop is not None:
            self._evaluating = self._loop.phase("evaluating")
            self._evaluating.__enter__()

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """A batch of an evaluation is done."""
        if self._loop is not None:
            self._loop.worker.beat()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """The evaluation is over."""
        if self._evaluating is not None:
            self._evaluating.__exit__(None, None, None)
        self._evaluating = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Training ends in an exception."""
        if self._loop is not None:
            self._loop.worker.failed(exception)
            self._finish(1, "failed", f"{type(exception).__name__}: {exception}")

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Training is over."""
        if self._loop is not None:
            self._finish(0, "done", None)

    def _finish(self, code: int, reason: str, message: str | None) -> None:
        if self._loop is None:
            return
        self._loop.close()
        self._loop.writer.exit(code, reason, message)
        self._loop.writer.close()
        if self._armed is not None:
            self._armed.disarm()
        self._loop = self._armed = None
