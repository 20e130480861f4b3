"""Step counters and figures in one line of a log, in the formats that trainers use.

One line in, readings out; no memory. `counters.py` decides whether a counter moved.
"""

from __future__ import annotations

import re

import msgspec

_NUMBER = r"[-+]?(?:\d[\d,_]{0,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?"
_RANK = re.compile(r"(?i)(?:^|[\[(<\s])(?:local_)?(?:rank|default)[ _:=]*(\d{1,6})\b")
_RANK_START = re.compile(r"(?i)(?<=[^\s\[])(?=\[?rank ?\d{1,6}\]?:? +(?:global[_ ])?step\b)")

# `Epoch 0:   6%|##   | 32040/500150 [6:28:43<94:39:17,  1.37it/s, loss=2.6]`, as tqdm and its kin:
# the counts are found first, then what stands before them.
_COUNTS = re.compile(
    r"(?<![\d.,/])(?P<n>\d[\d,]{0,14}(?:\.\d{1,3})?[kKMGT]?)/(?P<total>\d[\d,]{0,14}(?:\.\d{1,3})?[kKMGT]?)"
    r"(?: [A-Za-z]{1,12})? \[(?P<tail>[\d:?.\-]{1,16}\s?<[^\]]{0,300})?"
)
_BEFORE_COUNTS = re.compile(r"\d{1,3}%\s?\|[^|]{0,300}\|\s?$")
# Without a total: `12it [00:03,  4.0it/s]`.
_BAR_OPEN = re.compile(r"(?<!\S)(?P<n>\d{1,15})[A-Za-z]{2,10} \[\d{1,3}:\d\d(?::\d\d)?[,\]]")

# Words before a number that counts, the best first.
_COUNT = r"(\d[\d,]{0,14})(?:\s?(?:/|of)\s{0,8}(\d[\d,]{0,14}))?(?![\d.]*\d)"
_WORDS = tuple(
    (
        name,
        re.compile(
            rf"(?i)(?<![a-z])(?:{words})(?![a-z])['\"]?\s{{0,8}}[:=#(\[]{{0,2}}\s{{0,8}}['\"]?{_COUNT}"
        ),
    )
    for name, words in (
        ("step", r"(?:global|train|current|optimizer)?[_ -]?steps?"),
        ("iter", r"(?:iter(?:ation)?s?|itr)"),
        ("update", r"(?:num_)?updates?"),
        ("batch", r"(?:mini)?batch(?:es)?"),
    )
)
# `Epoch [1][100/62598]`, `Epoch: [0][415/1736]`
_EPOCH_PAIR = re.compile(r"(?i)epoch:?\s?\[(\d+)(?:/\d+)?\]\s?\[\s*(\d+)/(\d+)\]")
_EPOCH = re.compile(
    r"(?i)(?<![a-z])epochs?['\"]?\s{0,4}[:=#(\[]{0,2}\s{0,8}['\"]?"
    r"(\d{1,9}(?:\.\d{1,9})?)(?:\s?(?:/|of)\s?(\d{1,9}))?"
)
_BRACKET_PAIR = re.compile(r"^[^\[]{0,60}\[\s*(\d{1,9})\s*/\s*(\d{1,9})\s*\]")
_DICT = re.compile(r"^\s*\{['\"][^}]{0,3000}['\"]?(?:epoch|step)['\"]?")

_FIGURE = rf"['\"]?\s?[:=]?\s{{0,4}}['\"]?({_NUMBER}|[-+]?nan|[-+]?inf(?:inity)?)\b"
_LOSS = re.compile(rf"(?i)(?<![a-z_])(?:train(?:ing)?[_ /]|total[_ ])?loss{_FIGURE}")
_NORM = re.compile(rf"(?i)grad(?:ient)?[_ ]?norm{_FIGURE}")
_RATE_AFTER = re.compile(
    rf"(?i)({_NUMBER})\s?([kM]?)\s?tok(?:en)?s?(?:/s(?:ec(?:ond)?)?|ps)\b(?!\s?[:=])"
)
_RATE_BEFORE = re.compile(
    r"(?i)tok(?:en)?s?(?:/s(?:ec(?:ond)?)?|_per_s(?:ec(?:ond)?)?|[ _]?ps|_throughput)"
    rf"['\"]?\s?[:=]?\s{{0,4}}['\"]?({_NUMBER})([kM]?)(?!\w)"
)
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A counter as one line states it."""

    series: str
    fmt: str
    value: float
    """Comparable within the series: epochs in front of steps where a line has both."""
    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    tokens_per_s: float | None = None
    loss: float | None = None
    rank: int | None = None


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A progress bar; a total of None is a bar without an end."""

    name: str
    n: int
    total: int | None
    tail: str = ""


def split_ranks(line: str) -> list[str]:
    """Lines of several ranks that were printed into one another, apart."""
    return _RANK_START.split(line) if "rank" in line.lower() else [line]


def rank_of(line: str) -> int | None:
    """Rank that a line names near its start, e.g. `[rank1]:` or `rank1 step=50`."""
    found = _RANK.search(line[:80])
    return int(found.group(1)) if found else None


def parse_bar(line: str) -> Bar | None:
    """A progress bar of tqdm's kind, whole enough to be read (its counts are followed by `[`)."""
    if "[" not in line:
        return None
    found = _COUNTS.search(line) if "/" in line else None
    if found:
        before = line[: found.start()]
        drawn = _BEFORE_COUNTS.search(before[-320:])
        if drawn or found["tail"]:
            name = before[: len(before) - len(drawn.group())] if drawn else before
            return Bar(
                name=_bar_name(name),
                n=_amount(found["n"]),
                total=_amount(found["total"]),
                tail=found["tail"] or "",
            )
    found = _BAR_OPEN.search(line)
    if found:
        return Bar(name=_bar_name(line[: found.start()]), n=_amount(found["n"]), total=None)
    return None


def bad_numbers(line: str) -> list[tuple[str, str]]:
    """`(loss, nan)` and the like: figures that are not finite, as written."""
    found = []
    for what, pattern in (("loss", _LOSS), ("grad_norm", _NORM)):
        match = pattern.search(line)
        if match and match.group(1).lstrip("+-")[:3].lower() in ("nan", "inf"):
            found.append((what, match.group(1)))
    return found


def read_counter(line: str) -> Reading | None:
    """The counter of a line in a known format (bars apart: `parse_bar`), or None."""
    found = _EPOCH_PAIR.search(line)
    if found:
        epoch, step, total = (int(part) for part in found.groups())
        return _reading(line, "epoch-step", "words", step=step, total=total, epoch=float(epoch))
    epoch_match = _EPOCH.search(line)
    epoch_number = float(epoch_match.group(1)) if epoch_match else None
    for series, pattern in _WORDS:
        found = pattern.search(line)
        if found:
            total_text = found.group(2)
            total_number = _whole(total_text) if total_text else None
            step = _whole(found.group(1))
            # A step that starts again with each epoch is ordered by its epoch.
            rank_by = epoch_number if series in ("iter", "batch") else None
            return _reading(line, series, _fmt(line), step=step, total=total_number, epoch=rank_by)
    if epoch_match and epoch_number is not None:
        return _reading(line, "epoch", _fmt(line), value=epoch_number, epoch=epoch_number)
    found = _BRACKET_PAIR.search(line)
    if found:
        return _reading(line, "pair", "words", step=int(found.group(1)), total=int(found.group(2)))
    return None


def figures(line: str) -> tuple[float | None, float | None]:
    """Tokens a second and loss of a line, None where it has none or they are not finite."""
    return _rate(line), _finite(_LOSS.search(line))


def _reading(
    line: str,
    series: str,
    fmt: str,
    *,
    step: int | None = None,
    value: float | None = None,
    total: int | None = None,
    epoch: float | None = None,
) -> Reading:
    rate, loss = figures(line)
    if value is None:
        value = float(step or 0) + (epoch or 0.0) * 1e9
    rank = rank_of(line)
    return Reading(
        series=series if rank is None else f"{series}@{rank}",
        fmt=fmt,
        value=value,
        step=step,
        total=total,
        epoch=epoch,
        tokens_per_s=rate,
        loss=loss,
        rank=rank,
    )


def _fmt(line: str) -> str:
    return "dict" if _DICT.match(line) else "words"


def _rate(line: str) -> float | None:
    if "tok" not in line.lower():
        return None
    found = _RATE_BEFORE.search(line) or _RATE_AFTER.search(line)
    if not found:
        return None
    number = _finite(found)
    return None if number is None else number * _SCALE[found.group(2).lower()]


def _finite(found: re.Match[str] | None) -> float | None:
    if not found:
        return None
    try:
        number = float(found.group(1).replace(",", "").replace("_", ""))
    except ValueError:
        return None
    return number if number - number == 0 else None


def _whole(text: str) -> int:
    return int(text.replace(",", "")[:15] or 0)


def _amount(text: str) -> int:
    scale = _SCALE.get(text[-1].lower(), 0.0)
    number = text[:-1] if scale else text
    return round(float(number.replace(",", "")[:15]) * (scale or 1.0))


def _bar_name(text: str) -> str:
    return re.sub(r"\d+", "#", text).strip(" :-\t")[-80:]
