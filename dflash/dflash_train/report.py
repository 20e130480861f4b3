"""What is said about the steps: one line an interval, one event, a bar on a terminal.

Nothing is read from a device between two intervals.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time

import psutil
import torch
from dflash_events import RunWriter
from torch import Tensor
from tqdm import tqdm

from dflash_train.averaging import Parcel
from dflash_train.config import Config
from dflash_train.errors import DflashError
from dflash_train.evaluation import Evaluation
from dflash_train.metrics import FIELDS, StepMetrics, read_metrics
from dflash_train.schedule import learning_rate
from dflash_train.tracking import Trackers

logger = logging.getLogger(__name__)


class Reporter:
    """Sums up steps and says how they went; called by the first drafter only.

    Args:
        config: interval, number of steps.
        writer: takes the events.
        first_step: steps done before this run began.
        show_bar: draw a progress bar on standard error.
        speaks: False in all processes but the first: steps are counted and nothing is said.
        trackers: told the same figures as the log.
    """

    def __init__(
        self,
        config: Config,
        writer: RunWriter,
        first_step: int,
        *,
        show_bar: bool,
        speaks: bool = True,
        trackers: Trackers | None = None,
    ) -> None:
        self._speaks, self._trackers = speaks, trackers
        self._config, self._writer = config, writer
        self._first_step = first_step
        self._sums = torch.zeros(len(FIELDS))
        self._tokens = self._padded = self.tokens_total = 0
        self._window_start_s = self._start_s = time.perf_counter()
        tqdm.monitor_interval = 0  # no thread of its own beside the workers
        self._bar = tqdm(
            total=config.optim.steps,
            initial=first_step,
            unit="step",
            disable=not show_bar,
            file=sys.stderr,
        )
        self._process = psutil.Process(os.getpid())
        self.done = first_step
        """Steps done."""
        self._skipped_in_row = 0

    def begin(self) -> None:
        """The clock of the first window starts now: warming up is not part of it."""
        self._window_start_s = self._start_s = time.perf_counter()

    def on_step(
        self, done: int, sums: Tensor, parcels: tuple[Parcel, ...], queue: tuple[int, int]
    ) -> None:
        """One optimizer step has been made.

        Args:
            done: steps done, this one included.
            sums: `metrics.FIELDS` of the step, on a device.
            parcels: what the drafters brought.
            queue: depth and capacity of the hidden-state queue.
        """
        self.done = done
        if not self._speaks:
            return
        if self._sums.device != sums.device:
            self._sums = self._sums.to(sums.device)
        self._sums += sums
        self._tokens += sum(parcel.num_tokens for parcel in parcels)
        self._padded += sum(parcel.num_padded for parcel in parcels)
        self._bar.update(1)
        every, total = self._config.report.every_steps, self._config.optim.steps
        if done % every == 0 or done == total or done == self._first_step + 1:
            self._say(done, queue)

    def on_evaluation(self, done: int, found: Evaluation) -> None:
        """Held-out prompts were decoded; the time it took is not the steps' own."""
        self._window_start_s += found.seconds
        logger.info("evaluation at step %d: %s", done, found)
        length = found.acceptance.length
        if length is None:
            return
        self._writer.quality(
            step=done,
            acceptance_length=length,
            estimate=found.estimate,
            estimate_own=found.estimate_own,
            by_position=found.acceptance.by_position,
            histogram=found.acceptance.histogram,
            tokens_per_pass=found.acceptance.tokens_per_pass,
            prompts=found.prompts,
            seconds=found.seconds,
        )
        self._track(
            done,
            "evaluation",
            {
                "acceptance_length": length,
                "acceptance_length_estimate": found.estimate,
                "tokens_per_pass": found.acceptance.tokens_per_pass,
            },
        )
        if found.has_gap:
            logger.warning(
                "acceptance-gap at step %d: %.2f in decoding, %.2f estimated; %s",
                *(done, length, found.estimate, found.cause),
            )

    def close(self) -> None:
        """Take the bar away; let the trackers finish."""
        self._bar.close()
        if self._trackers is not None:
            self._trackers.close()

    def _track(self, step: int, part: str, figures: dict[str, float | None]) -> None:
        if self._trackers is not None:
            named = {f"{part}/{name}": value for name, value in figures.items()}
            self._trackers.log(step, named)

    def _say(self, done: int, queue: tuple[int, int]) -> None:
        now_s = time.perf_counter()
        tokens_per_s = self._tokens / max(now_s - self._window_start_s, 1e-9)
        metrics = read_metrics(self._sums)  # the one copy from the device
        lr, total = learning_rate(self._config.optim, done - 1), self._config.optim.steps
        self.tokens_total += self._tokens
        pace_s = (now_s - self._start_s) / max(done - self._first_step, 1)
        logger.info(
            "step=%d/%d loss=%.4f accept=%.2f tok/s=%d queue=%d/%d lr=%.2e grad=%.3f eta=%ds",
            *(done, total, metrics.loss, metrics.acceptance_length, round(tokens_per_s)),
            *(*queue, lr, metrics.grad_norm, round(pace_s * (total - done))),
        )
        self._writer.throughput(
            step=done,
            tokens_per_s=tokens_per_s,
            tokens_total=self.tokens_total,
            loss=metrics.loss,
            lr=lr,
            grad_norm=metrics.grad_norm,
            queue_depth=queue[0],
            queue_capacity=queue[1],
            memory=self._memory(),
            padding_ratio=1.0 - self._tokens / max(self._padded, 1),
            acceptance_length=metrics.acceptance_length,
        )
        self._track(
            done,
            "train",
            {
                "loss": metrics.loss,
                "learning_rate": lr,
                "grad_norm": metrics.grad_norm,
                "acceptance_length_estimate": metrics.acceptance_length,
                "first_position_ratio": metrics.first_ratio,
                "tokens_per_s": tokens_per_s,
                "tokens_total": self.tokens_total,
                "padding_ratio": 1.0 - self._tokens / max(self._padded, 1),
                "queue_depth": queue[0],
            },
        )
        steps = round(self._sums[FIELDS.index("steps")].item())
        self._sums.zero_()
        self._tokens = self._padded = 0
        self._window_start_s = now_s
        self._judge_skipped(done, metrics, steps)

    def _judge_skipped(self, done: int, metrics: StepMetrics, steps: int) -> None:
        """Announce steps that were left out; too many in a row end the run."""
        if not metrics.skipped:
            self._skipped_in_row = 0
            return
        whole = metrics.skipped == steps
        self._skipped_in_row = self._skipped_in_row + steps if whole else metrics.skipped
        logger.warning("step=%d: %d steps left out, gradient not finite", done, metrics.skipped)
        if math.isfinite(metrics.grad_norm):  # otherwise the throughput event announced it
            self._writer.numeric(step=done, what="grad_norm", value="nan")
        if self._skipped_in_row >= self._config.optim.max_skipped:
            raise DflashError(
                f"gradient not finite for {self._skipped_in_row} steps in a row",
                hint="smaller optim.lr, or go back to an earlier checkpoint",
            )

    def _memory(self) -> list[dict[str, object]]:
        """Per device; for the CPU the resident set of the process."""
        rows: list[dict[str, object]] = []
        devices = dict.fromkeys((*self._config.target.devices, *self._config.drafter.devices))
        for device in devices:
            if device == "cpu":
                used = reserved = self._process.memory_info().rss
            else:
                used = torch.cuda.memory_allocated(device)
                reserved = torch.cuda.memory_reserved(device)
            rows.append({"device": device, "allocated_bytes": used, "reserved_bytes": reserved})
        return rows
