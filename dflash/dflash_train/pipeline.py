"""All workers of one process as threads: started, supervised, ended together.

All of a run on CPU machines and single GPUs; a drafter and its targets where each drafter has a
process. It is safe by rules: first calls one at a time (`locks.WarmUp`), no exception lost
(`fate.Fate`), delivery in order (`queue.OrderedQueue`).
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dflash_events import RunWriter, Worker

from dflash_train import checkpoint, workers
from dflash_train.access import write_stacks
from dflash_train.averaging import GradientMeeting
from dflash_train.config import Config
from dflash_train.devices import gpu_uuid, use_device
from dflash_train.drill import Drill
from dflash_train.errors import DflashError, PipelineStoppedError
from dflash_train.fate import Fate
from dflash_train.group import Group, PeerLostError
from dflash_train.locks import NamedLock, WarmUp
from dflash_train.logs import log_only_to_file
from dflash_train.materials import Materials
from dflash_train.meeting import ProcessMeeting
from dflash_train.place import Place
from dflash_train.queue import OrderedQueue
from dflash_train.report import Reporter
from dflash_train.stop import StopRequest
from dflash_train.workers import Line

logger = logging.getLogger(__name__)

LOOK_S = 0.2
END_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Meeter:
    """How the drafters meet: in this process, or through a group of processes."""

    stop: StopRequest
    group: Group | None = None

    @property
    def place(self) -> Place:
        """Which process this is."""
        return self.group.place if self.group else Place()

    def meeting(self, drafters: tuple[str, ...], fate: Fate) -> GradientMeeting | ProcessMeeting:
        """The meeting point of the drafters of this process with all others."""
        if self.group is None:
            return GradientMeeting(drafters, lambda: self.stop.is_requested, fate)
        return ProcessMeeting(self.group, lambda: self.stop.is_requested)


Body = Callable[[Worker], None]


def build_line(
    config: Config,
    run_dir: Path,
    materials: Materials,
    resumed: checkpoint.Checkpoint | None,
    writer: RunWriter,
    reporter: Reporter,
    meeter: Meeter,
) -> Line:
    """Queues, locks and meeting of this process, not yet started."""
    fate, place = Fate(), meeter.place
    first = (resumed.step if resumed else 0) * config.batches_per_step // place.size
    targets = tuple(f"target-{i}" for i in range(config.num_targets) if place.holds(i))
    drafters = tuple(f"drafter-{i}" for i in range(config.num_drafters) if place.holds(i))
    weights_locks = {name: NamedLock(f"weights-of-{name}", fate) for name in drafters}
    return Line(
        config=config,
        run_dir=run_dir,
        materials=materials,
        resumed=resumed,
        writer=writer,
        reporter=reporter,
        fate=fate,
        drill=Drill(config.drill, weights_locks, fate),
        batches=OrderedQueue(
            "batch-queue",
            capacity=config.pipeline.loader_capacity,
            lanes=1,
            shown_to_takers=False,
            producers=(place.name("loader"),),
            first=first,
            fate=fate,
        ),
        features=OrderedQueue(
            "hs-queue",
            capacity=max(config.pipeline.queue_capacity // place.size, 1),
            shown_to_takers=True,
            lanes=len(drafters),
            producers=targets,
            first=first,
            fate=fate,
        ),
        meeting=meeter.meeting(drafters, fate),
        warm_up=WarmUp((*targets, *drafters), fate),
        weights_locks=weights_locks,
        place=place,
        targets={},
    )


class ThreadPipeline:
    """One thread a worker.

    Args:
        line: what they share.
        stop: when it was requested, workers have `pipeline.stop_grace_s` to finish their step.
        on_look: called a few times a second while they work.
    """

    def __init__(self, line: Line, stop: StopRequest, on_look: Callable[[], None]) -> None:
        self._line, self._stop, self._on_look = line, stop, on_look
        self._threads: list[threading.Thread] = []

    def run(self, main: Worker) -> None:
        """Start all workers, wait for their end.

        Raises:
            WorkerFailedError: one of them failed.
            DflashError: a stop was requested, and they do not come to the end of a step.
        """
        for name, role, index, device, body in self._posts():
            thread = threading.Thread(
                target=self._run_worker, args=(name, role, index, device, body), name=name
            )
            thread.daemon = True  # a worker that cannot end must not keep the process
            self._threads.append(thread)
            thread.start()
        with main.waiting("peer", object="workers"):
            try:
                self._supervise()
            finally:
                self._line.fate.end()
                self._await_all(END_GRACE_S)
                self._line.drill.finish()
        self._line.fate.raise_failure()

    def alive(self) -> tuple[str, ...]:
        """Workers that have not ended."""
        return tuple(thread.name for thread in self._threads if thread.is_alive())

    def _posts(self) -> list[tuple[str, str, int, str, Body]]:
        line, config = self._line, self._line.config
        place = line.place
        posts: list[tuple[str, str, int, str, Body]] = [
            (place.name("loader"), "loader", place.rank, "cpu", partial(workers.load_batches, line))
        ]
        for i, device in enumerate(config.target.devices):
            if not place.holds(i):
                continue
            body: Body = partial(_target_body, line, device)
            posts.append((f"target-{i}", "target", i, device, body))
        for rank, device in enumerate(config.drafter.devices):
            if not place.holds(rank):
                continue
            body = partial(_drafter_body, line, rank, device)
            posts.append((f"drafter-{rank}", "drafter", rank, device, body))
        return posts

    def _run_worker(self, name: str, role: str, index: int, device: str, body: Body) -> None:
        worker = self._line.writer.worker(
            name, role=role, index=index, device=device, gpu_uuid=gpu_uuid(device)
        )
        try:
            use_device(device)
            body(worker)
        except PipelineStoppedError:
            worker.ended()
        except PeerLostError as error:  # told by the process that failed
            worker.ended()
            self._line.fate.fail(name, error)
        except BaseException as error:  # noqa: BLE001  (a worker's edge: no exception is lost)
            worker.failed(error)
            self._line.fate.fail(name, error)
            log_only_to_file(f"{name} failed\n{traceback.format_exc()}")
        else:
            worker.ended()

    def _supervise(self) -> None:
        while self.alive():
            next(t for t in self._threads if t.is_alive()).join(LOOK_S)
            self._on_look()
            if self._line.fate.is_over:
                return
            self._check_grace()

    def _check_grace(self) -> None:
        since_s, grace_s = self._stop.since_s, self._line.config.pipeline.stop_grace_s
        self._stop.announce(f"waiting up to {grace_s:.0f} s for the step to end")
        if since_s is None or self._line.meeting.is_stopping:  # saving may take what it takes
            return
        if time.monotonic() - since_s > grace_s:
            late = ", ".join(self.alive())
            raise DflashError(
                f"no end of a step within {grace_s:.0f} s of {self._stop.signal_name}: "
                f"{late} still at work; nothing saved",
                hint=f"where they are: {write_stacks(self._line.run_dir)}",
            )

    def _await_all(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))


def _target_body(line: Line, device: str, worker: Worker) -> None:
    workers.run_target(line, worker, device)


def _drafter_body(line: Line, rank: int, device: str, worker: Worker) -> None:
    workers.run_drafter(line, worker, rank, device)
