"""The one gate between what a stranger sends and everything else.

Every record passes it before engine, screen, recording or incident see it. Afterwards no text holds
an escape code, a control or direction character or a secret that is recognised, names are one line,
and every number is one that can be reckoned with. Only the text of a log keeps its codes and
carriage returns: bars are read from them (`readers.lines` takes them off, as all sinks do again).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from dflash_events.secrets import MASK, is_secret_name, mask_text

from dflash_watch.frame import Record, render_record
from dflash_watch.readers.lines import printable, printable_lines

AnyRecord = TypeVar("AnyRecord", bound=Record)
LARGEST = 10**18
LATEST_T = 250_000_000_000
"""No moment is later: the year 9892, behind which calendars end."""
TAIL = 4096
"""Characters of an unfinished line of a log that are held against what follows it."""
KEY_TAIL = 20_000
MOST_LOGS = 64
DEEPEST = 64
PARAGRAPHS = frozenset({"raw", "traceback", "message", "exception", "error", "note", "reason"})
"""Fields that may have several lines."""

_KEY_BEGUN = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")
_BEGUN = re.compile(
    r"(?:(?<!\w)(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|wandb_v1_|sk-|eyJ|A(?:KIA|SIA)|AIza)"
    r"[\w.-]{0,40}|(?<=://)(?:[^/\s'\"@:]{1,200}:(?!\d{1,5}\Z)[^/\s'\"@]{1,4000}|[^/\s'\"@:.]{16,4000}))\Z"
)
"""What may be half a token or a login at the end of a piece; the rest comes with the next one."""


class Guard:
    """Makes records harmless; remembers the end of each log, where a secret may be cut in two."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[str, str]] = {}

    def admit(self, record: AnyRecord) -> AnyRecord:
        """The same record, harmless; about half a millisecond a frame."""
        tree: Any = msgspec.json.decode(render_record(record))
        logs = tree.pop("logs", None)
        tree = _tree(tree, "", 0)
        if logs is not None:
            tree["logs"] = [self._log(one) for one in logs]
        return msgspec.convert(tree, type(record))

    def _log(self, log: dict[str, Any]) -> dict[str, Any]:
        text = log.pop("text", "")
        log = _tree(log, "", 0)
        if text:
            is_torn = log.get("truncated") or log.get("skipped_bytes")
            log["text"] = self._joined(str(log.get("via")), text, is_new=bool(is_torn))
        return log

    def _joined(self, key: str, text: str, *, is_new: bool) -> str:
        """The piece, masked as it would be together with the unfinished line before it."""
        before, told = ("", "") if is_new else self._ends.get(key, ("", ""))
        masked = mask_log(before + text)
        if not text.endswith("\n"):
            masked = _BEGUN.sub(MASK, masked)
        end = _unfinished(before + text)
        if key in self._ends or len(self._ends) < MOST_LOGS:
            self._ends[key] = (end, _BEGUN.sub(MASK, mask_log(end)))
        return masked[_length_in_common(told, masked) :]


def mask_log(text: str) -> str:
    """Log text without secrets, those among whose letters stand colours included."""
    text = mask_text(text)
    if text.isprintable():
        return text
    return "\n".join(map(_mask_coloured, text.split("\n")))


def _mask_coloured(line: str) -> str:
    """As it is, unless a secret shows when the codes are gone: then without them."""
    if line.isprintable():
        return line
    bare = printable(line)
    masked = mask_text(bare)
    return line if masked == bare else masked


def _unfinished(text: str) -> str:
    """The last line while it has no end, and a private key that has none."""
    begun = text.rfind("-----BEGIN ", max(len(text) - KEY_TAIL, 0))
    if begun >= 0 and _KEY_BEGUN.match(text, begun) and "-----END" not in text[begun:]:
        return text[begun:]
    return text[text.rfind("\n") + 1 :][-TAIL:]


def _length_in_common(told: str, masked: str) -> int:
    if masked.startswith(told):
        return len(told)
    return next(n for n, (a, b) in enumerate(zip(told, f"{masked}\0", strict=False)) if a != b)


def _tree(value: Any, key: str, depth: int, *, hidden: bool = False) -> Any:  # noqa: ANN401 - JSON
    """Plain data, made harmless; `hidden`: it stands under a name of secrets."""
    if isinstance(value, str):
        if hidden and value:
            return MASK
        return paragraphs(value) if key in PARAGRAPHS else line(value)
    if isinstance(value, dict):
        inside = () if depth > DEEPEST else value.items()
        return {
            line(name): _tree(inner, name, depth + 1, hidden=hidden or is_secret_name(name))
            for name, inner in inside
        }
    if isinstance(value, list):
        kept = [] if depth > DEEPEST else value
        return [_tree(inner, key, depth + 1, hidden=hidden) for inner in kept]
    return _number(value, key) if isinstance(value, int | float) else value


def _number(value: float, key: str) -> float:
    if isinstance(value, bool):
        return value
    if key == "t" or key.endswith("_t"):
        return min(max(value, 0), LATEST_T)
    return min(max(value, -LARGEST), LARGEST)


def line(text: str) -> str:
    """Text of one line, printable, masked; short ones come again in every frame."""
    return _line(text) if len(text) < 500 else mask_text(printable(text.replace("\n", " ")))


@lru_cache(maxsize=8192)
def _line(text: str) -> str:
    return mask_text(printable(text.replace("\n", " ")))


def paragraphs(text: str) -> str:
    """Text of several lines, printable, masked."""
    return mask_text(printable_lines(text))
