"""CSV of `nvidia-smi --query-gpu` and `--query-compute-apps`, and the columns of `dmon`.

Any columns in any order, with or without units and header. Without a header columns are named by
their units and places, and the result says that it guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dflash_watch.readers.gpumodel import SmiProcess
from dflash_watch.readers.gpuvalues import GpuBuild, bytes_of, number_of

ROWS_LIMIT = 100_000
COLUMNS = {
    "index": "index", "gpu": "index", "count": "-", "timestamp": "stamp",
    "uuid": "uuid", "gpu_uuid": "uuid", "name": "name", "gpu_name": "name",
    "memory.used": "memory_used_bytes", "memory.total": "memory_total_bytes",
    "utilization.gpu": "utilization_ratio", "power.draw": "power_watts",
    "power.draw.instant": "power_watts", "power.draw.average": "-",
    "power.limit": "power_limit_watts",
    "enforced.power.limit": "power_limit_watts", "temperature.gpu": "temperature_celsius",
    "clocks.sm": "sm_clock_mhz", "clocks.current.sm": "sm_clock_mhz", "clocks.gr": "-",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrected",
    "clocks_throttle_reasons.active": "clock_reasons",
    "clocks_event_reasons.active": "clock_reasons",
    "driver_version": "driver",
    "pid": "pid", "process_name": "process", "used_memory": "process_bytes",
    "used_gpu_memory": "process_bytes", "gpu_bus_id": "-", "gpu_serial": "-",
}  # fmt: skip
"""Column as the tool names it -> what it is here; `-` is known and not used."""
DMON = {
    "gpu": "index", "pwr": "power_watts",
    "gtemp": "temperature_celsius", "temp": "temperature_celsius",
    "sm": "utilization_ratio", "pclk": "sm_clock_mhz", "fb": "memory_used_bytes",
    "Time": "stamp", "Date": "-",
}  # fmt: skip
_HEAD_WORD = re.compile(r"[a-z_]{2,24}(?:\.[a-z_]{1,24}){0,5}(?: \[[^\]]{1,6}\])?$")
_BY_UNIT = (
    (re.compile(r"\d{1,9} [KMG]iB$"), ("memory_used_bytes", "memory_total_bytes")),
    (re.compile(r"\d{1,3} %$"), ("utilization_ratio", "-")),
    (re.compile(r"\d{1,5}(?:\.\d{1,2})? W$"), ("power_watts", "power_limit_watts")),
    (re.compile(r"\d{1,5} MHz$"), ("sm_clock_mhz", "-")),
    (re.compile(r"GPU-[0-9a-f-]{8,40}$"), ("uuid",)),
    (re.compile(r"0x[0-9a-fA-F]{1,16}$"), ("clock_reasons",)),
    (re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d"), ("stamp",)),
    (re.compile(r"(?:NVIDIA|Tesla|Quadro|GeForce|GRID|[AHBLVT]\d{1,3}0?0?)\b.{0,60}$"), ("name",)),
)


class CsvReader:
    """Rows of CSV, line by line.

    Attributes:
        rows: (stamp, GPU) of the GPU rows read so far.
        processes: rows of `--query-compute-apps`; None without any.
        guessed: columns named without a header.
        unread: columns that say nothing known here.
        driver: version, where a column has it.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[str | None, GpuBuild]] = []
        self.processes: list[SmiProcess] | None = None
        self.guessed: tuple[str, ...] = ()
        self.unread: list[str] = []
        self.driver: str | None = None
        self._columns: list[str] | None = None

    def feed(self, line: str) -> bool:
        """Take a line; True when it is a head or a row."""
        if line.startswith(("# gpu", "#Time", "# Time")):
            self._columns = [DMON.get(word, "-") for word in line.lstrip("# ").split()]
            return True
        if line.startswith("#"):
            return False
        dmon = self._columns is not None and "," not in line
        cells = line.split() if dmon else [cell.strip() for cell in line.split(",")]
        if not dmon and self._head(cells):
            return True
        if self._columns is None and not self._guess(cells):
            return False
        return self._row(cells)

    def _head(self, cells: Sequence[str]) -> bool:
        words = [cell.split(" [")[0] for cell in cells]
        known = sum(word in COLUMNS for word in words)
        if not known or not all(_HEAD_WORD.match(cell) for cell in cells):
            return False
        self._columns = [COLUMNS.get(word, f"?{word}") for word in words]
        self.unread += [word for word in words if word not in COLUMNS and word not in self.unread]
        if "pid" in self._columns:
            self.processes = self.processes or []
        return True

    def _guess(self, cells: Sequence[str]) -> bool:
        """Names by units for a text without header; False when it does not look like one."""
        if len(cells) < 2 or not re.fullmatch(r"\d{1,4}", cells[0]):
            return False
        left = {names: list(names) for _, names in _BY_UNIT}
        columns = ["index"]
        for cell in cells[1:]:
            names = next((left[names] for pattern, names in _BY_UNIT if pattern.match(cell)), [])
            columns.append(names.pop(0) if names else "?")
        if len(cells) == 3 and columns[1:] == ["?", "?"]:
            columns = self._bare(cells)
        if not any(name not in ("?", "-") for name in columns[1:]):
            return False
        self._columns = columns
        self.guessed = tuple(name for name in columns if name not in ("?", "-"))
        self.unread += [f"column {i + 1}" for i, name in enumerate(columns) if name == "?"]
        return True

    def _bare(self, cells: Sequence[str]) -> list[str]:
        """The commonest three columns, without units: used MiB above 100, percent below."""
        used, share = number_of(cells[1]), number_of(cells[2])
        if used is not None and share is not None and used > 100 >= share:
            return ["index", "memory_used_bytes", "utilization_ratio"]
        return ["index", "?", "?"]

    def _row(self, cells: Sequence[str]) -> bool:
        columns = self._columns or []
        if len(cells) != len(columns):
            return False
        named = dict(zip(columns, cells, strict=True))
        if "pid" in named:
            return self._process(named)
        if not re.fullmatch(r"\d{1,4}", named.get("index", "0")):
            return False
        gpu = GpuBuild(int(named.get("index", len(self.rows))))
        for name, cell in named.items():
            if name == "driver":
                self.driver = cell
            elif name not in ("index", "stamp", "-") and not name.startswith("?"):
                gpu.put(name, cell)
        if "index" not in named and not gpu.values:
            return False
        if len(self.rows) < ROWS_LIMIT:
            self.rows.append((named.get("stamp"), gpu))
        return True

    def _process(self, named: dict[str, str]) -> bool:
        if not named["pid"].isdecimal():
            return False
        name = named.get("process", "")
        row = SmiProcess(
            gpu=None,
            pid=int(named["pid"][:10]),
            name=None if not name or name.startswith("[") else name,
            memory_bytes=bytes_of(named.get("process_bytes", "")),
        )
        self.processes = [*(self.processes or []), row]
        return True
