"""A run directory from any training loop, in two lines: `watched_run` and `loop.step`."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Callable, ContextManager, Iterator, Union

from dflash_events.stack_signal import Armed, declaration
from dflash_events.writer import RunWriter

Figure = Union[float, int, None, Callable[[], float]]
"""A number, or how to get it: then it is asked for only when a report is due."""


class WatchedLoop:
    """One training loop as one worker: beats each step, reports figures now and then.

    Args:
        writer: of the run; started by the caller.
        device: where the loop computes, as torch names it.
        report_s: pace of `throughput` events.
    """

    def __init__(
        self, writer: RunWriter, *, device: str | None = None, report_s: float = 5.0
    ) -> None:
        self.writer = writer
        self.worker = writer.worker("main", role="main", index=0, device=device)
        self._report_s = report_s
        self._tokens: int | None = None
        self._reported_at = time.monotonic()
        self._reported_tokens = 0
        self._phase: ContextManager[None] | None = None
        self._enter("loading")

    def step(
        self, step: int, *, tokens: int | None = None, loss: Figure = None, lr: Figure = None
    ) -> None:
        """One optimizer step is done.

        Args:
            step: its number.
            tokens: real tokens in it, without padding; None when not counted.
            loss: a number, or e.g. `loss.item`: a device is asked only when a report is due.
            lr: learning rate.
        """
        self.worker.beat(step)
        if tokens is not None:
            self._tokens = (self._tokens or 0) + tokens
        if not self.is_training:
            self.training()
        if time.monotonic() - self._reported_at >= self._report_s:
            self.report(step, loss=_value(loss), lr=_value(lr))

    def report(self, step: int, **figures: object) -> None:
        """A `throughput` event with these figures, tokens counted since the last one."""
        now = time.monotonic()
        elapsed_s, self._reported_at = now - self._reported_at, now
        if self._tokens is not None:
            done, self._reported_tokens = self._tokens - self._reported_tokens, self._tokens
            figures = {
                "tokens_per_s": done / elapsed_s if elapsed_s > 0 else None,
                "tokens_total": self._tokens,
                **figures,
            }
        self.writer.throughput(step=step, **figures)

    @property
    def is_training(self) -> bool:
        """Whether the first step was done."""
        return self._name == "training"

    def training(self) -> None:
        """Loading is over. Said by the first `step` where nobody says it before."""
        self._reported_at = time.monotonic()
        self._enter("training")

    def phase(self, name: str, *, budget_s: float | None = None) -> ContextManager[None]:
        """A finite phase within training, such as `evaluating` or `checkpointing`."""
        return self.writer.phase(name, budget_s=budget_s)

    def close(self) -> None:
        """The loop is over, well or not; the exit event is the writer's."""
        self.end_phase()
        if self.worker.state == "running":
            self.worker.ended()

    def end_phase(self) -> None:
        """The phase that `loading` or `training` began is over."""
        if self._phase is not None:
            self._phase.__exit__(None, None, None)
        self._phase = None

    def _enter(self, name: str) -> None:
        self.end_phase()
        self._name = name
        self._phase = self.writer.phase(name)
        self._phase.__enter__()


@contextlib.contextmanager
def watched_run(
    run_dir: str | Path,
    *,
    total_steps: int | None = None,
    device: str | None = None,
    report_s: float = 5.0,
    config: dict[str, object] | None = None,
    versions: dict[str, str] | None = None,
    stack_signal: int | None = None,
) -> Iterator[WatchedLoop]:
    """A run directory around a loop; an exception that leaves it becomes its exit event.

    Args:
        run_dir: the directory; made if it is missing.
        total_steps: None when not known.
        device: where the loop computes, as torch names it.
        report_s: pace of `throughput` events.
        config: the resolved configuration.
        versions: package -> version.
        stack_signal: this signal appends all stacks to `stacks.txt` (`dflash_events.stack_signal`);
            None arms nothing.
    """
    armed = Armed(run_dir, number=stack_signal) if stack_signal is not None else None
    writer = RunWriter(
        run_dir, config=config, total_steps=total_steps, versions=versions, **declaration(armed)
    )
    try:
        with writer:
            loop = WatchedLoop(writer, device=device, report_s=report_s)
            try:
                yield loop
            finally:
                loop.close()
    finally:
        if armed is not None:
            armed.disarm()


def _value(figure: Figure) -> float | int | None:
    return figure() if callable(figure) else figure
