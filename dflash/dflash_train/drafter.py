"""The DFlash drafter: Qwen3-style layers whose keys and values start with the target's features.

Letters: B rows, T context tokens, N block positions, D hidden, F features concatenated, H heads,
C tokens of the context that a cache holds. Embedding and lm_head are the target's and not in here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3MLP,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
    apply_rotary_pos_emb,
    repeat_kv,
)

from dflash_train.config import DrafterConfig

Rope = tuple[Tensor, Tensor]


def qwen3_config(drafter: DrafterConfig, hidden_size: int, vocab_size: int) -> Qwen3Config:
    """The geometry as transformers writes it down; plain RoPE over whole heads."""
    return Qwen3Config(
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        num_hidden_layers=drafter.num_layers,
        num_attention_heads=drafter.num_heads,
        num_key_value_heads=drafter.num_kv_heads,
        head_dim=drafter.head_dim,
        intermediate_size=drafter.intermediate_size,
        layer_types=list(drafter.layer_types),
        use_sliding_window="sliding_attention" in drafter.layer_types,
        sliding_window=drafter.sliding_window,
        rms_norm_eps=drafter.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": drafter.rope_theta},
        attention_bias=False,
        tie_word_embeddings=False,
    )


class DraftAttention(nn.Module):
    """Block positions ask; context and block answer, through the same key and value weights."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        D, head = config.hidden_size, config.head_dim
        self.head_dim = head
        self.groups = config.num_attention_heads // config.num_key_value_heads
        self.q_proj = nn.Linear(D, config.num_attention_heads * head, bias=False)
        self.k_proj = nn.Linear(D, config.num_key_value_heads * head, bias=False)
        self.v_proj = nn.Linear(D, config.num_key_value_heads * head, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * head, D, bias=False)
        self.q_norm = Qwen3RMSNorm(head, eps=config.rms_norm_eps)
        self.k_norm = Qwen3RMSNorm(head, eps=config.rms_norm_eps)

    def keys_values(self, hidden_BXD: Tensor, rope: Rope) -> tuple[Tensor, Tensor]:
        """Normed and turned keys, and values, of context or block; each [B, Hkv, X, head]."""
        shape = (*hidden_BXD.shape[:2], -1, self.head_dim)
        keys = self.k_norm(self.k_proj(hidden_BXD).view(shape)).transpose(1, 2)
        values = self.v_proj(hidden_BXD).view(shape).transpose(1, 2)
        turned, _ = apply_rotary_pos_emb(keys, keys, *rope)
        return turned, values

    def forward(
        self,
        block_BND: Tensor,
        context_kv: tuple[Tensor, Tensor],
        rope: Rope,
        mask_BNS: Tensor | None,
    ) -> Tensor:
        """Attention of the block positions over `[context | blocks]`; [B, N, D]."""
        B, N, _ = block_BND.shape
        queries = self.q_norm(self.q_proj(block_BND).view(B, N, -1, self.head_dim)).transpose(1, 2)
        queries, _ = apply_rotary_pos_emb(queries, queries, *rope)
        block_keys, block_values = self.keys_values(block_BND, rope)
        keys = torch.cat([context_kv[0], block_keys], dim=2)
        values = torch.cat([context_kv[1], block_values], dim=2)
        mixed = functional.scaled_dot_product_attention(
            queries,
            repeat_kv(keys, self.groups),
            repeat_kv(values, self.groups),
            attn_mask=None if mask_BNS is None else mask_BNS[:, None],
        )
        return self.o_proj(mixed.transpose(1, 2).reshape(B, N, -1))


class DraftLayer(nn.Module):
    """Attention and MLP around residuals. The context passes neither norm nor MLP."""

    def __init__(self, config: Qwen3Config, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.input_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.self_attn = DraftAttention(config)
        self.post_attention_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = Qwen3MLP(config)

    def forward(
        self,
        block_BND: Tensor,
        context_kv: tuple[Tensor, Tensor],
        rope: Rope,
        mask_BNS: Tensor | None,
    ) -> Tensor:
        """[B, N, D] to [B, N, D]."""
        normed = self.input_layernorm(block_BND)
        block_BND = block_BND + self.self_attn(normed, context_kv, rope, mask_BNS)
        return block_BND + self.mlp(self.post_attention_layernorm(block_BND))

    def over_context(
        self,
        block_BND: Tensor,
        context_BTD: Tensor,
        context_rope: Rope,
        block_rope: Rope,
        mask_BNS: Tensor,
    ) -> Tensor:
        """The layer over a context without a cache; [B, N, D]."""
        context_kv = self.self_attn.keys_values(context_BTD, context_rope)
        out_BND: Tensor = self(block_BND, context_kv, block_rope, mask_BNS)
        return out_BND


class Drafter(nn.Module):
    """`fc` and `hidden_norm` make the context; `layers` and `norm` the block.

    Args:
        config: geometry, from `qwen3_config`.
        num_features: target layers whose outputs are concatenated; F = num_features * D.
    """

    def __init__(self, config: Qwen3Config, num_features: int) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(num_features * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.stack = tuple(DraftLayer(config, kind) for kind in config.layer_types)
        self.layers = nn.ModuleList(self.stack)
        self.norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = Qwen3RotaryEmbedding(config)
        self.recompute = False
        """Layers are computed again in backward instead of kept (gradient checkpointing)."""

    def initialise(self, std: float, generator: torch.Generator) -> None:
        """Normal weights, gains of one, from one stream; the same on every replica."""
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(0.0, std, generator=generator)
                else:
                    parameter.fill_(1.0)

    def context(self, features_BTF: Tensor) -> Tensor:
        """Target features to the context that all layers share; [B, T, D]."""
        return self.hidden_norm(self.fc(features_BTF))

    def forward(
        self,
        features_BTF: Tensor,
        embeds_BND: Tensor,
        positions_BN: Tensor,
        masks: dict[str, Tensor],
    ) -> Tensor:
        """Hidden states of all block positions, after the last norm.

        Args:
            features_BTF: concatenated outputs of the chosen target layers, position by position.
            embeds_BND: the anchor's embedding at position 0 of a block, the mask token's elsewhere.
            positions_BN: absolute positions of the block rows.
            masks: layer type to [B, N, T + N], from `masks.masks_for`.

        Returns:
            [B, N, D].
        """
        context_BTD = self.context(features_BTF)
        tokens = torch.arange(features_BTF.shape[1], device=features_BTF.device)[None]
        context_rope = self.rotary_emb(context_BTD, tokens)
        block_rope = self.rotary_emb(context_BTD, positions_BN)
        hidden_BND = embeds_BND
        for layer in self.stack:
            parts = (hidden_BND, context_BTD, context_rope, block_rope, masks[layer.kind])
            if self.recompute and torch.is_grad_enabled():
                hidden_BND = checkpoint(
                    layer.over_context, *parts, use_reentrant=False, preserve_rng_state=False
                )
            else:
                hidden_BND = layer.over_context(*parts)
        return self.norm(hidden_BND)
