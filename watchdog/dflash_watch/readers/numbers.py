"""Step counters and figures in one line of a log, in the formats that trainers use.

One line in, readings out; no memory. `counters.py` decides whether a counter moved.
"""

from __future__ import annotations

import re

import msgspec

_NUMBER = r"[-+]?(?:\d[\d,_]{0,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?"
_RANK = re.compile(r"(?i)(?:^|[\[(<\s])(?:local_)?(?:rank|default)[ _:=]*(\d{1,6})\b")
_RANK_START = re.compile(r"(?i)(?<=[^\s\[])(?=\[?rank ?\d{1,6}\]?:? +(?:global[_ ])?step\b)")

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
# Words before a counter's name that make it a setting or a plan, not progress.
_SETTING = re.compile(
    r"(?i)(?:(?<![a-z])(?:max(?:imum)?|min|total|num(?:ber)?|warm-?up|sav\w{1,4}|logg?(?:ing)?|accum\w{0,8}|n"
    r"|decay|per|every|each|from|until|inference|sampling|diffusion|denoising|optimi[sz]ation|of"
    r"|anneal\w{0,4}|cycle)[_ .-]{1,3}(?:(?:train(?:ing)?|number of)[_ -])?"
    r"|(?:resum|restor|load)\w{0,8}\W[^,;|]{0,30})$"
)
_EVAL_SETTING = re.compile(r"(?i)(?:eval(?:uation)?|test|val(?:id\w{0,6})?|train)[_ .-]{1,3}$")
_PLURAL = re.compile(r"(?i)[a-z_ -]{0,12}?(?:steps|iters|iterations|updates|batches|epochs)")
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
    return _RANK_START.split(line) if "rank" in line.lower() else [line]


def rank_of(line: str) -> int | None:
    """Rank that a line names near its start, e.g. `[rank1]:` or `rank1 step=50`."""
    found = _RANK.search(line[:80])
    return int(found.group(1)) if found else None


def bad_numbers(line: str) -> list[tuple[str, str]]:
    """`(loss, nan)` and the like: figures that are not finite, as written."""
    found = []
    for what, pattern in (("loss", _LOSS), ("grad_norm", _NORM)):
        match = pattern.search(line)
        if match and match.group(1).lstrip("+-")[:3].lower() in ("nan", "inf"):
            found.append((what, match.group(1)))
    return found


def read_counter(line: str) -> Reading | None:
    """The counter of a line in a known format (bars apart: `bars.parse_bar`), or None."""
    for pair in _EPOCH_PAIRS:
        if found := pair.search(line):
            epoch, step, total = (int(part) for part in found.groups())
            return _reading(line, "epoch-step", found, step=step, total=total, epoch=float(epoch))
    if found := _TIMER_PAIR.search(line):
        return _reading(line, "timer", found, step=int(found.group(2)))
    epoch_match = _progress(_EPOCH, line)
    # `epochs: 3` is a setting; `epochs 3/10` counts.
    if epoch_match and epoch_match.group(1) and not epoch_match.group(3):
        epoch_match = None
    epoch_number = float(epoch_match.group(2)) if epoch_match else None
    for series, pattern in _WORDS:
        if found := _progress(pattern, line):
            total_number = _whole(found.group(2)) if found.group(2) else None
            step = _whole(found.group(1))
            return _reading(line, series, found, step=step, total=total_number, epoch=epoch_number)
    if epoch_match:
        return _reading(line, "epoch", epoch_match, epoch=epoch_number)
    if found := _BRACKET_PAIR.search(line):
        step, total = int(found.group(1)), int(found.group(2))
        return _reading(line, "pair", found, step=step, total=total)
    return None


def _progress(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    """The first match that is no setting (`max_steps=1000`) and no plan (`from step 500`)."""
    for found in pattern.finditer(line):
        before = line[max(found.start() - 40, 0) : found.start()]
        planned = _PLURAL.match(found.group()) and (
            _EVAL_SETTING.search(before) or found.group()[:5].lower() == "train"
        )
        if not planned and not _SETTING.search(before):
            return found
    return None


def figures(line: str) -> tuple[float | None, float | None]:
    """Tokens a second and loss of a line, None where it has none or they are not finite."""
    return _rate(line), _finite(_LOSS.search(line))


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


def _rate(line: str) -> float | None:
    low = line.lower()
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
