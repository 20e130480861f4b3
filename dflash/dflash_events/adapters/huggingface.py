"""A callback for `transformers.Trainer`: `Trainer(..., callbacks=[RunDirectoryCallback()])`."""

# ruff: noqa: ANN401, ARG002 - the signatures are Trainer's own, and untyped.
from __future__ import annotations

from pathlib import Path
from typing import Any, ContextManager

import torch
import transformers
from transformers.trainer_callback import TrainerCallback

from dflash_events.adapters.context import WatchedLoop
from dflash_events.stack_signal import Armed, declaration
from dflash_events.writer import RunWriter


class RunDirectoryCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Writes the run directory of the main process.

    A training that ends in an exception never tells its callbacks: the exit event is then written
    when the interpreter ends. Tokens are counted where `include_num_input_tokens_seen` is set.

    Args:
        run_dir: None takes the trainer's own `output_dir`.
        log_path: where standard output goes, if it goes to a file.
        stack_signal: this signal appends all stacks to `stacks.txt`; None arms nothing.
    """

    def __init__(
        self,
        run_dir: str | Path | None = None,
        *,
        log_path: str | Path | None = None,
        stack_signal: int | None = None,
    ) -> None:
        self._run_dir, self._log_path, self._signal = run_dir, log_path, stack_signal
        self._armed: Armed | None = None
        self._loop: WatchedLoop | None = None
        self._evaluating: ContextManager[None] | None = None
        self._tokens_seen = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start writing."""
        if not state.is_world_process_zero or self._loop is not None:
            return
        run_dir = self._run_dir or args.output_dir
        self._armed = Armed(run_dir, number=self._signal) if self._signal is not None else None
        writer = RunWriter(
            run_dir,
            config=args.to_sanitized_dict(),
            total_steps=state.max_steps,
            log_path=self._log_path,
            versions={"torch": torch.__version__, "transformers": transformers.__version__},
            **declaration(self._armed),
        )
        self._tokens_seen = int(state.num_input_tokens_seen)
        self._loop = WatchedLoop(writer.start(), device=str(args.device))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step is done."""
        if self._loop is None:
            return
        tokens = int(state.num_input_tokens_seen) - self._tokens_seen
        self._tokens_seen += tokens
        self._loop.step(state.global_step, tokens=tokens or None)

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Figures are there already: no device has to be asked."""
        if self._loop is not None and logs and "loss" in logs:
            self._loop.report(
                state.global_step,
                loss=logs["loss"],
                lr=logs.get("learning_rate"),
                grad_norm=logs.get("grad_norm"),
            )

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A batch of an evaluation is done; with the first one the phase begins."""
        if self._loop is None:
            return
        if self._evaluating is None:
            self._evaluating = self._loop.phase("evaluating")
            self._evaluating.__enter__()
        self._loop.worker.beat()

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The evaluation is over."""
        if self._evaluating is not None:
            self._evaluating.__exit__(None, None, None)
        self._evaluating = None

    def on_predict(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any
    ) -> None:
        """The same for `predict`."""
        self.on_evaluate(args, state, control)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A checkpoint is on disk."""
        if self._loop is not None:
            path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            self._loop.writer.checkpoint(step=state.global_step, path=path)
            self._loop.worker.beat(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Training is over."""
        if self._loop is not None:
            self._loop.close()
            self._loop.writer.exit(0, "done")
            self._loop.writer.close()
        if self._armed is not None:
            self._armed.disarm()
        self._loop = self._armed = None
