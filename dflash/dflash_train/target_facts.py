"""What a target is, read from its configuration and tokenizer, and what follows for a run.

`settle` turns "train against this target" into settings that say everything: geometry, layers,
mask token, fingerprint. Nothing here reads a weight.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_train.config import Config
from dflash_train.errors import UsageError
from dflash_train.target_files import find_target, fingerprint

UNSET_MASK = -1
KNOWN_MASKS = {("qwen3", 151936): 151669, ("qwen3_5_text", 248320): 248070}
"""(model type, rows of the embedding) to the mask token that published drafters of it use."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """One target, without its weights."""

    folder: Path
    model_type: str
    """Of the text part."""
    is_wrapper: bool
    """True for a multimodal model; its text part is the target."""
    hidden_size: int
    num_layers: int
    intermediate_size: int
    vocab_size: int
    """Rows of the embedding; a tokenizer may use fewer."""
    max_positions: int | None
    special_ids: tuple[int, ...]
    """Pad, start and end of text, as configuration and tokenizer name them."""
    tokenizer_size: int | None
    """Ids the tokenizer gives, its largest plus one; None without a tokenizer."""
    tokenizer_mask_id: int | None
    tokenizer_eos: int | None
    template_sha256: str | None
    """Of the tokenizer's chat template; None without one."""
    model_eos: tuple[int, ...]
    """Ends of text by config.json and generation_config.json."""
    fingerprint: str


def read_facts(path_or_id: str) -> TargetFacts:
    """Facts of a target.

    Raises:
        UsageError: not a decoder-only model that transformers knows, or a tokenizer of another one.
    """
    from dflash_train.target_model import say_less  # noqa: PLC0415  (loads torch)

    folder = find_target(path_or_id)
    say_less()
    whole = _read_config(folder)
    text = whole.get_text_config(decoder=True)
    if whole.is_encoder_decoder or text.is_encoder_decoder:
        raise UsageError(
            f"target {folder}: {whole.model_type} is an encoder-decoder model",
            hint="expected a decoder-only one (Qwen3, Qwen3.5, Llama, ...)",
        )
    _refuse_without_decoder(folder, whole, text)
    tokenizer = _read_tokenizer(folder)
    size = None if tokenizer is None else max(tokenizer.get_vocab().values(), default=-1) + 1
    if size is not None and size > text.vocab_size:
        raise UsageError(
            f"target {folder}: its tokenizer gives ids up to {size - 1},"
            f" its embedding has {text.vocab_size} rows",
            hint="this tokenizer belongs to another model: copy the target again",
        )
    return TargetFacts(
        folder=folder,
        model_type=text.model_type,
        is_wrapper=text is not whole,
        hidden_size=text.hidden_size,
        num_layers=text.num_hidden_layers,
        intermediate_size=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        vocab_size=text.vocab_size,
        max_positions=getattr(text, "max_position_embeddings", None),
        special_ids=_special_ids(whole, text, tokenizer),
        tokenizer_size=size,
        tokenizer_mask_id=getattr(tokenizer, "mask_token_id", None),
        tokenizer_eos=getattr(tokenizer, "eos_token_id", None),
        template_sha256=_template_hash(tokenizer),
        model_eos=_model_eos(folder, text),
        fingerprint=fingerprint(folder),
    )


def feature_layers(num_layers: int, num_features: int) -> tuple[int, ...]:
    """Layers whose outputs are features when none are named: from the second to the third-last.

    round(1 + i (L - 4) / (n - 1)) for i = 0 .. n - 1; one feature comes from the middle. A target
    too shallow for n different ones gives fewer.
    """
    if num_features == 1 or num_layers < 5:
        return (num_layers // 2,)
    step = (num_layers - 4) / (num_features - 1)
    return tuple(dict.fromkeys(round(1 + i * step) for i in range(num_features)))


def settle(config: Config) -> Config:
    """`config` with all that its target decides; without `target.path` itself.

    Raises:
        UsageError: the target cannot be one, or does not fit what was asked for.
    """
    if config.target.path is None:
        return config
    facts = read_facts(config.target.path)
    known = config.target.fingerprint
    if known is not None and known != facts.fingerprint:
        raise UsageError(
            f"target {config.target.path}: fingerprint {facts.fingerprint}, the run began with"
            f" {known}: configuration or weights have changed",
            hint="give back the old files, or start anew in another --run-dir",
        )
    layers = config.target.layer_ids or feature_layers(facts.num_layers, config.target.num_features)
    target = dataclasses.replace(
        config.target,
        layer_ids=layers,
        num_features=len(layers),
        num_layers=facts.num_layers,
        hidden_size=facts.hidden_size,
        special_ids=facts.special_ids,
        fingerprint=facts.fingerprint,
    )
    drafter = dataclasses.replace(
        config.drafter,
        intermediate_size=config.drafter.intermediate_size or facts.intermediate_size,
        mask_token_id=choose_mask_token(config.drafter.mask_token_id, facts),
    )
    data = dataclasses.replace(config.data, vocab_size=facts.vocab_size)
    return dataclasses.replace(config, target=target, drafter=drafter, data=data).check()


def choose_mask_token(asked: int, facts: TargetFacts) -> int:
    """The one asked for, the tokenizer's own, a published one, or the first row no token uses.

    Raises:
        UsageError: none of them.
    """
    if asked != UNSET_MASK:
        return asked
    if facts.tokenizer_mask_id is not None:
        return facts.tokenizer_mask_id
    known = KNOWN_MASKS.get((facts.model_type, facts.vocab_size))
    if known is not None:
        return known
    if facts.tokenizer_size is not None and facts.tokenizer_size < facts.vocab_size:
        return facts.tokenizer_size
    raise UsageError(
        f"drafter.mask_token_id: not given, and {facts.folder} has no mask token and no unused row",
        hint="give the id of a token that never stands in text: drafter.mask_token_id=N",
    )


def _read_config(folder: Path) -> Any:  # noqa: ANN401  (its class varies by family)
    from transformers import AutoConfig  # noqa: PLC0415  (loads torch: only with a target)

    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except (ValueError, OSError, KeyError, TypeError) as error:
        cause = " ".join(str(error).split())
        raise UsageError(
            f"target {folder}: no model this transformers knows: {cause[:140]}",
            hint="a newer transformers may; code that comes with a model is not run",
        ) from error


def _refuse_without_decoder(folder: Path, whole: Any, text: Any) -> None:  # noqa: ANN401
    from dflash_train.target_model import model_class  # noqa: PLC0415  (see _read_config)

    lacking = [
        name
        for name in ("hidden_size", "num_hidden_layers", "vocab_size")
        if not isinstance(getattr(text, name, None), int)
    ]
    if lacking or model_class(whole) is None:
        raise UsageError(
            f"target {folder}: {whole.model_type} is no language model with a decoder and lm_head"
            f"{' (no ' + ', '.join(lacking) + ')' if lacking else ''}",
            hint="expected a decoder-only one (Qwen3, Qwen3.5, Llama, ...)",
        )


def _read_tokenizer(folder: Path) -> Any:  # noqa: ANN401  (its class varies by family)
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return None
    from transformers import AutoTokenizer  # noqa: PLC0415  (see _read_config)

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the Rust side raises Exception itself
        cause = " ".join(str(error).split())
        raise UsageError(
            f"target {folder}: its tokenizer cannot be read: {cause[:140]}",
            hint="copy the target again",
        ) from error


def _special_ids(whole: Any, text: Any, tokenizer: Any) -> tuple[int, ...]:  # noqa: ANN401
    found: set[int] = set()
    for source in (whole, text, tokenizer):
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            found.update(_ids(getattr(source, name, None)))
    return tuple(sorted(found))


def _template_hash(tokenizer: Any) -> str | None:  # noqa: ANN401
    template = getattr(tokenizer, "chat_template", None)
    return hashlib.sha256(template.encode()).hexdigest() if isinstance(template, str) else None


def _model_eos(folder: Path, text: Any) -> tuple[int, ...]:  # noqa: ANN401
    found = set(_ids(getattr(text, "eos_token_id", None)))
    file = folder / "generation_config.json"
    if file.is_file():
        with contextlib.suppress(ValueError):  # a damaged one only hides a warning
            found.update(_ids(json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")))
    return tuple(sorted(found))


def _ids(value: object) -> Iterable[int]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return (item for item in values if isinstance(item, int) and item >= 0)
