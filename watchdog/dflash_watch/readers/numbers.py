"""Step counters and figures in one line of a log, in the formats that trainers use.

One line in, readings out; no memory. `counters.py` decides whether a counter moved.
"""

from __future__ import annotations

import itertools
import re

import msgspec

from dflash_watch.readers.plans import is_setting

_NUMBER = r"[-+]?(?:\d[\d,_]{0,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?"
_RANK = re.compile(r"(?i)(?:^|[\[(<\s:])rank[ _:=]{0,4}(\d{1,6})\b")
_LOCAL_RANK = re.compile(r"(?i)(?:^|[\[(<\s])(?:local_rank|default)[ _:=]{0,4}(\d{1,6})\b")
_RANK_STEP = re.compile(r"(?i)rank ?\d{1,6}\]?:? {1,8}(?:global[_ ])?step\b")

# Words before a number that counts, the best first.
_COUNT = r"(\d[\d,]{0,14})(?:\s?(?:/|of)\s{0,8}(\d[\d,]{0,14}))?(?![\d.]*\d)"
_WORDS = tuple(
    (
        name,
        key,
        re.compile(
            rf"(?i)(?<![a-z])(?:{words})(?![a-z])['\"]?\s{{0,8}}[:=#(\[]{{0,2}}\s{{0,8}}['\"]?{_COUNT}"
        ),
    )
    for name, key, words in (
        ("step", "step", r"(?:global|train|current|optimizer)?[_ -]?steps?"),
        ("iter", "it", r"(?:iter(?:ation)?s?|itr)"),
        ("update", "update", r"(?:num_)?updates?"),
        ("batch", "batch", r"(?:mini)?batch(?:es)?"),
    )
)
"""Series, a text without which its pattern cannot match, pattern."""
# `Epoch [1][100/62598]`, `Epoch(train)  [1][  50/3000]`, `Train Epoch: 1 [640/60000 (1%)]`,
# `Train: 12 [  50/1251 (  4%)]`, `epoch 001:    100 / 3000 loss=12.3`
_EPOCH_PAIRS = (
    re.compile(
        r"(?i)epoch(?:\(\w{1,20}\))?:?\s{0,2}\[\s{0,8}(\d{1,9})(?:/\d{1,9})?\]"
        r"\s{0,4}\[\s{0,8}(\d{1,9})\s?/\s?(\d{1,9})\]"
    ),
    re.compile(
        r"(?i)(?:epoch|train):?\s{0,2}(\d{1,9})\s{0,2}\[\s{0,8}(\d{1,12})/(\d{1,12})\s?\(\s{0,3}\d"
    ),
    re.compile(r"(?i)epoch (\d{1,9}):\s{1,12}(\d{1,12}) / (\d{1,12})(?!\S)"),
)
# `0/40, SamplesPerSec=83.4` of DeepSpeed's timer: epoch and step.
_TIMER_PAIR = re.compile(r"(?<!\S)(\d{1,9})/(\d{1,12}), (?:RunningAvg)?SamplesPerSec=")
_EPOCH = re.compile(
    r"(?i)(?<![a-z])epoch(s?)['\"]?\s{0,4}[:=#(\[]{0,2}\s{0,8}['\"]?"
    r"(\d{1,9}(?:\.\d{1,9})?)(?:\s?(?:/|of)\s?(\d{1,9}))?"
)
_BRACKET_PAIR = re.compile(r"^[^\[]{0,60}\[\s*(\d{1,9})\s*/\s*(\d{1,9})\s*\]")
_DICT = re.compile(r"^\s*\{['\"][^}]{0,3000}['\"]?(?:epoch|step)['\"]?")

_FIGURE = rf"['\"]?\s?[:=]?\s{{0,4}}['\"]?({_NUMBER}|[-+]?nan|[-+]?inf(?:inity)?)\b"
_LOSS = re.compile(
    r"(?i)(?<![a-z_])(?<!val )(?<!eval )(?<!valid )(?<!test )(?<!validation )"
    r"(?:(?:reduced_)?(?:train(?:ing)?|total|lm|avg|mean)[_ /])?loss(?:_step)?(?: train)?"
    rf"{_FIGURE}"
)
_NORM = re.compile(rf"(?i)grad(?:ient)?[_ ]?norm{_FIGURE}")
_RATE_AFTER = re.compile(
    rf"(?i)({_NUMBER})\s?([kM]?)\s?tok(?:en)?s?(?:/s(?:ec(?:ond)?)?|ps)\b(?!\s?[:=])"
)
_RATE_BEFORE = re.compile(
    r"(?i)(?:tok(?:en)?s?(?:/s(?:ec(?:ond)?)?|_per_s(?:ec(?:ond)?)?|[ _]?ps|_throughput)"
    r"(?:[/_](?:gpu|device|per_gpu|rank))?|(?<![a-z])[tw]ps)"
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
    before: str = ""
    """What stands before the counter: an evaluation's name, a worker's."""


def split_ranks(line: str) -> list[str]:
    """Lines of several ranks that were printed into one another, apart."""
    low = line.lower()
    if "rank" not in low or len(low) != len(line):  # some letters are longer in lower case
        return [line]
    cuts = [0]
    at = low.find("rank", 1)
    while at > 0:
        start = at - (line[at - 1] == "[")
        if start and not line[start - 1].isspace() and _RANK_STEP.match(line, at):
            cuts.append(start)
        at = low.find("rank", at + 4)
    return [line[i:j] for i, j in itertools.pairwise([*cuts, len(line)])]


def rank_of(line: str) -> int | None:
    """Rank that a line names near its start, e.g. `[rank1]:` or `rank1 step=50`."""
    head = line[:80]
    low = head.lower()
    found = _RANK.search(head) if "rank" in low else None
    if found is None and ("default" in low or "local_rank" in low):
        found = _LOCAL_RANK.search(head)
    return int(found.group(1)) if found else None


def bad_numbers(line: str) -> list[tuple[str, str]]:
    """`(loss, nan)` and the like: figures that are not finite, as written."""
    low = line.lower()
    if "loss" not in low and "norm" not in low:
        return []
    if "nan" not in low and "inf" not in low.replace("info", ""):
        return []
    found = []
    for what, pattern in (("loss", _LOSS), ("grad_norm", _NORM)):
        match = pattern.search(line)
        if match and match.group(1).lstrip("+-")[:3].lower() in ("nan", "inf"):
            found.append((what, match.group(1)))
    return found


def finite_norm(line: str) -> float | None:
    """Gradient norm of a line, None where it has none or it is not finite."""
    return _finite(_NORM.search(line)) if "norm" in line.lower() else None


def read_counter(line: str) -> Reading | None:
    """The counter of a line in a known format (bars apart: `bars.parse_bar`), or None."""
    low = line.lower()
    paired = "[" in low or "/" in low
    for pair in _EPOCH_PAIRS if paired and ("epoch" in low or "train" in low) else ():
        if found := pair.search(line):
            epoch, step, total = (int(part) for part in found.groups())
            return _reading(line, "epoch-step", found, step=step, total=total, epoch=float(epoch))
    if "samplespersec" in low and (found := _TIMER_PAIR.search(line)):
        return _reading(line, "timer", found, step=int(found.group(2)))
    epoch_match = _progress(_EPOCH, line) if "epoch" in low else None
    # `epochs: 3` is a setting; `epochs 3/10` counts.
    if epoch_match and epoch_match.group(1) and not epoch_match.group(3):
        epoch_match = None
    epoch_number = float(epoch_match.group(2)) if epoch_match else None
    for series, key, pattern in _WORDS:
        if key in low and (found := _progress(pattern, line)):
            total_number = _whole(found.group(2)) if found.group(2) else None
            step = _whole(found.group(1))
            return _reading(line, series, found, step=step, total=total_number, epoch=epoch_number)
    if epoch_match:
        return _reading(line, "epoch", epoch_match, epoch=epoch_number)
    if "[" in low and "/" in low and (found := _BRACKET_PAIR.search(line)):
        step, total = int(found.group(1)), int(found.group(2))
        return _reading(line, "pair", found, step=step, total=total)
    return None


def _progress(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    """The first match that is no setting (`max_steps=1000`) and no plan (`from step 500`)."""
    for found in pattern.finditer(line):
        if not is_setting(line[max(found.start() - 40, 0) : found.start()].lower(), found.group()):
            return found
    return None


def figures(line: str) -> tuple[float | None, float | None]:
    """Tokens a second and loss of a line, None where it has none or they are not finite."""
    low = line.lower()
    return _rate(line, low), _finite(_LOSS.search(line)) if "loss" in low else None


def _reading(
    line: str,
    series: str,
    found: re.Match[str],
    *,
    step: int | None = None,
    total: int | None = None,
    epoch: float | None = None,
) -> Reading:
    rate, loss = figures(line)
    rank = rank_of(line)
    if step is None:
        value = epoch or 0.0
    else:
        # A step that starts again with each epoch is ordered by its epoch.
        value = step + ((epoch or 0.0) * 1e9 if series in ("iter", "batch", "epoch-step") else 0.0)
    return Reading(
        series=series if rank is None else f"{series}@{rank}",
        fmt=_fmt(line),
        value=value,
        step=step,
        total=total,
        epoch=epoch,
        tokens_per_s=rate,
        loss=loss,
        rank=rank,
        before=line[max(found.start() - 40, 0) : found.start()],
    )


def _fmt(line: str) -> str:
    return "dict" if _DICT.match(line) else "words"


def _rate(line: str, low: str) -> float | None:
    if "tok" not in low and "tps" not in low and "wps" not in low:
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
