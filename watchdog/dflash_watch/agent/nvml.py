"""Reads every GPU through NVML; lives in the GPU child, where any call may hang.

Each field is a value, not supported, or failed with the driver's words: never a zero for
"unknown". Dear calls have a pace of their own, spread over the GPUs (prices on an H200, ms: power,
clocks 0.01; GPM 0.3; power history 0.4; utilisation history 1.5; energy 3.3).
"""

from __future__ import annotations

import ctypes
import time
from typing import Any, Dict, List, Optional

import pynvml

from dflash_watch.agent.memory import read_maps
from dflash_watch.agent.nvmlerrors import cause, explain, field_error
from dflash_watch.agent.nvmlevents import Xids
from dflash_watch.agent.nvmlgpu import Gpu

LIBRARY = "libnvidia-ml.so.1"
PLACES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
)
RETRY_S = 10.0
RETRY_ABSENT_S = 30.0


class Sampler:
    """Keeps NVML open and one `Gpu` a device.

    Args:
        root: `/proc`, to check process numbers against.
        library: another NVML library than the system's.
    """

    def __init__(self, root: str, library: Optional[str]) -> None:
        self._root, self._library = root, library
        self._gpus: List[Gpu] = []
        self._xids = Xids()
        self._driver: Optional[str] = None
        self._is_open = False

    def read(self, pids: List[int]) -> Dict[str, Any]:
        """`gpus` as `frame.GpuSample`s and `gpu_driver`, or `problem`, `cause` and `retry_in_s`.

        Args:
            pids: processes of the run, in whose number space GPU processes are looked up.
        """
        try:
            if not self._is_open:
                self._open(pids)
            self._renew_gpus()
        except pynvml.NVMLError as error:
            absent = error.value in (
                pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
                pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
            )
            self._is_open, self._xids = False, Xids()
            rows = [gpu.failed_row(field_error(error)) for gpu in self._gpus]
            rest_s = RETRY_ABSENT_S if absent else RETRY_S
            return {
                "problem": explain(error, self._root),
                "cause": cause(error),
                "retry_in_s": rest_s,
                "gpus": rows or None,
            }
        now_s = time.monotonic()
        rows = [gpu.read(now_s, len(self._gpus), pids) for gpu in self._gpus]
        self._add_xids(rows)
        return {"gpus": rows, "gpu_driver": self._driver}

    def _add_xids(self, rows: List[Dict[str, Any]]) -> None:
        """What the driver's events told; a lost card's last word belongs to its row too."""
        for gpu, row in zip(self._gpus, rows):
            refused = self._xids.watch(gpu.index, gpu.handle) if gpu.handle is not None else None
            if refused is not None:
                row["errors"]["xids"] = refused
        for index, numbers in self._xids.read().items():
            rows[index]["xids"] = numbers

    def _open(self, pids: List[int]) -> None:
        self._load(pids)
        pynvml.nvmlInit()
        self._is_open = True
        try:
            self._driver = _text(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError:
            self._driver = None

    def _load(self, pids: List[int]) -> None:
        """Load the library: asked for, normal search, usual places, the run's own."""
        if pynvml.nvmlLib is not None:
            return
        names = [self._library] if self._library else [LIBRARY]
        if not self._library:
            names += [place + "/" + LIBRARY for place in PLACES] + mapped_libraries(
                self._root, pids
            )
        for name in names:
            try:
                pynvml.nvmlLib = ctypes.CDLL(name)
            except OSError:
                continue
            return
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    def _renew_gpus(self) -> None:
        """One `Gpu` a device; one that was lost keeps its row though the count has shrunk."""
        count = pynvml.nvmlDeviceGetCount()
        while len(self._gpus) < count:
            self._gpus.append(Gpu(len(self._gpus), self._root))


def mapped_libraries(root: str, pids: List[int]) -> List[str]:
    """NVML libraries that the run itself has loaded, wherever they come from."""
    found = []
    for pid in pids[:8]:
        for line in read_maps(root, pid).splitlines():
            place = line.find("/")
            if place > 0 and "libnvidia-ml.so" in line:
                found.append(line[place:].replace(" (deleted)", ""))
    return sorted(set(found))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
