"""What a real card says: states of all fields, events, process numbers, and how loads look.

    python tests/bench/gpu_signs_real.py [--seconds 10] [--json FILE]

Needs a card and torch. Serial numbers are left out. Prints, and writes as JSON:
`fields` (value, not supported or failed, each), `events` (registration, price of a fetch),
`pids` (how the driver names a process inside and outside of a PID namespace), and `scenes`: idle,
a spinning kernel, a matrix product and a device copy, as the agent reads them, with the reading.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2]
sys.path[:0] = [str(HERE / name) for name in ("watchdog", "dflash")]

import msgspec  # noqa: E402 - runs without an install
import pynvml  # noqa: E402 - the path comes first
from dflash_watch.agent.nvml import Sampler  # noqa: E402 - the path comes first
from dflash_watch.agent.nvmlevents import XID_EVENT  # noqa: E402 - the path comes first
from dflash_watch.frame import GpuSample  # noqa: E402 - the path comes first
from dflash_watch.window.gpus import GpuTrack  # noqa: E402 - the path comes first

PRIVATE = ("uuid", "pci")
STARTS_S = 12.0
"""A load has torch imported and its context by then."""
LOADS = {
    "idle": "import time; import torch; x = torch.zeros(2 << 30, device='cuda'); time.sleep(600)",
    "spin": "import torch; x = torch.zeros(2 << 30, device='cuda')\n"
    "torch.cuda._sleep(1 << 62); torch.cuda.synchronize()",
    "matmul": "import torch; x = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\n"
    "while True:\n    for _ in range(50): y = x @ x\n    torch.cuda.synchronize()",
    "copy": "import torch; x = torch.randn(1 << 30, device='cuda'); y = torch.empty_like(x)\n"
    "while True:\n    for _ in range(50): y.copy_(x)\n    torch.cuda.synchronize()",
}
HOLDS = "import torch, time; x = torch.zeros(1 << 28, device='cuda'); print(1, flush=True)\n"
LISTS = """
import json, os, pynvml
pynvml.nvmlInit()
rows = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0))
print(json.dumps({"own": os.getpid(), "listed": [row.pid for row in rows],
                  "memory": [row.usedGpuMemory for row in rows]}), flush=True)
"""


def fields() -> dict[str, Any]:
    """Every field of the first card with its state, over seven looks."""
    sampler, seen, errors = Sampler("/proc", None), {}, {}  # type: Sampler, dict[str, Any], Any
    for _ in range(7):
        row = sampler.read([])["gpus"][0]
        seen.update({key: value for key, value in row.items() if key not in PRIVATE})
        errors = row.get("errors", {})
        time.sleep(1)
    names = [field.name for field in msgspec.structs.fields(GpuSample)]
    return {
        "values": seen,
        "errors": errors,
        "silent": [name for name in names if name not in {*seen, *PRIVATE, "state", "errors"}],
    }


def events() -> dict[str, Any]:
    """Which events the card has, whether they can be registered, and what a fetch costs."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    supported = pynvml.nvmlDeviceGetSupportedEventTypes(handle)
    found: dict[str, Any] = {"supported": f"{supported:#x}", "xid": bool(supported & XID_EVENT)}
    made = pynvml.nvmlEventSetCreate()
    begun_s = time.perf_counter()
    pynvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, made)
    found["register_ms"] = round(1e3 * (time.perf_counter() - begun_s), 3)
    for wait_ms in (0, 1, 50):
        spent = []
        for _ in range(20):
            begun_s = time.perf_counter()
            try:
                pynvml.nvmlEventSetWait_v2(made, wait_ms)
                found["came"] = True
            except pynvml.NVMLError as error:
                found["says"] = str(error)
            spent.append(1e3 * (time.perf_counter() - begun_s))
        found[f"wait_{wait_ms}_ms"] = round(statistics.median(spent), 3)
    for name, ask in (
        ("reasons_supported", pynvml.nvmlDeviceGetSupportedClocksEventReasons),
        ("mig", pynvml.nvmlDeviceGetMigMode),
        ("persistence", pynvml.nvmlDeviceGetPersistenceMode),
        ("architecture", pynvml.nvmlDeviceGetArchitecture),
    ):
        try:
            found[name] = ask(handle)
        except pynvml.NVMLError as error:
            found[name] = str(error)
    return found


def pids() -> dict[str, Any]:
    """A process with a context, and what the driver calls it, here and in a namespace."""
    found = {}
    for name, prefix in (("here", []), ("namespace", ["unshare", "-p", "-f", "--mount-proc"])):
        found[name] = _last([*prefix, sys.executable, "-c", HOLDS + LISTS])
    inside = ["unshare", "-p", "-f", "--mount-proc", sys.executable, "-c"]
    with subprocess.Popen([*inside, HOLDS + "time.sleep(60)"], stdout=subprocess.PIPE) as held:
        assert held.stdout is not None
        held.stdout.readline()
        found["from outside"] = _last([sys.executable, "-c", LISTS])
        found["from outside"]["front process"] = held.pid
        found["from another namespace"] = _last([*inside, LISTS])
        held.kill()  # the init of the namespace is its child: it ends with the sleep
    return found


def _last(argv: list[str]) -> dict[str, Any]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    lines = done.stdout.splitlines()
    return dict(json.loads(lines[-1])) if done.returncode == 0 and lines else {"error": done.stderr}


def scene(program: str, seconds: float) -> dict[str, Any]:
    """The card under one load, as the agent reads it and as the engine understands it."""
    load = subprocess.Popen([sys.executable, "-c", program])
    try:
        time.sleep(STARTS_S)
        sampler, track, rows = Sampler("/proc", None), None, []
        while len(rows) < seconds:
            row = sampler.read([load.pid])["gpus"][0]
            sample = msgspec.convert(row, GpuSample)
            track = track or GpuTrack(sample, time.monotonic())
            track.take(sample, time.monotonic())
            rows.append({key: value for key, value in row.items() if key not in PRIVATE})
            time.sleep(1)
        assert track is not None
        reading = track.reading
        return {
            "reading": None if reading is None else {"load": reading.load, "text": reading.text},
            "watts": _mean(row.get("power_watts") for row in rows),
            "watts_by_energy": _by_energy(5.0),
            "utilization": _mean(row.get("utilization_ratio") for row in rows),
            "sm": _mean(row.get("sm_ratio") for row in rows),
            "reasons": sorted({row.get("clock_reasons", -1) for row in rows}),
            "rows": rows,
        }
    finally:
        load.kill()
        load.wait()


def _by_energy(seconds: float) -> float:
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    begun_s, before = time.monotonic(), pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    time.sleep(seconds)
    after = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    return round((after - before) / 1e3 / (time.monotonic() - begun_s), 1)


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), 4) if known else None


def main() -> int:
    """Each part alone: one that fails is told, the others go on."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    parts: dict[str, Callable[[], Any]] = {"fields": fields, "events": events, "pids": pids}
    for name, program in LOADS.items():
        parts[name] = lambda program=program: scene(program, options.seconds)
    result: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            result[name] = part()
        except Exception as error:  # noqa: BLE001 - a card is lent for minutes: the rest goes on
            result[name] = {"error": f"{type(error).__name__}: {error}"}
        shown = {key: value for key, value in result[name].items() if key != "rows"}
        print(name, json.dumps(shown), flush=True)
        with suppress(OSError):
            if options.json:
                options.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(any("error" in part for part in result.values()))


if __name__ == "__main__":
    raise SystemExit(main())
