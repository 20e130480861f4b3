"""What an evaluation looks at: a checkpoint of a run, or a published drafter beside its target."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from dflash_train import checkpoint
from dflash_train.config import Config
from dflash_train.data import Document
from dflash_train.devices import check_devices, use_device
from dflash_train.draft import Draft
from dflash_train.errors import UsageError
from dflash_train.evaluation import Evaluation, Evaluator
from dflash_train.materials import make_materials, new_drafter
from dflash_train.settings import merge, parse_overrides, resolve
from dflash_train.targets import FeatureTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A drafter with what it takes to decode with it."""

    name: str
    """For people: which it is."""
    step: int | None
    """Optimizer steps done; None for a published drafter."""
    config: Config
    weights: Mapping[str, Tensor]
    run_dir: Path
    """Where the tiny target of a run is kept."""


def of_run(run_dir: Path | None, path: Path | None) -> Subject:
    """The newest checkpoint of a run, or the one at `path`.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    found = (
        checkpoint.load_newest(run_dir.absolute())
        if run_dir is not None
        else checkpoint.load(Path(str(path)).absolute())
    )
    return Subject(
        name=f"{found.path}, step {found.step}",
        step=found.step,
        config=found.config,
        weights=found.weights,
        run_dir=found.path.parent.parent,
    )


def of_published(folder: Path, target: str) -> Subject:
    """A drafter in a published layout, with the target it was made for.

    Raises:
        CheckpointError: not a drafter.
        UsageError: not a target.
    """
    from dflash_train.layouts.weights import read_published  # noqa: PLC0415  (only here)
    from dflash_train.target_facts import settle  # noqa: PLC0415

    published = read_published(folder)
    if published.reduced is not None:
        raise UsageError(f"--drafter {folder}: speaks a reduced vocabulary; not evaluated here")
    asked = merge(
        resolve("dflash", None, [f"target.path={target}"]),
        published.geometry.settings(),
        str(folder),
    )
    config = settle(asked).check()
    if config.target.hidden_size != published.geometry.hidden_size:
        raise UsageError(
            f"--drafter {folder}: hidden size {published.geometry.hidden_size}, the target's is"
            f" {config.target.hidden_size}",
            hint="a drafter fits the target it was trained with only",
        )
    return Subject(
        name=f"{folder} ({published.layout} layout) over {target}",
        step=None,
        config=config,
        weights=published.weights,
        run_dir=folder,
    )


def with_settings(
    subject: Subject, settings: Sequence[str], data: Path | None, device: str
) -> Subject:
    """The subject on one device, with other settings and other data.

    Raises:
        UsageError: they cannot be used; says which.
    """
    config = parse_overrides(
        subject.config, [f"target.devices={device}", f"drafter.devices={device}", *settings]
    )
    if data is not None:
        from dflash_train.corpus.settle import settle_data  # noqa: PLC0415  (Arrow)

        changed = dataclasses.replace(config.data, path=str(data), buckets=(), fingerprint=None)
        config = settle_data(dataclasses.replace(config, data=changed))
    check_devices(config.check())
    return dataclasses.replace(subject, config=config)


def evaluate(subject: Subject, *, all_documents: bool) -> Evaluation:
    """Decode prompts of the documents held out, or of all documents.

    Raises:
        DflashError: it cannot be done.
    """
    config = subject.config
    device = config.drafter.devices[0]
    transformers_logging.set_verbosity_error()
    torch.set_num_threads(config.pipeline.num_threads)
    use_device(device)
    materials = make_materials(config, subject.run_dir, lambda _: None)
    drafter = new_drafter(config)
    drafter.load_state_dict(dict(subject.weights))
    draft = Draft(
        drafter=drafter.to(device),
        embedding_VD=materials.embedding_VD.to(device),
        head_VD=materials.head_VD.to(device),
        config=config,
    )
    target = FeatureTarget(materials.decoder, config.target.layer_ids, device)
    documents: Sequence[Document] = materials.held_out
    if all_documents:
        from dflash_train.corpus.documents import all_documents as read  # noqa: PLC0415  (Arrow)

        documents = read(config)
    return Evaluator(config, target, draft, documents).run(lambda: None)
