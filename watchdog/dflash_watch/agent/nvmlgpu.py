"""One GPU: which fields are due, what was seen last, and what the driver refuses."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Callable, Dict, List, Tuple

import pynvml

from dflash_watch.agent.nvmlerrors import GPU_IS_LOST, field_error
from dflash_watch.agent.nvmlgpm import Gpm
from dflash_watch.agent.pidspace import PidSpace

POWER, UTILIZATION = 0, 1
"""Kinds of NVML's sample rings."""
SM_CLOCK, GPU_SENSOR = 1, 0
MAX_POWER_SAMPLES = 10
POWER_HISTORY_EVERY_S, UTILIZATION_HISTORY_EVERY_S = 2.0, 5.0
PROCESSES_EVERY_S, SLOW_EVERY_S, REFUSED_EVERY_S = 5.0, 30.0, 60.0
KEPT = (
    "power_limit_watts",
    "ecc_uncorrected",
    "nvlinks_active",
    "processes",
    "sm_ratio",
    "tensor_ratio",
    "dram_ratio",
)
"""Levels that stay true for a while: shown in frames between two readings."""
NOT_SUPPORTED = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
Field = Tuple[str, float, Callable[[], Any]]


class LostError(Exception):
    """The GPU fell off the bus while it was read."""


class Gpu:
    """Reads one device by its index.

    Args:
        index: NVML's.
        root: `/proc`.
    """

    def __init__(self, index: int, root: str) -> None:
        self.index = index
        self.handle: Any = None
        """NVML's; None until the card has answered."""
        self._constant: Dict[str, Any] = {}
        self._due_s: Dict[str, float] = {}
        self._kept: Dict[str, Any] = {}
        self._errors: Dict[str, str] = {}
        self._seen = {POWER: 0, UTILIZATION: 0}
        self._gpm = Gpm()
        self._space = PidSpace(root)
        self._pids: List[int] = []

    def read(self, now_s: float, num_gpus: int, pids: List[int]) -> Dict[str, Any]:
        """`frame.GpuSample` of this moment.

        Args:
            now_s: CLOCK_MONOTONIC.
            num_gpus: how many there are; dear calls are spread over them.
            pids: processes of the run.
        """
        self._pids = pids
        row: Dict[str, Any] = {"index": self.index}
        try:
            if self.handle is None:
                self._identify()
            row.update(self._constant)
            for name, every_s, read in self._fields(num_gpus):
                self._read_field(row, name, every_s * 0.95, read, now_s, num_gpus)
        except LostError:
            return self.failed_row("GPU is lost", state="lost")
        except pynvml.NVMLError as error:
            lost = error.value == GPU_IS_LOST
            return self.failed_row(field_error(error), state="lost" if lost else "failed")
        row.update({key: value for key, value in self._kept.items() if key not in row})
        row["errors"] = dict(self._errors)
        return row

    def failed_row(self, reason: str, state: str = "failed") -> Dict[str, Any]:
        """The row stays when the device does not answer: what it is, and why nothing else."""
        self.handle = None
        self._kept.clear()
        self._due_s.clear()
        return dict(
            {"index": self.index, "state": state, "errors": {"device": reason}}, **self._constant
        )

    def _identify(self) -> None:
        handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
        self._constant = {
            "uuid": _text(pynvml.nvmlDeviceGetUUID(handle)),
            "name": _text(pynvml.nvmlDeviceGetName(handle)),
        }
        with suppress(pynvml.NVMLError):  # it only finds the card of a kernel line
            self._constant["pci"] = _text(pynvml.nvmlDeviceGetPciInfo(handle).busId)
        with suppress(pynvml.NVMLError):  # most cards cannot be cut into instances at all
            if pynvml.nvmlDeviceGetMigMode(handle)[0]:
                self._constant["mig"] = True
        self.handle = handle
        self._gpm.begin(handle)

    def _fields(self, num_gpus: int) -> List[Field]:
        """Name, seconds between readings, reader; a reader returns a dict or the field's value."""
        handle = self.handle
        return [
            ("memory", 0.0, lambda: _memory(handle)),
            (
                "utilization_ratio",
                0.0,
                lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            ),
            ("power_watts", 0.0, lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            (
                "temperature_celsius",
                0.0,
                lambda: float(pynvml.nvmlDeviceGetTemperature(handle, GPU_SENSOR)),
            ),
            ("sm_clock_mhz", 0.0, lambda: pynvml.nvmlDeviceGetClockInfo(handle, SM_CLOCK)),
            ("clock_reasons", 0.0, lambda: _clock_reasons(handle)),
            ("gpm", 1.0 if num_gpus <= 2 else 2.0, lambda: self._gpm.read(handle)),
            ("power_history_watts", POWER_HISTORY_EVERY_S, lambda: self._power_history(handle)),
            (
                "utilization_history",
                UTILIZATION_HISTORY_EVERY_S,
                lambda: self._utilization_history(handle),
            ),
            ("processes", PROCESSES_EVERY_S, lambda: self._processes(handle)),
            (
                "power_limit_watts",
                SLOW_EVERY_S,
                lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            ),
            (
                "ecc_uncorrected",
                SLOW_EVERY_S,
                lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0),
            ),
            ("nvlinks", SLOW_EVERY_S, lambda: _links(handle)),
            (
                "energy_joules",
                SLOW_EVERY_S,
                lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000,
            ),
        ]

    def _read_field(
        self,
        row: Dict[str, Any],
        name: str,
        every_s: float,
        read: Callable[[], Any],
        now_s: float,
        num_gpus: int,
    ) -> None:
        if now_s < self._due_s.get(name, 0.0):
            return
        first = name not in self._due_s
        # The first period is cut short by the GPU's place in line: not all are due together.
        spread_s = every_s * (self.index / num_gpus) if first and num_gpus > 1 else 0.0
        self._due_s[name] = now_s + every_s - spread_s
        try:
            value = read()
        except pynvml.NVMLError as error:
            if error.value == GPU_IS_LOST:
                raise LostError from error
            self._errors[name] = field_error(error)
            self._kept.pop(name, None)
            if error.value in NOT_SUPPORTED:
                self._due_s[name] = now_s + REFUSED_EVERY_S
            return
        self._errors.pop(name, None)
        values = value if isinstance(value, dict) else {name: value}
        row.update(values)
        self._kept.update({key: each for key, each in values.items() if key in KEPT})

    def _power_history(self, handle: Any) -> List[float]:
        watts = [value / 1000 for value in self._samples(handle, POWER)]
        return [round(each, 1) for each in thinned(watts, MAX_POWER_SAMPLES)]

    def _utilization_history(self, handle: Any) -> List[float]:
        # Some drivers report values above 100: garbage, not load.
        return [value / 100 for value in self._samples(handle, UTILIZATION) if 0 <= value <= 100]

    def _samples(self, handle: Any, kind: int) -> List[int]:
        """The driver's own samples since the last reading; none yet is no error.

        Time stamps are only compared with earlier ones of the same ring: their clock differs
        between drivers.
        """
        try:
            value_type, samples = pynvml.nvmlDeviceGetSamples(handle, kind, self._seen[kind])
        except pynvml.NVMLError_NotFound:
            return []
        new = [each for each in samples if each.timeStamp > self._seen[kind]]
        if new:
            self._seen[kind] = max(each.timeStamp for each in new)
        return [_sample_value(value_type, each.sampleValue) for each in new]

    def _processes(self, handle: Any) -> List[Dict[str, Any]]:
        listed = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        rows = []
        for each in listed:
            row = {"pid": each.pid, "pid_space": self._space.of(each.pid, self._pids)}
            if each.usedGpuMemory is not None:
                row["memory_bytes"] = each.usedGpuMemory
            rows.append(row)
        return rows


def thinned(values: List[float], limit: int) -> List[float]:
    """At most `limit` of them, evenly spread, the newest always among them."""
    if len(values) <= limit:
        return values
    step = len(values) / limit
    return [values[int((place + 1) * step) - 1] for place in range(limit)]


def _memory(handle: Any) -> Dict[str, int]:
    """Used without what the driver reserves, where the driver tells the two apart."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError as error:
        if error.value == GPU_IS_LOST:
            raise
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return {"memory_used_bytes": memory.used, "memory_total_bytes": memory.total}


def _links(handle: Any) -> Dict[str, int]:
    """NVLinks that are up; empty for a card that has none."""
    active = None
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            state = int(pynvml.nvmlDeviceGetNvLinkState(handle, link))
        except pynvml.NVMLError as error:
            if error.value == GPU_IS_LOST:
                raise
            break  # there are no more, or none at all
        active = state if active is None else active + state
    return {} if active is None else {"nvlinks_active": active}


def _clock_reasons(handle: Any) -> int:
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except pynvml.NVMLError_FunctionNotFound:
        return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _sample_value(value_type: int, value: Any) -> int:
    """The member of the union that the value type names, in NVML's order."""
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    return int(getattr(value, names[value_type] if 0 <= value_type < len(names) else "uiVal"))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
