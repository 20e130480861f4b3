"""Secrets are masked before a command line leaves the watched machine."""

from __future__ import annotations

import re
from typing import List

MASK = "***"
_WORD = r"(?:api[-_]?key|access[-_]?key|secret|token|passwd|password|passphrase|credentials?|auth)"
_NAME = re.compile(r"^-{0,2}[\w.\-]*" + _WORD + r"[\w.\-]*$", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"^(-{0,2}[\w.\-]*(?:" + _WORD + r"|_key)[\w.\-]*[=:])(.+)$", re.IGNORECASE | re.DOTALL
)
_INSIDE = re.compile(
    r"(\b[\w.\-]*(?:" + _WORD + r"|_key)[\w.\-]*\s*[=:]\s*)([^\s,;'\"&]+)", re.IGNORECASE
)
_URL = re.compile(r"(\b[a-z][a-z0-9+.\-]*://)[^/\s@]+@", re.IGNORECASE)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}"
    r"|AKIA[0-9A-Z]{12,}|xox[abprs]-[\w\-]{8,}|glpat-[\w\-]{12,}|eyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*"
    r"|wandb_v1_\w{16,}|[0-9a-f]{40})\b"
)
_SCHEME = re.compile(r"\b(bearer|basic|negotiate|digest)\s+[\w.~+/=\-]{8,}", re.IGNORECASE)
# Words that hold one of the names above and are no secret: sizes and files of a tokenizer, mostly.
_HARMLESS = re.compile(
    r"tokens?[-_.](?:per|ids?|count|total|len|length|size|budget)|num[-_]?.*tokens?|max[-_]?.*tokens|tokeniz"
    r"|tokens?[-_]s|(?:eos|bos|pad|mask|unk)[-_]token|author(?!ization)",
    re.IGNORECASE,
)


def mask_words(argv: List[str]) -> List[str]:
    """The words of a command line with the values of secrets replaced by `***`.

    Masked are: `--api-key X`, `--token=X`, `HF_TOKEN=X`, credentials in URLs, and words that have
    the shape of a known kind of token wherever they stand.
    """
    masked = []
    hide_next = False
    for word in argv:
        if hide_next and not word.startswith("-"):
            masked.append(MASK)
            hide_next = False
            continue
        hide_next = word.startswith("-") and bool(_NAME.match(word)) and not _HARMLESS.search(word)
        masked.append(_mask_word(word))
    return masked


def _mask_word(word: str) -> str:
    assigned = _ASSIGNED.match(word)
    plain = not re.search(r"\s", word) and "://" not in (assigned.group(1) if assigned else "")
    if assigned and plain and not _HARMLESS.search(assigned.group(1)):
        return assigned.group(1) + MASK
    word = _SCHEME.sub(r"\1 " + MASK, _URL.sub(r"\1" + MASK + "@", word))
    if " " in word or "\n" in word or "&" in word:
        word = _INSIDE.sub(_hide_value, word)
    return _SHAPES.sub(MASK, word)


def _hide_value(match: re.Match[str]) -> str:
    return match.group(0) if _HARMLESS.search(match.group(1)) else match.group(1) + MASK


def command_text(argv: List[str], limit: int = 400) -> str:
    """A command line for people: masked, one line, at most `limit` characters."""
    text = " ".join(mask_words(argv)).replace("\n", " ")
    return text if len(text) <= limit else text[: limit - 3] + "..."
