"""What checks work on: the run's materials, one target and one drafter on their own devices.

Letters: B rows, T tokens, A anchors of a row, K block positions.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from dflash_train.config import Config
from dflash_train.data import Batch
from dflash_train.devices import use_device
from dflash_train.materials import Materials, new_drafter
from dflash_train.replica import DrafterReplica, FeatureBatch
from dflash_train.target_facts import TargetFacts, read_facts
from dflash_train.targets import FeatureTarget

SHORT, TRIED_ROWS, TRIED_ANCHORS = 48, 2, 8


@dataclass(kw_only=True)
class Bench:
    """Everything a check may look at; made once, each part when it is first asked for."""

    config: Config
    materials: Materials
    run_dir: Path
    facts: TargetFacts | None
    """None for a target made on the spot."""
    measured: dict[str, object] = field(default_factory=dict)
    """Figures that a check found and others, or run.json, want."""

    @cached_property
    def target(self) -> FeatureTarget:
        """The first replica of the target."""
        layers, device = self.config.target.layer_ids, self.config.target.devices[0]
        use_device(device)
        return FeatureTarget(self.materials.decoder, layers, device)

    @cached_property
    def replica(self) -> DrafterReplica:
        """The first replica of the drafter."""
        tables = (self.materials.embedding_VD, self.materials.head_VD)
        device = self.config.drafter.devices[0]
        return DrafterReplica(new_drafter(self.config), *tables, self.config, device)

    @cached_property
    def largest(self) -> Batch:
        """Full rows of the longest bucket."""
        return self.materials.source.largest()

    @cached_property
    def sample(self) -> Batch:
        """The first batch of the run."""
        return self.materials.source.batch(0)

    @cached_property
    def short(self) -> Tensor:
        """The beginning of one real document; [1, at most SHORT]."""
        length = int(self.sample.attention_BT[0].sum())
        return self.sample.input_ids_BT[:1, : min(length, SHORT)]

    @cached_property
    def tried(self) -> FeatureBatch:
        """A few blocks of the first batch with their real features."""
        batch = some_anchors(first_rows(self.sample, TRIED_ROWS), TRIED_ANCHORS)
        return FeatureBatch(batch, self.target.features(batch.input_ids_BT, batch.attention_BT))


def make_bench(config: Config, run_dir: Path, materials: Materials) -> Bench:
    """A bench over the materials of a run."""
    path = config.target.path
    facts = None if path is None else read_facts(path)
    return Bench(config=config, run_dir=run_dir.absolute(), materials=materials, facts=facts)


def first_rows(batch: Batch, rows: int) -> Batch:
    """The first `rows` documents of a batch, as a batch."""
    rows = min(rows, len(batch.input_ids_BT))
    blocks = rows * batch.anchors_BA.shape[1]
    counted = batch.rows_R < blocks * batch.live_AK.shape[1]
    return dataclasses.replace(
        batch,
        input_ids_BT=batch.input_ids_BT[:rows],
        attention_BT=batch.attention_BT[:rows],
        anchors_BA=batch.anchors_BA[:rows],
        valid_BA=batch.valid_BA[:rows],
        live_AK=batch.live_AK[:blocks],
        rows_R=batch.rows_R[counted],
        labels_R=batch.labels_R[counted],
        weights_R=batch.weights_R[counted],
        num_tokens=int(batch.attention_BT[:rows].sum()),
    )


def some_anchors(batch: Batch, count: int) -> Batch:
    """A batch with `count` of the anchors of each row, spread over it."""
    rows, anchors = batch.anchors_BA.shape
    ranks = torch.linspace(0, anchors - 1, min(count, anchors)).long()
    size = batch.live_AK.shape[1]
    place = torch.full((rows * anchors, size), -1)
    kept = torch.arange(rows * anchors).view(rows, anchors)[:, ranks].flatten()
    place[kept] = torch.arange(len(kept) * size).view(-1, size)
    moved = place.flatten()[batch.rows_R]
    return dataclasses.replace(
        batch,
        anchors_BA=batch.anchors_BA[:, ranks],
        valid_BA=batch.valid_BA[:, ranks],
        live_AK=batch.live_AK[kept],
        rows_R=moved[moved >= 0],
        labels_R=batch.labels_R[moved >= 0],
        weights_R=batch.weights_R[moved >= 0],
    )


def apart(one: Tensor, other: Tensor) -> float:
    """How far two tensors are from each other, as a share of their size; 0 is equal."""
    one, other = one.float(), other.float().to(one.device)
    size = max(float(one.norm()), float(other.norm()), 1e-30)
    return float((one - other).norm()) / size


def tolerance(dtype: torch.dtype) -> float:
    """How far apart two orders of summation may come in that type (`apart`)."""
    return 1e-4 if dtype == torch.float32 else 5e-2
