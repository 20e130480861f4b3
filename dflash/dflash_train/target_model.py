"""A target's weights in memory: the language model, its inner decoder, its layers.

A multimodal wrapper gives its text part; the lm_head is only ever read, never run, by features.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils import logging as transformers_logging

from dflash_train.config import TargetConfig
from dflash_train.errors import UsageError
from dflash_train.gated_delta import use_reference_on_cpu
from dflash_train.target_files import find_target

logger = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def model_class(config: Any) -> Any | None:  # noqa: ANN401  (its class varies by family)
    """The auto class that builds a language model from `config`; None where there is none."""
    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
        if type(config) in auto._model_mapping:  # noqa: SLF001  (no public way to ask)
            return auto
    return None


def load_target(config: TargetConfig) -> nn.Module:
    """The frozen language model of `target.path`, on the CPU.

    Returns:
        A transformers model; `decoder_of`, `embedding_of` and `head_of` take it apart.

    Raises:
        UsageError: not readable, or weights are missing in it.
    """
    folder = find_target(config.path or "")
    whole = AutoConfig.from_pretrained(folder, local_files_only=True)
    auto = model_class(whole)
    if auto is None:
        raise UsageError(f"target {folder}: {whole.model_type} is no language model")
    say_less()
    try:
        model, told = auto.from_pretrained(
            folder,
            dtype=_dtype(config),
            local_files_only=True,
            output_loading_info=True,
        )
    except (OSError, RuntimeError, ValueError) as error:
        cause = " ".join(str(error).split())
        raise UsageError(f"target {folder}: weights do not load: {cause[:200]}") from error
    _refuse_holes(folder, told)
    model.eval().requires_grad_(requires_grad=False)
    use_reference_on_cpu(model)
    return cast("nn.Module", model)


def say_less() -> None:
    """What loads is said in our own lines; the library's bar only where somebody looks."""
    transformers_logging.set_verbosity_error()
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()


def decoder_of(model: nn.Module) -> nn.Module:
    """The inner decoder: embedding, layers and last norm, no lm_head."""
    decoder = cast("Any", model).get_decoder()
    layers_of(decoder)
    return cast("nn.Module", decoder)


def layers_of(decoder: nn.Module) -> nn.ModuleList:
    """The decoder's layers, whatever the family calls them.

    Raises:
        UsageError: no list of `num_hidden_layers` modules in it.
    """
    count = cast("Any", decoder).config.get_text_config(decoder=True).num_hidden_layers
    lists = [
        (name.count("."), module)
        for name, module in decoder.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == count
    ]
    if not lists:
        kind = type(decoder).__name__
        raise UsageError(f"target: no list of {count} layers in {kind}, expected a decoder's")
    return min(lists, key=lambda pair: pair[0])[1]


def embedding_of(model: nn.Module) -> Tensor:
    """What each token enters the decoder as, frozen; [V, D]. The table, or what is made of it."""
    module = cast("Any", model).get_input_embeddings()
    table = cast("Tensor", module.weight.detach())
    if type(module) is nn.Embedding:
        return table
    with torch.no_grad():  # Gemma's multiplies
        return cast("Tensor", module(torch.arange(len(table))))


def head_of(model: nn.Module) -> Tensor:
    """lm_head, frozen; [V, D]. The embedding itself where the two are tied."""
    return cast("Tensor", cast("Any", model).get_output_embeddings().weight.detach())


def tables_on(embedding_VD: Tensor, head_VD: Tensor, device: str) -> tuple[Tensor, Tensor]:
    """Both on `device`; one copy where they are one."""
    table = embedding_VD.to(device)
    is_one = head_VD.data_ptr() == embedding_VD.data_ptr() and head_VD.shape == embedding_VD.shape
    return table, table if is_one else head_VD.to(device)


def _dtype(config: TargetConfig) -> torch.dtype | str:
    """The checkpoint's own on GPUs; float32 where one replica is on the CPU."""
    if config.dtype != "auto":
        return DTYPES[config.dtype]
    return "auto" if all(device.startswith("cuda") for device in config.devices) else torch.float32


def _refuse_holes(folder: Path, told: dict[str, Any]) -> None:
    missing, unexpected = sorted(told["missing_keys"]), sorted(told["unexpected_keys"])
    mismatched = sorted(str(key) for key in told.get("mismatched_keys", ()))
    if missing or mismatched:
        named = ", ".join((missing + mismatched)[:3])
        raise UsageError(
            f"target {folder}: {len(missing)} weights missing, {len(mismatched)} of another shape:"
            f" {named}",
            hint="config.json and weights disagree: copy or download it again",
        )
    if unexpected:
        logger.info(
            "target: %d weights are not of its text model and stay unread (%s, ...)",
            *(len(unexpected), unexpected[0]),
        )
