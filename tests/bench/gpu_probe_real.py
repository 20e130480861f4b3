"""What the agent and each driver call cost on a real card. Run once where there is one.

    python tests/bench/gpu_probe_real.py [--seconds 30] [--json FILE]

Prints: price of each NVML call (median, 95th percentile, CPU, in ms), which fields the card gives,
whether GPM works, how process numbers are seen, and the whole agent's share of a core at one
look a second (target: at most 1 %). Loads the GPU lightly with torch when that is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2]
sys.path[:0] = [str(HERE / name) for name in ("tests", "watchdog", "dflash", "tui")]

import pynvml  # noqa: E402 - runs without an install
from dflash_watch.agent.nvmlgpm import Gpm  # noqa: E402
from dflash_watch.agent.nvmlgpu import Gpu  # noqa: E402
from watch.agent.driving import AgentProcess  # noqa: E402

CORE_PERCENT_TARGET = 1.0
LOAD = """
import sys, time
print("step=0", flush=True)
try:
    import torch
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
except Exception as error:
    print("no load:", error, flush=True)
    x = None
step = 0
while True:
    step += 1
    if x is not None:
        for _ in range(20):
            y = x @ x
        torch.cuda.synchronize()
    print(f"step={step}", flush=True)
    time.sleep(0.05)
"""


def prices(repeats: int) -> dict[str, dict[str, Any]]:
    """Call -> median and 95th percentile in ms (wall), CPU ms, or what the driver said."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    gpm = Gpm()
    gpm.begin(handle)
    seen = [0, 0]

    def samples(kind: int) -> None:
        _type, found = pynvml.nvmlDeviceGetSamples(handle, kind, seen[kind])
        seen[kind] = max((each.timeStamp for each in found), default=seen[kind])

    calls: dict[str, Callable[[], object]] = {
        "memory": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2),
        "utilization": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle),
        "power": lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        "temperature": lambda: pynvml.nvmlDeviceGetTemperature(handle, 0),
        "sm-clock": lambda: pynvml.nvmlDeviceGetClockInfo(handle, 1),
        "reasons": lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        "gpm": lambda: gpm.read(handle),
        "power-history": lambda: samples(0),
        "utilization-history": lambda: samples(1),
        "processes": lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle),
        "power-limit": lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle),
        "ecc": lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0),
        "energy": lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
    }
    found = {name: price(call, repeats) for name, call in calls.items()}
    pynvml.nvmlShutdown()
    return found


def price(call: Callable[[], object], repeats: int) -> dict[str, Any]:
    """Median and 95th percentile of a call."""
    walls, cpu = [], time.process_time()
    for _ in range(repeats):
        begun = time.perf_counter()
        try:
            call()
        except pynvml.NVMLError_NotFound:
            pass  # nothing new in the ring: a valid answer
        except pynvml.NVMLError as error:
            return {"error": str(error)}
        walls.append(1000 * (time.perf_counter() - begun))
        time.sleep(0.1)
    spent = 1000 * (time.process_time() - cpu) / repeats
    high = sorted(walls)[int(0.95 * (len(walls) - 1))]
    return {
        "ms": round(statistics.median(walls), 3),
        "p95_ms": round(high, 3),
        "cpu_ms": round(spent, 3),
    }


def whole_agent(seconds: float) -> dict[str, Any]:
    """The agent beside a load: its share of a core, what it saw."""
    with tempfile.TemporaryDirectory() as folder:
        log_path = Path(folder) / "train.log"
        with log_path.open("wb") as log:
            load = subprocess.Popen([sys.executable, "-c", LOAD], stdout=log, stderr=log)
        time.sleep(20 if seconds >= 10 else 1)
        agent = AgentProcess({"pid": load.pid}, every_s=1.0, max_life_s=seconds + 120)
        try:
            return _watch(agent, load.pid, seconds)
        finally:
            agent.kill()
            load.kill()
            load.wait()


def _watch(agent: AgentProcess, pid: int, seconds: float) -> dict[str, Any]:
    for _ in range(5):
        agent.frame()
    begun, first = time.monotonic(), agent.frame()["cost"]["cpu_ticks"]
    fields: set[str] = set()
    errors: dict[str, str] = {}
    gaps: set[str] = set()
    processes: list[dict[str, Any]] = []
    while time.monotonic() - begun < seconds:
        frame = agent.frame()
        gaps |= {gap["reason"] for gap in frame["gaps"] if gap["source"] == "gpu"}
        for gpu in frame.get("gpus", ()):
            fields |= set(gpu)
            errors.update(gpu.get("errors", {}))
            processes = gpu.get("processes", processes) or processes
    wall = time.monotonic() - begun
    ticks = frame["cost"]["cpu_ticks"] - first
    return {
        "core_percent": round(100 * ticks / os.sysconf("SC_CLK_TCK") / wall, 2),
        "pss_mb": round(frame["cost"].get("pss_bytes", 0) / 1e6, 1),
        "wire_bytes_per_frame": round(agent.wire_bytes / (frame["seq"] + 1)),
        "gpus": len(frame.get("gpus", ())),
        "gpu_fields": sorted(fields),
        "gpu_errors": errors,
        "gpu_gaps": sorted(gaps),
        "gpu_driver": frame.get("gpu_driver"),
        "processes": processes,
        "load_pid": pid,
        "last_gpu": (frame.get("gpus") or [None])[0],
    }


def sampler_cost(looks: int) -> dict[str, Any]:
    """CPU of the sampler alone for one card, at its own paces, in ms a look."""
    pynvml.nvmlInit()
    gpu = Gpu(0, "/proc")
    gpu.read(0.0, 1, [])
    cpu = time.process_time()
    for look in range(1, looks + 1):
        gpu.read(float(look), 1, [])  # the clock is an argument: a minute of paces in no time
    return {"looks": looks, "cpu_ms_per_look": round(1000 * (time.process_time() - cpu) / looks, 3)}


def main() -> int:
    """Measure and print; 1 when the agent costs more than its target."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = {
        "prices": prices(options.repeats),
        "sampler": sampler_cost(60),
        "agent": whole_agent(options.seconds),
    }
    print(f"{'call':22}{'ms':>9}{'p95':>9}{'cpu ms':>9}")
    for name, row in result["prices"].items():
        cells = row.get("error") or f"{row['ms']:9.3f}{row['p95_ms']:9.3f}{row['cpu_ms']:9.3f}"
        print(f"{name:22}{cells}")
    print(f"sampler: {result['sampler']['cpu_ms_per_look']} ms of CPU a look, one card")
    for key, value in result["agent"].items():
        print(f"{key:22}{json.dumps(value)}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(result["agent"]["core_percent"] > CORE_PERCENT_TARGET)


if __name__ == "__main__":
    raise SystemExit(main())
