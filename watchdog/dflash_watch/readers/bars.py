"""Progress bars in one line of a log: tqdm's kind, and the older and newer ones of Keras.

One line in, a bar out; no memory. `counters.py` decides whether it moved.
"""

from __future__ import annotations

import re

import msgspec

# `Epoch 0:   6%|##   | 32040/500150 [6:28:43<94:39:17,  1.37it/s, loss=2.6]`, as tqdm and its kin:
# the counts are found first, then what stands before them.
_COUNTS = re.compile(
    r"(?<![\d.,/])(?P<n>\d[\d,]{0,14}(?:\.\d{1,3})?[kKMGT]?)/(?P<total>\d[\d,]{0,14}(?:\.\d{1,3})?[kKMGT]?)"
    r"(?: [A-Za-z]{1,12})? \[(?P<tail>[\d:?.\-]{1,16}\s?<[^\]]{0,300})?"
)
_BEFORE_COUNTS = re.compile(r"\d{1,3}%\s?\|[^|]{0,300}\|\s?$")
# Without a total: `12it [00:03,  4.0it/s]`.
_BAR_OPEN = re.compile(r"(?<!\S)(?P<n>\d{1,15})[A-Za-z]{2,10} \[\d{1,3}:\d\d(?::\d\d)?[,\]]")
# `312/1875 [===>....] - ETA: 2s - loss: 0.8`, newer: `44/469 ------ 0s 2ms/step - loss: 2.1`.
_KERAS = re.compile(
    r"\s{0,8}(?P<n>\d{1,12})/(?P<total>\d{1,12})\s(?:\[[=>.]{4,80}\]\s-|[\u2501\u2500]{4,80}\s{1,4}\S)"
)
_PER_S = re.compile(
    r",\s{0,4}(?P<rate>\d{1,9}(?:\.\d{1,6})?)(?P<unit>s/[A-Za-z]{1,12}|[A-Za-z]{1,12}/s)"
)
_SCALE = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A progress bar; a total of None is a bar without an end."""

    name: str
    n: int
    total: int | None
    tail: str = ""
    per_s: float | None = None
    """As the bar itself says, `it/s` or the inverse of `s/it`."""


def parse_bar(line: str) -> Bar | None:
    """A progress bar, whole enough to be read (a bar of tqdm has a `[` behind its counts)."""
    if "/" not in line:
        return _open_bar(line) if "[" in line else None
    found = _KERAS.match(line)
    if found:
        return Bar(name="", n=int(found["n"]), total=int(found["total"]))
    found = _COUNTS.search(line) if "[" in line else None
    if found:
        before = line[: found.start()]
        drawn = _BEFORE_COUNTS.search(before[-320:])
        if drawn or found["tail"]:
            name = before[: len(before) - len(drawn.group())] if drawn else before
            return Bar(
                name=_name(name),
                n=_amount(found["n"]),
                total=_amount(found["total"]),
                tail=found["tail"] or "",
                per_s=_per_s(found["tail"] or ""),
            )
    return _open_bar(line)


def _open_bar(line: str) -> Bar | None:
    found = _BAR_OPEN.search(line)
    if found is None:
        return None
    tail = line[found.end() - 1 : found.end() + 60]
    return Bar(
        name=_name(line[: found.start()]), n=_amount(found["n"]), total=None, per_s=_per_s(tail)
    )


def _per_s(tail: str) -> float | None:
    found = _PER_S.search(tail)
    if found is None:
        return None
    rate = float(found["rate"])
    if not found["unit"].startswith("s/"):
        return rate
    return 1.0 / rate if rate > 0 else None


def _amount(text: str) -> int:
    scale = _SCALE.get(text[-1].lower(), 0.0)
    number = text[:-1] if scale else text
    return round(float(number.replace(",", "")[:15]) * (scale or 1.0))


def _name(text: str) -> str:
    return re.sub(r"\d+", "#", text).strip(" :-\t")[-80:]
