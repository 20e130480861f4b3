"""What follows for a run from the data it trains on; reads headers and tokenizers, no shard."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from dflash_train.config import Config, DataConfig
from dflash_train.corpus.header import check_installed, read_header
from dflash_train.corpus.progress import default_workers
from dflash_train.errors import UsageError
from dflash_train.target_files import find_target

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def is_file(data: DataConfig) -> bool:
    """Whether the data have to be prepared first."""
    return data.path is not None and not Path(data.path).is_dir()


def prepare_first(config: Config, run_dir: Path) -> Config:
    """`config` with its data file prepared into the run directory; the same again changes nothing.

    Raises:
        UsageError: there is no tokenizer, or see `build.prepare`.
    """
    path = Path(str(config.data.path))
    if config.target.path is None:
        raise UsageError(
            f"--data {path}: the tiny target has no tokenizer to read it with",
            hint=f"dflash-train prepare --tokenizer PATH --data {path} --out DIR, then --data DIR",
        )
    from dflash_train.corpus.build import PrepareRequest, prepare  # noqa: PLC0415  (Arrow)
    from dflash_train.corpus.encode import EncodeOptions  # noqa: PLC0415
    from dflash_train.corpus.progress import Progress  # noqa: PLC0415

    options = EncodeOptions(
        tokenizer=str(find_target(config.target.path)),
        thinking=config.data.thinking,
        max_length=config.data.max_length,
        block_size=config.drafter.block_size,
    )
    out = run_dir / "data"
    with Progress() as progress:
        prepare(
            PrepareRequest(inputs=(path,), out=out, options=options, workers=default_workers()),
            progress,
        )
    data = dataclasses.replace(config.data, path=str(out))
    return dataclasses.replace(config, data=data)


def settle_data(config: Config) -> Config:
    """`config` with all that its prepared data decide; without `data.path` itself.

    Buckets that were not given are those the data pad least; the tiny target takes over the
    tokenizer's vocabulary.

    Raises:
        UsageError: the data were prepared otherwise than this run needs them; says how.
    """
    if config.data.path is None:
        return config
    check_installed()
    folder = Path(config.data.path)
    header = read_header(folder)
    tokenizer = header["made_of"]["tokenizer"]
    if config.data.fingerprint not in (None, header["key"]):
        raise UsageError(
            f"--data {folder}: other data than the run began with",
            hint="give back the old ones, or start anew in another --run-dir",
        )
    if config.target.path is not None:
        _refuse_other_tokenizer(config, folder, tokenizer)
    else:
        config = _with_vocabulary(config, header)
    _refuse_masks(config, folder, tokenizer)
    buckets = config.data.buckets or tuple(row["to"] for row in header["buckets"])
    if header["max_length"] > buckets[-1]:
        raise UsageError(
            f"data.buckets: the last holds {buckets[-1]} tokens, the longest document of {folder}"
            f" has {header['max_length']}",
            hint="leave data.buckets out, or prepare with a smaller --max-length",
        )
    data = dataclasses.replace(
        config.data,
        buckets=buckets,
        num_documents=header["counts"]["documents"],
        fingerprint=header["key"],
    )
    return dataclasses.replace(config, data=data)


def _with_vocabulary(config: Config, header: dict[str, Any]) -> Config:
    tokenizer = header["made_of"]["tokenizer"]
    size = max(tokenizer["vocab_size"], header["largest_token_id"] + 1, 32)
    data = dataclasses.replace(config.data, vocab_size=size)
    target = dataclasses.replace(config.target, special_ids=_special_ids(tokenizer))
    return dataclasses.replace(config, data=data, target=target)


def _special_ids(tokenizer: dict[str, Any]) -> tuple[int, ...]:
    named = {tokenizer["pad_token_id"], tokenizer["bos_token_id"], *tokenizer["stop_token_ids"]}
    return tuple(sorted(named - {None}))


def _refuse_masks(config: Config, folder: Path, tokenizer: dict[str, Any]) -> None:
    mask = config.drafter.mask_token_id
    names = {
        "the padding": [tokenizer["pad_token_id"]],
        "the start of text": [tokenizer["bos_token_id"]],
        "an end of text": tokenizer["stop_token_ids"],
    }
    for name, ids in names.items():
        if mask in ids:
            raise UsageError(
                f"drafter.mask_token_id: {mask} is {name} of the tokenizer of {folder}",
                hint="take a token that never stands in text",
            )


def _refuse_other_tokenizer(config: Config, folder: Path, tokenizer: dict[str, Any]) -> None:
    target = find_target(str(config.target.path))
    if tokenizer["vocab_size"] > config.data.vocab_size:
        raise UsageError(
            f"--data {folder}: tokens up to {tokenizer['vocab_size'] - 1}, the target's embedding"
            f" has {config.data.vocab_size} rows: prepared with another tokenizer",
            hint=f"dflash-train prepare --target {target} --data FILE --out DIR",
        )
    if not any((target / name).is_file() for name in TOKENIZER_FILES):
        return  # a target saved without one: the vocabulary is all that can be compared
    from dflash_train.corpus.encode import load_tokenizer, tokenizer_hash  # noqa: PLC0415 (seconds)

    own = tokenizer_hash(load_tokenizer(str(target)))
    if own != tokenizer["sha256"]:
        raise UsageError(
            f"--data {folder}: prepared with the tokenizer of {tokenizer['path']}"
            f" ({tokenizer['sha256'][:12]}), the target's is another one ({own[:12]})",
            hint=f"dflash-train prepare --target {target} --data FILE --out DIR",
        )
