"""Every setting of a run, frozen; imports neither torch nor transformers.

What their values may be stands in `config_rules`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dflash_train.errors import UsageError

DRILLS = (
    "raise", "lock-cycle", "stop-taking", "stop-giving", "gil-busy", "gil-asleep", "gil-hog",
    "data-starvation", "nan-loss", "memory-leak", "slow-disk",
)  # fmt: skip
TRACKERS = ("wandb", "tensorboard")
LAYER_TYPES = ("full_attention", "sliding_attention")
WEIGHTINGS = ("decay", "dpace", "uniform")
COMPUTE_DTYPES = ("auto", "float32", "bfloat16")
DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """The frozen model that gives the features."""

    path: str | None = None
    """Local folder or hub id; None: a tiny hybrid is built and taught on the spot."""
    devices: tuple[str, ...] = ("cpu", "cpu")
    """One replica, and one worker, each."""
    layer_ids: tuple[int, ...] = (0, 1, 2)
    """Layers whose output is a feature: layer i gives hidden_states[i + 1]. Empty, with a path:
    `num_features` of them, spread from the second to the third-last."""
    num_features: int = 5
    dtype: str = "auto"
    """Of the target's weights: float32 where a replica is on the CPU, else the checkpoint's own."""
    allow_slow_kernels: bool = False
    """On a GPU: go on although linear attention runs the reference, several times slower."""
    fingerprint: str | None = None
    """Of configuration and weights; found when the run begins, compared when it is resumed."""
    special_ids: tuple[int, ...] = (0, 1, 2)
    """Pad, start and end of text: none may be the mask token. Read from a target with a path."""
    hidden_size: int = 64
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    intermediate_size: int = 128
    initializer_range: float = 0.125
    """Wide: features of a narrowly initialised tiny model teach little (loss stays near 2.5)."""
    pretrain_steps: int = 60
    """Optimizer steps of the tiny target before it is frozen; 0 leaves it random."""
    pretrain_lr: float = 4e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterConfig:
    """The model that is trained."""

    devices: tuple[str, ...] = ("cpu", "cpu")
    """One replica, and one worker, each; gradients are averaged."""
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    intermediate_size: int = 128
    """0: the target's."""
    block_size: int = 8
    """Positions of a block, anchor included; one less is drafted in a pass."""
    layer_types: tuple[str, ...] = ("sliding_attention", "full_attention")
    """One a layer. Sliding: causal in the block, with the window; full: both directions."""
    sliding_window: int = 64
    """Positions a sliding layer sees, its own included, as serving engines count them."""
    mask_token_id: int = 3
    """Stands at the drafted positions; neither pad nor end of text. -1: the target's own mask
    token, one that published drafters use, or the first row of the embedding no token uses."""
    init: str | None = None
    """Folder of a published drafter to go on from, in either layout; None: new weights."""
    rope_theta: float = 1e7
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """What is learned from."""

    path: str | None = None
    """A folder of `prepare`, or a file that is prepared first; None: documents made on the spot."""
    fingerprint: str | None = None
    """Of prepared data; found when the run begins, compared when it is resumed."""
    max_length: int = 3072
    """Tokens a document is cut at, when a file is prepared first."""
    thinking: bool | None = None
    """`enable_thinking` of the chat template, when a file is prepared first; none: its own."""
    held_out: int = 64
    """Conversations of prepared data that are never trained on; at most a tenth of them."""
    num_documents: int = 768
    vocab_size: int = 128
    num_rules: int = 4
    """Orders in which the made-up documents go through the vocabulary."""
    min_length: int = 40
    """Tokens of the shortest document; longer than a block."""
    rows: int = 4
    """Documents of one batch."""
    buckets: tuple[int, ...] = (64, 96, 128)
    """Lengths that batches are padded to, on the right; the last bounds a document. Empty, with a
    path: those that prepared data pad least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """How workers are joined."""

    queue_capacity: int = 8
    """Batches of hidden states the queue may hold; at least the number of drafters."""
    loader_capacity: int = 4
    num_threads: int = 1
    """Threads inside one operation (torch); 1 keeps a CPU run repeatable and fair."""
    stop_grace_s: float = 30.0
    """How long workers may take to reach the end of a step after a stop request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimConfig:
    """AdamW with a cosine after a linear warm-up."""

    steps: int = 320
    lr: float = 3e-3
    min_lr_ratio: float = 0.1
    warmup_ratio: float = 0.04
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    accumulation: int = 1
    """Batches of one drafter in one optimizer step."""
    gradient_checkpointing: bool = False
    """Layers are computed again in backward instead of kept: less memory, a third more time."""
    compute_dtype: str = "auto"
    """Of forward and backward; weights, moments and sums stay float32. auto: bfloat16 on a GPU."""
    max_skipped: int = 100
    """Steps in a row that may be left out for a gradient that is not finite; then the run fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """Cross-entropy over blocks that start at random anchors."""

    num_anchors: int = 16
    """Blocks of one document, fresh each step; fixed, so shapes are fixed."""
    weighting: str = "decay"
    """decay: falls along the block; dpace: by what a position adds to the expected acceptance as
    the drafter stands; uniform: all alike."""
    decay: float | None = None
    """Positions until the weight has fallen by 1/e; none: 7, 5, 4 for blocks of 16, 10, 8."""
    pace_floor: float = 0.5
    """dpace: chance that even the unlikeliest position counts with; 0.3 to 0.7 work alike."""
    chunk_rows: int = 1024
    """Rows of one lm_head product; bounds the memory of the logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """True acceptance: held-out prompts are decoded, draft by draft."""

    every_steps: int = 0
    """While training, and then at its end too; 0: never, `dflash-train evaluate` still can."""
    prompts: int = 16
    new_tokens: int = 64
    """Generated for each prompt at most; on the smallest target a few milliseconds each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """What is kept for resuming."""

    every_steps: int = 100
    """0: only at the end and on a stop request."""
    keep: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfig:
    """What is said while training."""

    every_steps: int = 5
    expected_tokens_per_s: float | None = None
    """What this run should reach; written into run.json for the watchdog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfig:
    """What is checked before training."""

    override: tuple[str, ...] = ()
    """Checks that may fail; each name stands in run.json."""
    memory_margin: float = 0.05
    """Share of a device's memory that has to stay free at the largest bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackConfig:
    """Trackers that are told the figures beside the log."""

    to: tuple[str, ...] = ()
    """wandb, tensorboard, or both by commas."""
    project: str = "dflash"
    """Of Weights & Biases."""
    name: str | None = None
    """What the run is called there; none: the name of its directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillConfig:
    """A fault on purpose, to see that it is noticed. Never set in a real run."""

    fault: str | None = None
    worker: tuple[str, ...] = ("drafter-1",)
    """Whom it befalls; several by commas."""
    at_step: int = 40
    """-1: while warming up (`raise` only)."""
    trigger: str | None = None
    """A file: the fault waits until it is there."""
    seconds: float = 3600.0
    """How long a drill that sleeps or spins lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One run."""

    preset: str = "tiny"
    seed: int = 0
    target: TargetConfig = field(default_factory=TargetConfig)
    drafter: DrafterConfig = field(default_factory=DrafterConfig)
    data: DataConfig = field(default_factory=DataConfig)
    pipeline: PipelineConfig = field(default_factory=PipelineConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    plan: PlanConfig = field(default_factory=PlanConfig)
    track: TrackConfig = field(default_factory=TrackConfig)
    drill: DrillConfig = field(default_factory=DrillConfig)

    @property
    def num_targets(self) -> int:
        """Target workers."""
        return len(self.target.devices)

    @property
    def num_drafters(self) -> int:
        """Drafter workers."""
        return len(self.drafter.devices)

    @property
    def batches_per_step(self) -> int:
        """Batches of one optimizer step over all drafters."""
        return self.num_drafters * self.optim.accumulation

    @property
    def decay(self) -> float:
        """Decay of the loss weights in positions; infinite where all weigh alike."""
        if self.loss.weighting != "decay":
            return math.inf
        return self.loss.decay or default_decay(self.drafter.block_size)

    def worker_names(self) -> tuple[str, ...]:
        """All workers, in pipeline order."""
        return (
            "loader",
            *(f"target-{i}" for i in range(self.num_targets)),
            *(f"drafter-{i}" for i in range(self.num_drafters)),
        )

    def check(self) -> Config:
        """Refuse what cannot work; returns itself.

        Raises:
            UsageError: names the key, what was seen and what is expected.
        """
        from dflash_train.config_rules import rules  # noqa: PLC0415  (it needs these sections)

        for key, is_ok, expected in rules(self):
            if not is_ok:
                raise UsageError(f"{key}: got {_value(self, key)!r}, expected {expected}")
        return self


def default_decay(block_size: int) -> float:
    """7, 5, 4 positions for blocks of 16, 10, 8 (DFlash paper), straight lines between."""
    return min(block_size / 2, 5 + (block_size - 10) / 3)


def _value(config: Config, key: str) -> object:
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name) if name else getattr(config, section)
