"""What values of a configuration can work: one row a rule, across sections where it must be."""

from __future__ import annotations

from dflash_train.config import (
    COMPUTE_DTYPES,
    DRILLS,
    DTYPES,
    LAYER_TYPES,
    TRACKERS,
    WEIGHTINGS,
    Config,
)
from dflash_train.plan.check import CHECKS


def rules(c: Config) -> tuple[tuple[str, bool, str], ...]:
    """Every rule of a configuration: its key, whether it holds, what is expected."""
    layers = range(c.target.num_layers)
    is_settled = c.target.path is None or c.target.fingerprint is not None
    is_made_up = c.data.path is None
    is_known = is_made_up or c.data.fingerprint is not None
    special = ", ".join(map(str, c.target.special_ids))
    longest = c.data.buckets[-1] if c.data.buckets else 0
    return (
        ("target.devices", bool(c.target.devices), "at least one device"),
        ("drafter.devices", bool(c.drafter.devices), "at least one device"),
        (
            "target.layer_ids",
            not is_settled
            or (
                bool(c.target.layer_ids)
                and list(c.target.layer_ids) == sorted(set(c.target.layer_ids))
                and all(i in layers for i in c.target.layer_ids)
            ),
            f"layers of the target in rising order, 0 to {c.target.num_layers - 1}",
        ),
        ("target.num_features", c.target.num_features >= 1, "1 or more"),
        ("target.dtype", c.target.dtype in DTYPES, f"one of {', '.join(DTYPES)}"),
        ("drafter.block_size", c.drafter.block_size >= 2, "2 or more"),
        (
            "drafter.layer_types",
            len(c.drafter.layer_types) == c.drafter.num_layers
            and all(kind in LAYER_TYPES for kind in c.drafter.layer_types),
            f"{c.drafter.num_layers} of {', '.join(LAYER_TYPES)}",
        ),
        (
            "drafter.sliding_window",
            c.drafter.sliding_window >= c.drafter.block_size
            or "sliding_attention" not in c.drafter.layer_types,
            f"a block ({c.drafter.block_size}) or more",
        ),
        (
            "drafter.mask_token_id",
            not (is_settled and is_known)
            or (
                c.drafter.mask_token_id not in c.target.special_ids
                and 0 <= c.drafter.mask_token_id < c.data.vocab_size
            ),
            f"a token below {c.data.vocab_size} that is not pad, start or end ({special})",
        ),
        (
            "drafter.intermediate_size",
            c.drafter.intermediate_size >= 1 or not is_settled,
            "1 or more",
        ),
        (
            "data.buckets",
            (bool(c.data.buckets) or not is_known)
            and list(c.data.buckets) == sorted(set(c.data.buckets)),
            "lengths, each larger than the one before",
        ),
        (
            "data.min_length",
            not is_made_up or c.drafter.block_size + 16 <= c.data.min_length <= longest,
            f"a block and a prompt ({c.drafter.block_size + 16}) up to the last bucket ({longest})",
        ),
        ("data.max_length", c.data.max_length >= c.drafter.block_size, "a block or more"),
        ("data.held_out", c.data.held_out >= 0, "0 or more"),
        ("data.rows", c.data.rows >= 1, "1 or more"),
        ("data.num_rules", 1 <= c.data.num_rules <= 8, "1 to 8"),
        ("data.vocab_size", c.data.vocab_size >= 32, "32 or more"),
        (
            "data.num_documents",
            not is_known or c.data.num_documents >= c.data.rows * c.batches_per_step,
            f"enough for one step ({c.data.rows * c.batches_per_step})",
        ),
        (
            "pipeline.queue_capacity",
            c.pipeline.queue_capacity >= c.num_drafters,
            f"one batch for each of the {c.num_drafters} drafters, or more",
        ),
        ("pipeline.loader_capacity", c.pipeline.loader_capacity >= 1, "1 or more"),
        ("optim.steps", c.optim.steps >= 1, "1 or more"),
        ("optim.lr", c.optim.lr > 0, "above 0"),
        ("optim.accumulation", c.optim.accumulation >= 1, "1 or more"),
        (
            "optim.compute_dtype",
            c.optim.compute_dtype in COMPUTE_DTYPES,
            f"one of {', '.join(COMPUTE_DTYPES)}",
        ),
        ("optim.max_skipped", c.optim.max_skipped >= 1, "1 or more"),
        ("loss.num_anchors", c.loss.num_anchors >= 1, "1 or more"),
        ("loss.decay", c.loss.decay is None or c.loss.decay > 0, "above 0, or none"),
        ("loss.weighting", c.loss.weighting in WEIGHTINGS, f"one of {', '.join(WEIGHTINGS)}"),
        ("loss.pace_floor", 0 < c.loss.pace_floor <= 1, "above 0, 1 at most"),
        ("loss.chunk_rows", c.loss.chunk_rows >= 1, "1 or more"),
        ("eval.every_steps", c.eval.every_steps >= 0, "0 or more"),
        ("eval.prompts", c.eval.prompts >= 1, "1 or more"),
        ("eval.new_tokens", c.eval.new_tokens >= 2, "2 or more"),
        ("checkpoint.keep", c.checkpoint.keep >= 1, "1 or more"),
        ("report.every_steps", c.report.every_steps >= 1, "1 or more"),
        (
            "plan.override",
            set(c.plan.override) <= set(CHECKS),
            f"names of checks: {', '.join(CHECKS)}",
        ),
        ("plan.memory_margin", 0 <= c.plan.memory_margin < 1, "0 or more, below 1"),
        (
            "track.to",
            set(c.track.to) <= set(TRACKERS),
            f"none, or some of {', '.join(TRACKERS)}",
        ),
        (
            "drill.fault",
            c.drill.fault is None or c.drill.fault in DRILLS,
            f"one of {', '.join(DRILLS)}",
        ),
        (
            "drill.worker",
            c.drill.fault is None
            or (bool(c.drill.worker) and set(c.drill.worker) <= set(c.worker_names())),
            f"one of {', '.join(c.worker_names())}",
        ),
        (
            "drill.fault",
            c.drill.fault != "lock-cycle" or c.num_drafters >= 2,
            "another fault: a lock cycle needs two drafters",
        ),
    )
