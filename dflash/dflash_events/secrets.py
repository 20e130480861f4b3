"""Masks what must not be written down: passwords, keys, access tokens in commands and configs."""

from __future__ import annotations

import re
from typing import Iterable

MASK = "***"

_KEY = (
    r"(?:pass(?:word|wd|phrase)?|secret(?:[_-]?key)?|api[_-]?key|access[_-]?key(?:[_-]?id)?|"
    r"private[_-]?key|credentials?|authorization|"
    r"(?:(?:auth|access|api|hf|hub|hugging_?face|hugging_?face_?hub|wandb|github|gh|bearer|"
    r"refresh|session)[_-]?)?token)"
)
_NAME = re.compile(rf"^(?:.*[._-])?{_KEY}$", re.IGNORECASE)
_HARMLESS = re.compile(
    r"(?:^|[._-])(?:pad|bos|eos|unk|mask|sep|cls|image|start|end|per)[_-]token$", re.I
)
_ASSIGNED = re.compile(r"^(-{0,2}[\w.-]+)=(.*)$", re.DOTALL)
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@]+@", re.IGNORECASE)
_KNOWN = re.compile(r"\b(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[bp]-|AKIA)[A-Za-z0-9_-]{8,}")


def is_secret_name(name: str) -> bool:
    """Whether a value under this name is one to hide (`hf_token` is, `pad_token` is not)."""
    bare = name.lstrip("-")
    return bool(_NAME.match(bare)) and not _HARMLESS.search(bare)


def mask_text(text: str) -> str:
    """Text with credentials in URLs and tokens of known shape masked."""
    return _KNOWN.sub(MASK, _URL.sub(rf"\g<1>{MASK}@", text))


def mask_arguments(arguments: Iterable[str]) -> list[str]:
    """An argument list with `--api-key X`, `--token=X`, `PASSWORD=X` and URL logins masked."""
    masked: list[str] = []
    hide_next = False
    for argument in arguments:
        assigned = _ASSIGNED.match(argument)
        if hide_next and not argument.startswith("--"):
            masked.append(MASK)
            hide_next = False
        elif assigned and is_secret_name(assigned.group(1)):
            masked.append(f"{assigned.group(1)}={MASK}")
            hide_next = False
        else:
            hide_next = argument.startswith("-") and is_secret_name(argument)
            masked.append(mask_text(argument))
    return masked


def mask_config(value: object) -> object:
    """A configuration with the texts under secret names masked, at any depth."""
    if isinstance(value, dict):
        return {
            key: MASK
            if isinstance(inner, str) and inner and is_secret_name(str(key))
            else mask_config(inner)
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [mask_config(inner) for inner in value]
    return mask_text(value) if isinstance(value, str) else value
