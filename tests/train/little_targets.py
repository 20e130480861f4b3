"""Targets of several families, a few layers deep, saved as their publishers save them."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPVisionConfig,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

VOCAB, HIDDEN, LAYERS = 128, 64, 4
SIZE = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
}
HYBRID = {
    **SIZE,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}


def qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**SIZE, tie_word_embeddings=True))


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZE, tie_word_embeddings=False))


def hybrid() -> PreTrainedModel:
    return Qwen3_5ForCausalLM(Qwen3_5TextConfig(**HYBRID, tie_word_embeddings=True))


def capped() -> PreTrainedModel:
    """Scales its embedding, and caps its logits below what they are."""
    size = {**SIZE, "initializer_range": 0.5}
    return Gemma2ForCausalLM(
        Gemma2Config(**size, query_pre_attn_scalar=16, final_logit_softcapping=2.0)
    )


def hybrid_wrapper() -> PreTrainedModel:
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2}
    return Qwen3_5ForConditionalGeneration(
        Qwen3_5Config(
            text_config={**HYBRID, "tie_word_embeddings": True},
            vision_config={**vision, "out_hidden_size": HIDDEN},
            tie_word_embeddings=True,
        )
    )


def llava_wrapper() -> PreTrainedModel:
    vision = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    return LlavaForConditionalGeneration(
        LlavaConfig(text_config=LlamaConfig(**SIZE), vision_config=vision)
    )


def encoder_decoder() -> PreTrainedModel:
    return T5ForConditionalGeneration(
        T5Config(vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    )


DECODERS = (qwen3, llama, hybrid, hybrid_wrapper, llava_wrapper)


def save(make, folder: Path, *, tokens: int = VOCAB - 2, **how) -> PreTrainedModel:
    """The model that `make` builds, from one seed, with a tokenizer of `tokens` words, on disk."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        model = make().float().eval()
    model.save_pretrained(folder, **how)
    save_tokenizer(folder, tokens)
    return model


def save_tokenizer(folder: Path, tokens: int, **more) -> None:
    words = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(tokens - 3))]
    numbers = {word: number for number, word in enumerate(words)}
    fast = Tokenizer(models.WordLevel(numbers, unk_token="w0"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "w0"}
    PreTrainedTokenizerFast(tokenizer_object=fast, **special, **more).save_pretrained(folder)
