"""What the `config.json` of a published drafter says, whichever layout it has; imports no torch.

Layer ids: here, and in the z-lab layout, id i means the *output* of target layer i, which
transformers returns as hidden_states[i + 1]. The speculators layout writes that index itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dflash_train.config import LAYER_TYPES
from dflash_train.errors import CheckpointError

Layout = Literal["zlab", "speculators"]
LAYOUTS: tuple[Layout, ...] = ("zlab", "speculators")
CONFIG_NAME = "config.json"
ZLAB_ARCHITECTURE, SPECULATORS_ARCHITECTURE = "DFlashDraftModel", "DFlashSpeculator"

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftGeometry:
    """Shapes and rules of one drafter; the names of `DrafterConfig` where it has them."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    block_size: int
    layer_types: tuple[str, ...]
    sliding_window: int | None
    """Positions a sliding layer sees, its own included; None without sliding layers."""
    mask_token_id: int
    rope_theta: float
    rms_norm_eps: float
    hidden_size: int
    vocab_size: int
    layer_ids: tuple[int, ...]
    num_target_layers: int | None
    """None where the layout does not say it (speculators)."""
    max_position_embeddings: int

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor a serving engine loads, with its shape; both layouts use these names."""
        D, head, inner = self.hidden_size, self.head_dim, self.intermediate_size
        shapes: dict[str, tuple[int, ...]] = {
            "fc.weight": (D, len(self.layer_ids) * D),
            "hidden_norm.weight": (D,),
            "norm.weight": (D,),
        }
        layer: dict[str, tuple[int, ...]] = {
            "input_layernorm": (D,),
            "post_attention_layernorm": (D,),
            "self_attn.q_proj": (self.num_heads * head, D),
            "self_attn.k_proj": (self.num_kv_heads * head, D),
            "self_attn.v_proj": (self.num_kv_heads * head, D),
            "self_attn.o_proj": (D, self.num_heads * head),
            "self_attn.q_norm": (head,),
            "self_attn.k_norm": (head,),
            "mlp.gate_proj": (inner, D),
            "mlp.up_proj": (inner, D),
            "mlp.down_proj": (D, inner),
        }
        for i in range(self.num_layers):
            shapes |= {f"layers.{i}.{name}.weight": shape for name, shape in layer.items()}
        return shapes

    def settings(self) -> dict[str, dict[str, object]]:
        """The sections of a run's settings that make a drafter of this geometry."""
        drafter: dict[str, object] = {
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "block_size": self.block_size,
            "layer_types": list(self.layer_types),
            "mask_token_id": self.mask_token_id,
            "rope_theta": self.rope_theta,
            "rms_norm_eps": self.rms_norm_eps,
        }
        if self.sliding_window is not None:
            drafter["sliding_window"] = self.sliding_window
        return {"drafter": drafter, "target": {"layer_ids": list(self.layer_ids)}}


def load_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of a folder.

    Raises:
        CheckpointError: none there, or not an object.
    """
    file = folder / CONFIG_NAME
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(
            f"{file}: {error.strerror}", hint="give the folder of a published drafter"
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{file}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{file}: got {type(config).__name__}, expected an object")
    return config


def layout_of(config: Config) -> Layout | None:
    """Which layout this is; None for neither."""
    if config.get("speculators_model_type") is not None:
        return "speculators" if config["speculators_model_type"] == "dflash" else None
    is_zlab = ZLAB_ARCHITECTURE in (config.get("architectures") or []) or "dflash_config" in config
    return "zlab" if is_zlab else None


def geometry_of(config: Config, where: str) -> DraftGeometry:
    """The geometry in a `config.json` of either layout.

    Args:
        config: its content.
        where: names it in errors.

    Raises:
        CheckpointError: neither layout, a key is missing, or something this drafter cannot be.
    """
    layout = layout_of(config)
    if layout is None:
        raise CheckpointError(
            f"{where}: no DFlash drafter, architectures {config.get('architectures')}",
            hint=f"expected {ZLAB_ARCHITECTURE} or {SPECULATORS_ARCHITECTURE}",
        )
    try:
        return _geometry(config, layout)
    except (KeyError, TypeError, ValueError) as error:
        missing = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(f"{where}: {layout} layout: {missing}") from error


def layers_section(config: Config) -> Config:
    """The Qwen3 fields: the top level, or `transformer_layer_config`."""
    section: Config = config.get("transformer_layer_config", config)
    return section


def _geometry(config: Config, layout: Layout) -> DraftGeometry:
    layers = layers_section(config)
    num_layers = int(layers["num_hidden_layers"])
    types = tuple(layers.get("layer_types") or ["full_attention"] * num_layers)
    if len(types) != num_layers or not set(types) <= set(LAYER_TYPES):
        raise ValueError(f"layer_types {list(types)} for {num_layers} layers")
    if layers.get("attention_bias"):
        raise ValueError("attention_bias is true, this drafter has none")
    slides = "sliding_attention" in types
    return DraftGeometry(
        num_layers=num_layers,
        num_heads=int(layers["num_attention_heads"]),
        num_kv_heads=int(layers["num_key_value_heads"]),
        head_dim=int(
            layers.get("head_dim") or layers["hidden_size"] // layers["num_attention_heads"]
        ),
        intermediate_size=int(layers["intermediate_size"]),
        block_size=block_sizes(config)[0],
        layer_types=types,
        sliding_window=int(layers["sliding_window"]) if slides else None,
        mask_token_id=_mask_token(config, layout),
        rope_theta=rope_theta(layers),
        rms_norm_eps=float(layers.get("rms_norm_eps", 1e-6)),
        hidden_size=int(layers["hidden_size"]),
        vocab_size=int(layers["vocab_size"]),
        layer_ids=_layer_ids(config, layout),
        num_target_layers=config.get("num_target_layers"),
        max_position_embeddings=int(layers["max_position_embeddings"]),
    )


def block_sizes(config: Config) -> list[int]:
    """All that is said about the block size: top level first, then `dflash_config`.

    Raises:
        KeyError: nothing is said.
    """
    found = [config.get("block_size"), config.get("dflash_config", {}).get("block_size")]
    sizes = [int(size) for size in found if size is not None]
    if not sizes:
        raise KeyError("block_size")
    return sizes


def rope_theta(layers: Config) -> float:
    """The base of the rotary embedding, from the new place or the old one.

    Raises:
        KeyError: in neither.
        ValueError: not plain RoPE over whole heads, which is all this drafter has.
    """
    rope = layers.get("rope_parameters") or {}
    if any(isinstance(value, Mapping) for value in rope.values()):
        raise ValueError(f"rope_parameters by layer type ({', '.join(rope)}), expected one for all")
    kind = rope.get("rope_type", "default")
    factor = rope.get("partial_rotary_factor", layers.get("partial_rotary_factor", 1.0))
    if kind != "default" or layers.get("rope_scaling") or factor != 1.0:
        scaling = layers.get("rope_scaling")
        raise ValueError(
            f"rope type {kind}, scaling {scaling}, partial factor {factor}; expected plain RoPE"
        )
    theta = rope.get("rope_theta", layers.get("rope_theta"))
    if theta is None:
        raise KeyError("rope_theta")
    return float(theta)


def _mask_token(config: Config, layout: Layout) -> int:
    section = config["dflash_config"] if layout == "zlab" else config
    if section.get("mask_token_id") is None:
        raise KeyError("mask_token_id")
    return int(section["mask_token_id"])


def _layer_ids(config: Config, layout: Layout) -> tuple[int, ...]:
    if layout == "zlab":
        return tuple(int(i) for i in config["dflash_config"]["target_layer_ids"])
    return tuple(int(i) - 1 for i in config["aux_hidden_state_layer_ids"])
