"""The boxed table of nvidia-smi, cell by cell: old and new widths, MIG, process table."""

from __future__ import annotations

import re

from dflash_watch.readers.gpumodel import MigDevice, SmiProcess
from dflash_watch.readers.gpuvalues import GpuBuild, bytes_of

_BUS = re.compile(r"\b[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\b")
_FIRST = re.compile(r"\s{0,8}(\d{1,4})\s{1,4}(\S.*)$")
_MODE = re.compile(r"\s(On|Off|N/A|ERR!|Enabled|Disabled)\s*$")
_TEMPERATURE = re.compile(r"(?:^|\s)(-?\d{1,3}) ?C\b")
_POWER = re.compile(
    r"(\d{1,5}(?:\.\d{1,2})?|N/A|ERR!|\[?Unknown Error\]?)\s?W?\s?/\s{0,6}(\d{1,5}|N/A|ERR!)"
)
_MEMORY = re.compile(r"(\d{1,9} ?[KMG]i?B)\s{0,3}/\s{0,6}(\d{1,9} ?[KMG]i?B)")
_UTILISATION = re.compile(r"(\d{1,3}) ?%")
_MIG = re.compile(r"\s{0,8}(\d{1,4})\s{1,6}(\d{1,4})\s{1,6}(\d{1,4})\s{1,6}(\d{1,4})\s*$")
_VERSIONS = re.compile(r"Driver Version: ?([\w.]{1,20})|CUDA Version: ?([\w./]{1,20})")
_REFUSED = "Insufficient Permissions"
_KIND = re.compile(r"[CGM](?:\+[CGM]){0,2}$")
_SIZE = re.compile(r"\d{1,9} ?[KMG]i?B$|N/A$|ERR!$")


class TableReader:
    """Rows of one or more tables, line by line."""

    def __init__(self) -> None:
        self.driver: str | None = None
        self.cuda: str | None = None
        self.gpus: list[GpuBuild] = []
        self.mig: list[MigDevice] = []
        self.processes: list[SmiProcess] | None = None
        self.tables = 0
        self._open: GpuBuild | None = None

    def feed(self, line: str) -> bool:
        """Take a line; True when it belongs to a table. A new head begins another look."""
        if "NVIDIA-SMI" in line and "Driver Version" in line:
            self._head(line)
            return True
        if not line.lstrip().startswith(("|", "+")):
            return False
        cells = line.strip().strip("|").split("|")
        if "Processes:" in line or "No running processes" in line or "Process name" in line:
            self.processes = self.processes or []
            self._open = None
            return True
        if "|" in line and (process := process_row(line)):
            self.processes = [*(self.processes or []), process]
            return True
        return self._row(cells)

    def take_gpus(self) -> list[GpuBuild]:
        """GPUs of the table read so far."""
        gpus, self.gpus, self._open = self.gpus, [], None
        return gpus

    def _head(self, line: str) -> None:
        self.tables += 1
        for found in _VERSIONS.finditer(line):
            self.driver = found.group(1) or self.driver
            self.cuda = found.group(2) or self.cuda

    def _row(self, cells: list[str]) -> bool:
        if len(cells) < 3:
            return self.tables > 0 or cells[0].startswith("+-")
        if _BUS.search(cells[1]) and (found := _FIRST.match(cells[0])):
            self._begin(int(found.group(1)), found.group(2), cells)
            return True
        if (found := _MIG.match(cells[0])) and _MEMORY.search(cells[1]):
            self._slice(found, cells[1])
            return True
        if self._open is not None:
            self._measures(self._open, cells)
            self._open = None
        return True

    def _begin(self, index: int, name: str, cells: list[str]) -> None:
        gpu = GpuBuild(index)
        gpu.put("name", _MODE.sub("", name.rstrip()).rstrip(" ."))
        gpu.put("ecc_uncorrected", cells[2])
        self.gpus.append(gpu)
        self._open = gpu

    def _measures(self, gpu: GpuBuild, cells: list[str]) -> None:
        left, middle, right = cells[0], cells[1], cells[2]
        gpu.note = " ".join(middle.split()) if "/" not in middle else ""
        temperature, power = _TEMPERATURE.search(left), _POWER.search(left)
        gpu.put("temperature_celsius", temperature.group(1) if temperature else _word(left))
        gpu.put("power_watts", power.group(1) if power else _word(left))
        gpu.put("power_limit_watts", power.group(2) if power else _word(left))
        memory = _MEMORY.search(middle)
        gpu.put("memory_used_bytes", memory.group(1) if memory else middle)
        gpu.put("memory_total_bytes", memory.group(2) if memory else middle)
        used = _UTILISATION.search(right)
        gpu.put("utilization_ratio", used.group(1) if used else " ".join(right.split()[:1]))

    def _slice(self, found: re.Match[str], memory: str) -> None:
        sizes = _MEMORY.search(memory)
        gpu, instance, compute, device = (int(part) for part in found.groups())
        self.mig.append(
            MigDevice(
                gpu=gpu,
                instance=instance,
                compute=compute,
                device=device,
                memory_used_bytes=bytes_of(sizes.group(1)) if sizes else None,
                memory_total_bytes=bytes_of(sizes.group(2)) if sizes else None,
            )
        )


def process_row(line: str) -> SmiProcess | None:
    """A row of the process table, also one that stands alone in a log."""
    body = line.strip()[:400]
    if not body.startswith("|"):
        return None
    words = body.strip("|").split()
    kind = next((i for i in (2, 4) if len(words) > i and _KIND.match(words[i])), None)
    if kind is None:
        return None
    gpu, pid = words[0][:9], words[kind - 1][:10]
    if not gpu.isdecimal() or not pid.isdecimal():
        return None
    rest = words[kind + 1 :]
    size = rest.pop() if rest and _SIZE.match(rest[-1]) else ""
    name = " ".join(rest)
    known = name.strip("[]") not in ("", "Not Found", "Unknown Error", "N/A", _REFUSED)
    return SmiProcess(
        gpu=int(gpu),
        pid=int(pid),
        kind=words[kind],
        name=name if known else None,
        memory_bytes=bytes_of(size),
    )


def _word(cell: str) -> str:
    return "ERR!" if "ERR!" in cell else "N/A"
