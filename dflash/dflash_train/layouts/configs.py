"""The `config.json` that serving engines read, in either layout; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dflash_train.layouts.geometry import (
    SPECULATORS_ARCHITECTURE,
    ZLAB_ARCHITECTURE,
    DraftGeometry,
    Layout,
)

SPECULATORS_VERSION = "0.9.0"
"""The version whose own code this layout was compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """The target as a published drafter names it."""

    name_or_path: str | None
    architectures: tuple[str, ...] = ()


def build_config(
    layout: Layout,
    geometry: DraftGeometry,
    verifier: Verifier,
    *,
    dtype: str,
    draft_vocab_size: int | None = None,
) -> dict[str, Any]:
    """All of `config.json`.

    Args:
        layout: which.
        geometry: of the drafter.
        verifier: the target it drafts for; only the speculators layout names it.
        dtype: of the tensors, `bfloat16`.
        draft_vocab_size: rows of a reduced lm_head (speculators only); None for all.
    """
    if layout == "zlab":
        return _zlab(geometry, dtype)
    return _speculators(geometry, verifier, dtype, draft_vocab_size or geometry.vocab_size)


def _qwen3(geometry: DraftGeometry, dtype: str) -> dict[str, Any]:
    """Qwen3 fields. RoPE stands in the new place and in the old: readers of both are in use."""
    slides = "sliding_attention" in geometry.layer_types
    return {
        "model_type": "qwen3",
        "hidden_size": geometry.hidden_size,
        "vocab_size": geometry.vocab_size,
        "num_hidden_layers": geometry.num_layers,
        "num_attention_heads": geometry.num_heads,
        "num_key_value_heads": geometry.num_kv_heads,
        "head_dim": geometry.head_dim,
        "intermediate_size": geometry.intermediate_size,
        "hidden_act": "silu",
        "rms_norm_eps": geometry.rms_norm_eps,
        "max_position_embeddings": geometry.max_position_embeddings,
        "rope_parameters": {"rope_type": "default", "rope_theta": geometry.rope_theta},
        "rope_theta": geometry.rope_theta,
        "rope_scaling": None,
        "layer_types": list(geometry.layer_types),
        "use_sliding_window": slides,
        "sliding_window": geometry.sliding_window if slides else None,
        "max_window_layers": geometry.num_layers,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "use_cache": True,
        "dtype": dtype,
        "torch_dtype": dtype,
    }


def _zlab(geometry: DraftGeometry, dtype: str) -> dict[str, Any]:
    return {
        "architectures": [ZLAB_ARCHITECTURE],
        **_qwen3(geometry, dtype),
        "num_target_layers": geometry.num_target_layers,
        "block_size": geometry.block_size,
        "dflash_config": {
            "mask_token_id": geometry.mask_token_id,
            "target_layer_ids": list(geometry.layer_ids),
            "block_size": geometry.block_size,
        },
    }


def _speculators(
    geometry: DraftGeometry, verifier: Verifier, dtype: str, draft_vocab_size: int
) -> dict[str, Any]:
    drafted = geometry.block_size - 1
    return {
        "architectures": [SPECULATORS_ARCHITECTURE],
        "speculators_model_type": "dflash",
        "speculators_version": SPECULATORS_VERSION,
        "speculators_config": {
            "algorithm": "dflash",
            "proposal_methods": [
                {
                    "proposal_type": "greedy",
                    "speculative_tokens": drafted,
                    "verifier_accept_k": 1,
                    "accept_tolerance": 0.0,
                }
            ],
            "default_proposal_method": "greedy",
            "verifier": {
                "name_or_path": verifier.name_or_path,
                "architectures": list(verifier.architectures),
            },
        },
        "transformer_layer_config": _qwen3(geometry, dtype),
        "draft_vocab_size": draft_vocab_size,
        "block_size": geometry.block_size,
        "target_hidden_size": geometry.hidden_size,
        "aux_hidden_state_layer_ids": [i + 1 for i in geometry.layer_ids],
        "mask_token_id": geometry.mask_token_id,
        "sliding_window_non_causal": False,
        "sample_from_anchor": False,
        "tie_word_embeddings": False,
        "dtype": dtype,
        "torch_dtype": dtype,
    }
