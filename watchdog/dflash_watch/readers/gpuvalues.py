"""Values as nvidia-smi prints them: numbers with units, or the words it has for their absence.

Text in, number in base units or None out. Knows no layout.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from dflash_watch.frame import GpuSample

_NUMBER = re.compile(r"\s{0,20}(-?\d{1,15}(?:\.\d{1,9})?)\s{0,3}([A-Za-z%/]{0,5})")
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "MB": 10**6}
MIB = 1 << 20

TROUBLE = (
    ("mismatch", "driver/library version mismatch"),
    ("lost", "gpu is lost"),
    ("lost", "fallen off the bus"),
    ("lost", "unable to determine the device handle"),
    ("lost", "gpu requires reset"),
    ("no-driver", "couldn't communicate with the nvidia driver"),
    ("no-driver", "driver not loaded"),
    ("no-driver", "nvidia driver is not loaded"),
    ("refused", "insufficient permissions"),
    ("none-found", "no devices were found"),
    ("no-tool", "nvidia-smi: command not found"),
    ("no-tool", "nvidia-smi: not found"),
    ("refused", "failed to initialize nvml"),
    ("refused", "unable to load the nvml library"),
)
"""Kind of trouble, and the words by which the tool says so, in small letters; the first counts."""


def trouble_in(line: str) -> str | None:
    """Kind of trouble that a line reports: one of TROUBLE, or None."""
    low = line[:400].lower()
    return next((kind for kind, words in TROUBLE if words in low), None)


def number_of(text: str) -> float | None:
    """The number at the start of a value, its unit left out."""
    found = _NUMBER.match(text)
    return float(found.group(1)) if found else None


def bytes_of(text: str, default: int = MIB) -> int | None:
    """Bytes of `67133 MiB`, `13MiB`; a bare number counts `default` bytes each."""
    found = _NUMBER.match(text)
    if found is None:
        return None
    return round(float(found.group(1)) * _BYTES.get(found.group(2), default))


def ratio_of(text: str) -> float | None:
    """0.05 of `5 %`."""
    number = number_of(text)
    return None if number is None else number / 100.0


def absent(text: str) -> str:
    """What stands where a value should, as the tool says it: `N/A`, `ERR!`, `Unknown Error`."""
    return text.strip().strip("[]").strip()[:60] or "empty"


class GpuBuild:
    """One GPU being put together; a value that is absent leaves the tool's word for it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.values: dict[str, object] = {}
        self.errors: dict[str, str] = {}
        self.note = ""

    def put(self, field: str, text: str) -> None:
        """Store a value of a field of `GpuSample`, in its unit."""
        value = _READ[field](text)
        if value is None or value == "":
            self.errors.setdefault(field, absent(text))
        else:
            self.errors.pop(field, None)
            self.values.setdefault(field, value)

    def built(self) -> GpuSample:
        """The sample: `lost` or `failed` where the tool says so."""
        said = " ".join([self.note, *self.errors.values()]).lower()
        state = "ok"
        if any(kind == "lost" and words in said for kind, words in TROUBLE):
            state = "lost"
        elif not self.values.keys() & _MEASURED and ("err!" in said or "unknown error" in said):
            state = "failed"
        return msgspec.convert(
            {"index": self.index, "state": state, "errors": self.errors, **self.values}, GpuSample
        )


def _whole(text: str) -> int | None:
    number = number_of(text)
    return None if number is None else round(number)


def _words(text: str) -> str | None:
    word = text.strip()
    return None if not word or word.strip("[]") in ("N/A", "ERR!", "Unknown Error") else word


def _mask(text: str) -> int | None:
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text.strip()) else None


_READ: dict[str, Callable[[str], object]] = {
    "uuid": _words,
    "name": _words,
    "memory_used_bytes": bytes_of,
    "memory_total_bytes": bytes_of,
    "utilization_ratio": ratio_of,
    "power_watts": number_of,
    "power_limit_watts": number_of,
    "temperature_celsius": number_of,
    "sm_clock_mhz": _whole,
    "ecc_uncorrected": _whole,
    "clock_reasons": _mask,
}
_MEASURED = _READ.keys() - {"uuid", "name"}
