"""The long report of `nvidia-smi -q`: sections by indentation, one block a GPU."""

from __future__ import annotations

import re

from dflash_watch.readers.gpuvalues import GpuBuild

_GPU = re.compile(r"GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*$")
_FIELDS = {
    ("", "Product Name"): "name",
    ("", "GPU UUID"): "uuid",
    ("FB Memory Usage", "Used"): "memory_used_bytes",
    ("FB Memory Usage", "Total"): "memory_total_bytes",
    ("Utilization", "Gpu"): "utilization_ratio",
    ("Utilization", "GPU"): "utilization_ratio",
    ("Temperature", "GPU Current Temp"): "temperature_celsius",
    ("Power Readings", "Power Draw"): "power_watts",
    ("Power Readings", "Power Limit"): "power_limit_watts",
    ("GPU Power Readings", "Power Draw"): "power_watts",
    ("GPU Power Readings", "Instantaneous Power Draw"): "power_watts",
    ("GPU Power Readings", "Current Power Limit"): "power_limit_watts",
    ("Clocks", "SM"): "sm_clock_mhz",
    ("Volatile", "DRAM Uncorrectable"): "ecc_uncorrected",
}


class QueryReader:
    """Blocks of `-q`, line by line.

    Attributes:
        gpus: GPUs in the order of the text, which is that of their indices unless `-i` chose some.
        recovery: index -> what the driver says must be done (`GPU Recovery Action`), if anything.
    """

    def __init__(self) -> None:
        self.gpus: list[GpuBuild] = []
        self.recovery: dict[int, str] = {}
        self.driver: str | None = None
        self.cuda: str | None = None
        self._sections: list[tuple[int, str]] = []

    def feed(self, line: str) -> bool:
        """Take a line; True when it belongs to a report."""
        if _GPU.match(line):
            self.gpus.append(GpuBuild(len(self.gpus)))
            self._sections = []
            return True
        key, colon, value = line.partition(" : ")
        name = key.strip()
        if not self.gpus:
            return self._version(name, value.strip()) if colon else False
        indent = len(line) - len(line.lstrip())
        if not indent:
            return False
        self._sections = [one for one in self._sections if one[0] < indent]
        if not colon:
            self._sections.append((indent, name))
            return True
        section = self._sections[-1][1] if self._sections else ""
        field = _FIELDS.get((section, name))
        if field:
            self.gpus[-1].put(field, value)
        elif name == "GPU Recovery Action" and value.strip() not in ("None", "N/A"):
            self.recovery[self.gpus[-1].index] = value.strip()
        return True

    def _version(self, name: str, value: str) -> bool:
        if name == "Driver Version":
            self.driver = value
        elif name == "CUDA Version":
            self.cuda = value
        return name in ("Driver Version", "CUDA Version", "Attached GPUs")
