"""What the agent costs: threads and processes as asked for, eight fake GPUs, one look a second.

    python tests/bench/bench_agent.py [--run plain|large|crowd] [--seconds 60] [--json FILE]

`plain` is one process of 100 threads, `large` 16 processes of 1,000 together, `crowd` one process
of 5,000. Prints percent of a core (agent and children), memory (PSS of both) and bytes on the
wire, each beside its target. Start-up and the first 64 KiB of the log are told apart from the
steady state.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [
    str(Path(__file__).parents[1]),
    *(str(Path(__file__).parents[2] / name) for name in ("watchdog", "dflash", "tui")),
]

from fake_nvml import FakeNvml  # noqa: E402 - runs without an install
from watch.agent.driving import AgentProcess  # noqa: E402 - the path comes first

RUNS = {"plain": (1, 100), "large": (16, 1000), "crowd": (1, 5000)}
"""Processes, and threads in all of them together."""
TARGETS = {
    "plain": {"core_percent": 1.5, "pss_mb": 40.0, "wire_bytes_per_s": 4096.0},
    "large": {"core_percent": 3.0, "pss_mb": 60.0},
    "crowd": {"core_percent": 3.0, "pss_mb": 60.0},
}
WATCHED = """
import os, sys, threading, time
processes, threads = int(sys.argv[1]), int(sys.argv[2])
lead = os.getpid()
for _ in range(processes - 1):
    if os.getpid() == lead:
        os.fork()
threading.stack_size(65536)
stop = threading.Event()
def work(often):
    while True:
        time.sleep(0.5 if often else 1000)
for number in range(threads // processes - 1):
    # Of a crowd a hundred work; the others are pools that wait.
    threading.Thread(target=work, args=(number * processes < 100,), daemon=True).start()
if os.getpid() != lead:
    time.sleep(100000)
print("up", file=sys.stderr, flush=True)
step = 0
while True:
    step += 1
    print(f"step={step} loss={1 / step:.4f} tok/s={14200 + step % 97}", flush=True)
    time.sleep(0.2)
"""


def ticks_of(pid: int) -> int:
    """User plus system time of a process and of its children that were waited for, in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15])


def pss_bytes(pid: int) -> int:
    """Proportional set size."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return (
        next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024
    )


def family(pid: int) -> list[int]:
    """The entry script's shell, the agent below it, and the agent's children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def busy_gpus(nvml: FakeNvml, pid: int) -> None:
    """Five targets and three drafters at work."""
    for index in range(8):
        nvml.gpu(index, util=97 - index, power_mw=600_000 + 7000 * index, sm=80 + index, tensor=70)
        nvml.gpu(index, used=(70 + index) << 30, temp_c=60 + index, sm_mhz=1980, reasons=0, dram=20)
        nvml.process(index, pid, (69 + index) << 30)


def measure(run: str, seconds: float, python: str | None) -> dict[str, Any]:
    """One run of the agent over a steady stretch of time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [sys.executable, "-c", WATCHED, *map(str, RUNS[run])]
        with (folder / "train.log").open("wb") as log:
            watched = subprocess.Popen(
                words, stdout=log, stderr=subprocess.PIPE, start_new_session=True
            )
        assert watched.stderr
        watched.stderr.readline()
        nvml = FakeNvml.build(folder / "nvml")
        busy_gpus(nvml, watched.pid)
        agent = AgentProcess(
            {"pid": watched.pid}, every_s=1.0, gpu_library=str(nvml.library), python=python
        )
        try:
            return _steady(agent, seconds)
        finally:
            agent.kill()
            os.killpg(watched.pid, signal.SIGKILL)
            watched.wait()


def _steady(agent: AgentProcess, seconds: float) -> dict[str, Any]:
    for _ in range(9):
        frame = agent.frame()
    pids = family(agent.process.pid)
    ticks, wire, begun = sum(map(ticks_of, pids)), agent.wire_bytes, time.monotonic()
    looks, threads = [], 0
    while time.monotonic() - begun < seconds:
        frame = agent.frame()
        looks.append(frame["cost"]["frame_s"])
        threads = max(threads, sum(map(len, frame.get("threads", {}).values())))
    wall = time.monotonic() - begun
    per_s = os.sysconf("SC_CLK_TCK")
    return {
        "seconds": round(wall, 1),
        "frames": len(looks),
        "processes": len(frame["processes"]),
        "threads": threads,
        "gpus": len(frame["gpus"]),
        "core_percent": round(100 * (sum(map(ticks_of, pids)) - ticks) / per_s / wall, 2),
        "pss_mb": round(sum(map(pss_bytes, family(agent.process.pid))) / 1e6, 1),
        "wire_bytes_per_s": round((agent.wire_bytes - wire) / wall),
        "look_ms": round(1000 * sorted(looks)[len(looks) // 2], 2),
        "worst_look_ms": round(1000 * max(looks), 2),
        "start_wire_bytes": wire,
    }


def main() -> int:
    """Measure, print, compare; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", choices=RUNS, default="plain")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--python", help="the agent's interpreter (default: what its script finds)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = measure(options.run, options.seconds, options.python)
    targets = TARGETS[options.run]
    for key, value in result.items():
        target = targets.get(key)
        print(f"{key:20} {value:>10}" + (f"   target <= {target:g}" if target else ""))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(any(result[key] > target for key, target in targets.items()))


if __name__ == "__main__":
    raise SystemExit(main())
