"""What a regular expression cannot match without: plain text, found a hundred times faster."""

from __future__ import annotations

import re
from collections.abc import Iterator

LEAST = 3
"""Characters below which a plain text is no help."""
MOST = 24
"""Alternatives above which looking for each is no help either."""
_TOKEN = re.compile(
    r"\\(?P<escaped>[^\w\s])|(?P<special>\\.|[\^$.])|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<flags>\(\?[a-zA-Z]+\))|(?P<not>\(\?<?!)|(?P<open>\((?:\?[a-zA-Z]*[:=]|\?<=)?)"
    r"|(?P<close>\))|(?P<or>\|)|(?P<many>[*?]\??|\{0?,\d*\}\??|\{0\})"
    r"|(?P<more>\+\??|\{\d+(?:,\d*)?\}\??)|(?P<plain>.)",
    re.DOTALL,
)
Keys = tuple[str, ...]


def fixed_parts(pattern: str) -> Keys:
    """Texts, lower case, of which every match of the pattern holds at least one.

    Args:
        pattern: a regular expression without verbose mode.

    Returns:
        Empty when none can be told: then the pattern has to be tried.
    """
    return _either(_TOKEN.finditer(pattern))[0]


def _either(tokens: Iterator[re.Match[str]]) -> tuple[Keys, bool]:
    """Keys of alternatives up to the end of their group; False when one has none."""
    all_keys: list[Keys] = []
    while True:
        keys, end = _sequence(tokens)
        all_keys.append(keys)
        if end != "or":
            break
    merged = tuple(dict.fromkeys(key for keys in all_keys for key in keys))
    known = all(all_keys) and len(merged) <= MOST
    return (merged if known else ()), known


def _sequence(tokens: Iterator[re.Match[str]]) -> tuple[Keys, str | None]:
    """The best keys of what stands in a row, and what ended it: `or`, `close`, None."""
    parts: list[Keys] = []
    run, was_group = "", False
    for token in tokens:
        kind = token.lastgroup or ""
        if kind in ("plain", "escaped"):
            run += (token["escaped"] or token["plain"]).lower()
            was_group = False
            continue
        parts.append((run[:-1] if kind == "many" else run,))
        if kind == "many" and was_group and not run:
            parts[-2] = ()  # the group before it may be absent
        run, was_group = "", False
        if kind in ("or", "close"):
            return _best(parts), kind
        if kind in ("open", "not"):
            keys = _either(tokens)[0]
            parts.append(keys if kind == "open" else ())
            was_group = True
    return _best([*parts, (run,)]), None


def _best(parts: list[Keys]) -> Keys:
    """The one whose shortest text is longest."""
    usable = [keys for keys in parts if keys and min(map(len, keys)) >= LEAST]
    return max(usable, key=lambda keys: (min(map(len, keys)), -len(keys)), default=())
