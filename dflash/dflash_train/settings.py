"""From preset, file and command line to one `Config`: the only place that parses values.

Order: preset, then `--config FILE` (TOML), then `section.key=value`. Unknown keys are refused.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path

from dflash_train.config import Config
from dflash_train.errors import UsageError

PRESETS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "tiny": {},  # the defaults are the tiny run; kept as a name so that scripts can say so
    "dflash": {  # the published recipe, for a target with a path
        "target": {"layer_ids": (), "num_features": 5},
        "drafter": {
            "num_layers": 5,
            "num_heads": 32,
            "num_kv_heads": 8,
            "head_dim": 128,
            "intermediate_size": 0,
            "block_size": 16,
            "layer_types": ("full_attention",) * 5,
            "sliding_window": 2048,
            "mask_token_id": -1,
        },
        "data": {"rows": 4, "buckets": (512, 1024, 2048, 3072)},
        "optim": {"lr": 6e-4},
        "loss": {"num_anchors": 512},
        "checkpoint": {"every_steps": 500},
        "report": {"every_steps": 20},
    },
}


def resolve(
    preset: str,
    file: Path | None,
    overrides: Iterable[str],
    base: Mapping[str, object] | None = None,
) -> Config:
    """The run that was asked for.

    Args:
        preset: where it starts.
        file: TOML over the preset; None without.
        overrides: `section.key=value` over both.
        base: sections over the preset and under the file.

    Raises:
        UsageError: unknown preset, key or value; unreadable file.
    """
    if preset not in PRESETS:
        raise UsageError(f"--preset {preset}: unknown{suggest(preset, PRESETS)}")
    config = merge(from_mapping({"preset": preset, **PRESETS[preset]}), base or {}, "base")
    given = {} if file is None else read_toml(file)
    overrides = list(overrides)
    config = parse_overrides(merge(config, given, str(file)), overrides)
    if config.data.path is not None and not _names_buckets(given, overrides):
        config = merge(config, {"data": {"buckets": ()}}, "data.path")
    return config.check()


def _names_buckets(given: Mapping[str, object], overrides: Iterable[str]) -> bool:
    section = given.get("data")
    is_in_file = isinstance(section, dict) and "buckets" in section
    return is_in_file or any(text.startswith("data.buckets=") for text in overrides)


def parse_overrides(config: Config, overrides: Iterable[str]) -> Config:
    """`config` with each `section.key=value` over it.

    Raises:
        UsageError: not of that form, or an unknown key or value.
    """
    for text in overrides:
        key, is_pair, value = text.partition("=")
        if not is_pair:
            raise UsageError(f"{text}: expected section.key=value")
        *sections, name = key.split(".")
        nested: object = {name: value}
        for section in reversed(sections):
            nested = {section: nested}
        config = merge(config, typing.cast("dict[str, object]", nested), "command line")
    return config


def from_mapping(values: Mapping[str, object]) -> Config:
    """The configuration written by `as_mapping`, or part of one over the defaults."""
    return merge(Config(), values, "configuration")


def as_mapping(config: Config) -> dict[str, object]:
    """Plain values, as run.json and checkpoints keep them."""
    return dataclasses.asdict(config)


def merge(config: Config, values: Mapping[str, object], where: str) -> Config:
    """`config` with `values` over it.

    Raises:
        UsageError: names the key and, for a typing error, the key that was meant.
    """
    return typing.cast("Config", _merge(config, values, where, ""))


def suggest(word: str, choices: Iterable[str]) -> str:
    """`; did you mean X?`, or what may stand there."""
    names = sorted(choices)
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]}?" if near else f"; expected one of {', '.join(names)}"


def _merge(record: object, values: Mapping[str, object], where: str, prefix: str) -> object:
    hints = typing.get_type_hints(type(record))
    changes: dict[str, object] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if name not in hints:
            raise UsageError(f"{key}: unknown key ({where}){suggest(name, hints)}")
        current = getattr(record, name)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, Mapping):
                raise UsageError(f"{key}: is a section ({where}); expected {key}.NAME=value")
            changes[name] = _merge(current, value, where, f"{key}.")
        else:
            changes[name] = _convert(key, value, hints[name])
    return dataclasses.replace(record, **changes)  # type: ignore[type-var]  # a Config or a section


def _convert(key: str, value: object, hint: object) -> object:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None or value == "none":
        if types.NoneType in options:
            return None
        raise UsageError(f"{key}: got none, expected {_name(hint)}")
    kind = next(option for option in options if option is not types.NoneType)
    try:
        if typing.get_origin(kind) is tuple:
            parts = value.split(",") if isinstance(value, str) else list(_iterable(value))
            return tuple(_scalar(part, typing.get_args(kind)[0]) for part in parts)
        return _scalar(value, kind)
    except (TypeError, ValueError):
        raise UsageError(f"{key}: got {value!r}, expected {_name(kind)}") from None


def _iterable(value: object) -> Iterable[object]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(value)
    return value


def _scalar(value: object, kind: object) -> object:
    if kind is bool:
        words = {"true": True, "false": False}
        return value if isinstance(value, bool) else _word(str(value), words)
    if isinstance(value, bool):
        raise TypeError(value)
    if kind is int:
        return int(value) if isinstance(value, str) else _exact_int(value)
    if kind is float:
        return float(typing.cast("float | str", value))
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _exact_int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(value)
    return value


def _name(kind: object) -> str:
    origin = typing.get_origin(kind)
    if origin is tuple:
        return f"{_name(typing.get_args(kind)[0])}s, separated by commas"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(typing.cast("type", kind), str(kind))


def read_toml(file: Path) -> dict[str, object]:
    """Sections of settings.

    Raises:
        UsageError: unreadable, or not TOML.
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--config {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {file}: not TOML: {error}") from error


def _word(text: str, words: Mapping[str, bool]) -> bool:
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]
