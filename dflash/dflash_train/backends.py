"""The libraries behind `track.to`; each is imported in its tracker's thread, when asked for."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dflash_train.config import Config
from dflash_train.settings import as_mapping
from dflash_train.tracking import Backend, Figures

logger = logging.getLogger(__name__)

WANDB_ID_NAME, TENSORBOARD_NAME = "wandb-id", "tensorboard"


def backends_of(config: Config, run_dir: Path, first_step: int) -> dict[str, Callable[[], Backend]]:
    """What makes each tracker that `track.to` names.

    Args:
        config: which, and what is told of the run.
        run_dir: where they keep their files.
        first_step: steps done before; what was told beyond them is told again.
    """
    made: dict[str, Callable[[], Backend]] = {
        "wandb": partial(_Wandb, config, run_dir),
        "tensorboard": partial(_TensorBoard, config, run_dir, first_step),
    }
    return {name: made[name] for name in config.track.to}


class _Wandb:
    """One run of Weights & Biases for one run directory, also when it is resumed.

    Its own environment variables (WANDB_MODE=offline, WANDB_ENTITY, ...) hold.
    """

    def __init__(self, config: Config, run_dir: Path) -> None:
        import wandb  # noqa: PLC0415  (seconds, and optional)

        self._run: Any = wandb.init(  # its classes are typed for its own use
            project=config.track.project,
            name=config.track.name or run_dir.name,
            id=_kept_id(run_dir),
            resume="allow",
            dir=str(run_dir),
            config=as_mapping(config),
            settings=wandb.Settings(console="off", silent=True),
        )
        # our own step as the axis: a resumed run goes back behind what it told last
        self._run.define_metric("*", step_metric="step")
        logger.info("wandb: %s", self._run.dir if self._run.offline else self._run.url)

    def write(self, step: int, figures: Figures) -> None:
        self._run.log({"step": step, **figures})

    def finish(self) -> None:
        self._run.finish()


def _kept_id(run_dir: Path) -> str:
    file = run_dir / WANDB_ID_NAME
    if not file.exists():
        file.write_text(uuid.uuid4().hex[:12], encoding="ascii")
    return file.read_text(encoding="ascii")


class _TensorBoard:
    """Scalars in `tensorboard/` of the run directory."""

    def __init__(self, config: Config, run_dir: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  (seconds, and optional)

        folder = run_dir / TENSORBOARD_NAME
        self._writer: Any = SummaryWriter(str(folder), purge_step=first_step + 1, flush_secs=10)
        text = json.dumps(as_mapping(config), indent=1)
        self._writer.add_text("config", f"```\n{text}\n```", first_step)
        logger.info("tensorboard: tensorboard --logdir %s", folder)

    def write(self, step: int, figures: Figures) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def finish(self) -> None:
        self._writer.close()
