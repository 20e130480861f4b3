"""The loops of the three kinds of worker; everything they share comes in a `Line`."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from dflash_events import RunWriter, Worker

from dflash_train import checkpoint
from dflash_train.averaging import GradientMeeting, Parcel
from dflash_train.config import Config
from dflash_train.data import Batch
from dflash_train.drill import Drill
from dflash_train.errors import DflashError, PipelineStoppedError
from dflash_train.evaluation import Evaluator
from dflash_train.fate import Fate
from dflash_train.locks import NamedLock, WarmUp
from dflash_train.materials import Materials, new_drafter
from dflash_train.meeting import ProcessMeeting
from dflash_train.metrics import FIELDS
from dflash_train.oom import room_for
from dflash_train.place import ALONE, Place
from dflash_train.queue import OrderedQueue, QueueClosedError
from dflash_train.replica import DrafterReplica, FeatureBatch
from dflash_train.report import Reporter
from dflash_train.targets import FeatureTarget, check_features
from dflash_train.warm_start import start_from

logger = logging.getLogger(__name__)

WARM_UP_BUDGET_S, CHECKPOINT_BUDGET_S, EVALUATING_BUDGET_S = 120.0, 120.0, 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The production line: what all workers of a run share."""

    config: Config
    run_dir: Path
    materials: Materials
    resumed: checkpoint.Checkpoint | None
    writer: RunWriter
    reporter: Reporter
    fate: Fate
    drill: Drill
    batches: OrderedQueue[Batch]
    features: OrderedQueue[FeatureBatch]
    meeting: GradientMeeting | ProcessMeeting
    warm_up: WarmUp
    weights_locks: dict[str, NamedLock]
    """Of the drafters in this process."""
    targets: dict[str, FeatureTarget]
    """Target replicas by the worker that has warmed them up; evaluations use one of them."""
    place: Place = ALONE

    @property
    def first_step(self) -> int:
        """Steps done before this run."""
        return self.resumed.step if self.resumed else 0

    @property
    def drafters(self) -> tuple[str, ...]:
        """Names of the drafters, in rank order."""
        return tuple(self.weights_locks)

    def step_of(self, batch_index: int) -> int:
        """The step a batch belongs to."""
        return batch_index // self.config.batches_per_step

    def number(self, batch_index: int) -> int:
        """Number of a batch among those of this process, by which its queues count."""
        return batch_index // self.place.size

    def lane(self, rank: int) -> int:
        """Number of a drafter among those of this process."""
        return rank // self.place.size


def load_batches(line: Line, worker: Worker) -> None:
    """Loader: every batch of the run that goes to a drafter of this process, in order."""
    per_step = line.config.batches_per_step
    first, last = line.first_step * per_step, line.config.optim.steps * per_step
    for index in range(first + line.place.rank, last, line.place.size):
        step = line.step_of(index)
        line.drill.before_work(worker, step)
        batch = line.materials.source.batch(index)
        line.drill.before_give(worker, step)
        line.batches.put(line.number(index), batch, worker, ())
        worker.beat(step)
    line.batches.close(worker.name)


def run_target(line: Line, worker: Worker, device: str) -> None:
    """Target: takes the next batch, whoever it is for, and gives its features."""
    with line.warm_up.turn(worker), worker.phase("warm-up", budget_s=WARM_UP_BUDGET_S):
        line.drill.before_work(worker, -1)
        target = FeatureTarget(line.materials.decoder, line.config.target.layer_ids, device)
        largest = line.materials.source.largest()
        with room_for(largest, line.config, device):
            features = target.features(largest.input_ids_BT, largest.attention_BT)
        check_features(features, largest.attention_BT)
        line.targets[worker.name] = target
        worker.beat()
    step = line.first_step
    while True:
        line.drill.before_take(worker, step)
        try:
            batch = line.batches.get(0, worker, lambda _: line.place.name("loader"))
        except QueueClosedError:
            line.features.close(worker.name)
            return
        step = line.step_of(batch.index)
        line.drill.before_work(worker, step)
        with room_for(batch, line.config, device):
            features = target.features(batch.input_ids_BT, batch.attention_BT)
        features = line.drill.spoiled(worker, step, features)
        line.drill.before_give(worker, step)
        item = FeatureBatch(batch, features)
        line.features.put(line.number(batch.index), item, worker, line.drafters)
        worker.beat(step)


def run_drafter(line: Line, worker: Worker, rank: int, device: str) -> None:
    """Drafter: takes its share of a step, meets the others, makes the step."""
    with line.warm_up.turn(worker), worker.phase("warm-up", budget_s=WARM_UP_BUDGET_S):
        line.drill.before_work(worker, -1)
        replica = build_replica(line.config, line.materials, line.resumed, device)
        _warm_up_replica(line, replica, device)
        worker.beat()
    if rank == 0:
        line.reporter.begin()
    for step in range(line.first_step, line.config.optim.steps):
        parcel = _make_parcel(line, worker, replica, rank, step)
        meeting = line.meeting.meet(rank, step, parcel, worker)
        with line.weights_locks[worker.name].held(worker):
            line.drill.with_own_weights(worker, step)
            sums = replica.apply(meeting.parcels, step)
        done = step + 1
        worker.beat(done, items=(done - line.first_step) * line.config.optim.accumulation)
        if line.lane(rank) == 0:
            depth = (line.features.depth, line.features.capacity)
            line.reporter.on_step(done, sums, meeting.parcels, depth)
        if rank == 0:
            _save_if_due(line, worker, replica, done, must=meeting.stop)
            if not meeting.stop:
                _evaluate_if_due(line, worker, replica, done)
        if meeting.stop:
            if line.lane(rank) == 0:  # saved: the loader and the targets may go
                line.fate.end()
            return


def _make_parcel(
    line: Line, worker: Worker, replica: DrafterReplica, rank: int, step: int
) -> Parcel:
    """Gradient and sums of this drafter's batches of one step."""
    gradient = replica.flat.begin_step(step)
    sums = torch.zeros(len(FIELDS), device=gradient.device)
    tokens, padded = 0, 0
    for _ in range(line.config.optim.accumulation):
        line.drill.before_take(worker, step)
        item = line.features.get(line.lane(rank), worker, line.batches.holder)
        line.drill.before_work(worker, step)
        with room_for(item.batch, line.config, line.config.drafter.devices[rank]):
            sums += replica.accumulate(item)
        worker.beat()  # with accumulation a step is many batches long
        tokens += item.batch.num_tokens
        padded += item.batch.input_ids_BT.numel()
    return Parcel(gradient=gradient, sums=sums, num_tokens=tokens, num_padded=padded)


def build_replica(
    config: Config, materials: Materials, resumed: checkpoint.Checkpoint | None, device: str
) -> DrafterReplica:
    """A replica with the first weights of the seed, a published drafter's, or a checkpoint's."""
    drafter = new_drafter(config)
    if resumed is None and config.drafter.init is not None:
        start_from(drafter, config.drafter.init)
    replica = DrafterReplica(drafter, materials.embedding_VD, materials.head_VD, config, device)
    if resumed is not None:
        replica.load(resumed.weights, resumed.optimizer)
    return replica


def _warm_up_replica(line: Line, replica: DrafterReplica, device: str) -> None:
    """The largest shape through forward, loss and backward; weights stay as they are."""
    largest = line.materials.source.largest()
    width = len(line.config.target.layer_ids) * line.config.target.hidden_size
    stream = torch.Generator().manual_seed(0)
    features = torch.randn(*largest.input_ids_BT.shape, width, generator=stream)
    item = FeatureBatch(largest, features)
    replica.flat.begin_step(0)
    with room_for(largest, line.config, device):
        replica.accumulate(item)


def _save_if_due(
    line: Line, worker: Worker, replica: DrafterReplica, done: int, *, must: bool
) -> None:
    every = line.config.checkpoint.every_steps
    if not (must or done == line.config.optim.steps or (every and done % every == 0)):
        return
    with worker.phase("checkpointing", budget_s=CHECKPOINT_BUDGET_S):
        line.drill.before_save(worker, done, line.run_dir / checkpoint.FOLDER_NAME)
        save_checkpoint(line.writer, line.run_dir, line.config, replica, done, must=must)


def _evaluate_if_due(line: Line, worker: Worker, replica: DrafterReplica, done: int) -> None:
    """True acceptance, every so often; what goes wrong here never ends a training."""
    every = line.config.eval.every_steps
    if not every or (done % every and done != line.config.optim.steps):
        return

    def on_step() -> None:
        line.fate.check()
        if line.meeting.is_stop_requested():
            raise PipelineStoppedError("a stop was requested")
        worker.beat()

    target = next(iter(line.targets.values()))
    with worker.phase("evaluating", budget_s=EVALUATING_BUDGET_S):
        try:
            evaluator = Evaluator(line.config, target, replica.draft, line.materials.held_out)
            found = evaluator.run(on_step)
        except PipelineStoppedError:
            logger.info("evaluation at step %d left out: the run is ending", done)
        except (DflashError, torch.OutOfMemoryError) as error:
            logger.warning("evaluation at step %d left out: %s", done, error)
        else:
            line.reporter.on_evaluation(done, found)


def save_checkpoint(
    writer: RunWriter,
    run_dir: Path,
    config: Config,
    replica: DrafterReplica,
    done: int,
    *,
    must: bool,
) -> None:
    """Save, tell the log and the run directory; a full disk stops only who asked to stop.

    Raises:
        DflashError: it could not be written and the run ends here.
    """
    start_s = time.perf_counter()
    try:
        path, size = checkpoint.save(
            run_dir, done, config, replica.weights(), replica.optimizer_state()
        )
    except OSError as error:
        cause = error.strerror or str(error)
        writer.checkpoint(step=done, path=run_dir / checkpoint.FOLDER_NAME, error=cause)
        logger.error("checkpoint at step %d not written: %s; training goes on", done, cause)  # noqa: TRY400  (the cause is in the line)
        if must or done == config.optim.steps:
            raise DflashError(f"last checkpoint not written: {cause}") from error
        return
    seconds = time.perf_counter() - start_s
    writer.checkpoint(step=done, path=path, seconds=seconds, bytes=size)
    logger.info("checkpoint: %s (%.1f MB in %.2f s)", path, size / 1e6, seconds)
