"""What one watcher costs that watches eight runs over eight SSH connections.

    python tests/bench/bench_fleet.py [--runs 8] [--threads 20] [--gpus] [--seconds 60]

A real sshd on loopback; each run is a process that logs five lines a second. The watcher is the
inside of `dflash-watch fleet` as a process: its CPU time, its memory (PSS), and how old each frame
was when it arrived (same clock on both sides). What agents cost, bench_agent.py says.
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

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT / name) for name in ("tests", "watchdog", "dflash", "tui")]
sys.path[:0] = FOLDERS

import psutil  # noqa: E402 - the path comes first
from dflash_watch.drills.fake_nvml import FakeNvml  # noqa: E402 - the path comes first
from e2e.places import sshd as server  # noqa: E402 - the path comes first
from e2e.places.sshd import Sshd  # noqa: E402 - runs without an install

TARGETS = {"core_percent": 20.0, "pss_mb": 150.0, "latest_frame_s": 2.0}
WARM_S = 20.0
"""Logging in, loading, the first stack samples."""
RUN = """
import sys, threading, time
def work():
    while True:
        time.sleep(0.5)
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=work, daemon=True).start()
step = 0
while True:
    step += 1
    print(f"step={step} loss={1 / step:.4f} tok/s={14200 + step % 97}", flush=True)
    time.sleep(0.2)
"""
WATCHER = """
import json, os, sys
from collections import Counter
from pathlib import Path
from dflash_watch.clock import SystemClock
from dflash_watch.commands.context import stop_on_signals
from dflash_watch.commands.fleet import watch_all
from dflash_watch.commands.fleetfile import read_fleet
late, newest, verdicts, cards, began = Counter(), {}, {}, {}, float(sys.argv[2])
def tell(row):
    shot = row.snapshot
    if shot is None or shot.data_t is None: return
    verdicts[row.name] = shot.verdict.value
    cards[row.name] = sum(one.power_watts is not None for one in shot.board.gpus)
    if newest.get(row.name) == shot.data_t or shot.received_t < began: return
    newest[row.name] = shot.data_t
    late[round(shot.received_t - shot.data_t, 2)] += 1
members = read_fleet(Path(sys.argv[1]), dict(os.environ))
watch_all(members, SystemClock(), stop_on_signals(), tell, until_end=False)
print(json.dumps({"late": list(late.items()), "verdicts": verdicts, "cards": cards}))
"""


def ticks_of(pid: int) -> int:
    """User plus system time, in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def pss_bytes(pid: int) -> int:
    """Proportional set size."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) << 10


def highest_bytes(pid: int) -> int:
    """The most that was resident at any time, pages of shared libraries included."""
    text = Path(f"/proc/{pid}/status").read_text()
    return (
        next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM")) << 10
    )


def fleet_file(folder: Path, runs: list[subprocess.Popen[bytes]], sshd: Sshd) -> Path:
    """One entry a run, each over a connection of its own."""
    entries = [
        f'[[run]]\nname = "run-{number}"\nhost = "box"\npid = {run.pid}\n'
        for number, run in enumerate(runs)
    ]
    path = folder / "fleet.toml"
    path.write_text(f'ssh-config = "{sshd.ssh_config}"\nincidents = "kept"\n' + "\n".join(entries))
    return path


def drive(nvml: FakeNvml, runs: list[subprocess.Popen[bytes]]) -> None:
    """Eight busy cards, the same for all; each run holds memory on each."""
    for index in range(8):
        nvml.gpu(index, util=97 - index, power_mw=600_000 + 7000 * index, sm=80 + index, tensor=70)
        nvml.gpu(index, used=(70 + index) << 30, temp_c=60 + index, sm_mhz=1980, reasons=0, dram=20)
        for run in runs:
            nvml.process(index, run.pid, 8 << 30)


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """One fleet over a steady stretch of time."""
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sshd").mkdir()
        if given.gpus:  # sessions find the driver where theirs would be
            nvml = FakeNvml.build(folder / "nvml")
            find = f"SetEnv LD_LIBRARY_PATH={nvml.folder} PATH="
            server._SERVER = server._SERVER.replace("SetEnv PATH=", find)
        sshd = Sshd(folder / "sshd", sys.executable)
        try:
            for number in range(given.runs):
                with (folder / f"run-{number}.log").open("wb") as log:
                    argv = [sys.executable, "-c", RUN, str(given.threads)]
                    started.append(subprocess.Popen(argv, stdout=log))
            if given.gpus:
                drive(nvml, started)
            path = fleet_file(folder, started, sshd)
            environment = {
                **os.environ, "PYTHONPATH": os.pathsep.join(FOLDERS),
                "XDG_STATE_HOME": str(folder / "state"),
            }  # fmt: skip
            argv = [sys.executable, "-c", WATCHER, str(path), str(time.time() + WARM_S)]
            watcher = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE)
            started.append(watcher)
            return follow(watcher, sshd, given.seconds, given.profile)
        finally:
            for process in started:
                process.kill()
                process.wait()
            sshd.down()


def follow(
    watcher: subprocess.Popen[bytes], sshd: Sshd, seconds: float, profile: str | None
) -> dict[str, Any]:
    """CPU, memory and threads of the watcher; what it saw, when it is told to stop."""
    time.sleep(WARM_S)
    before, began_s = ticks_of(watcher.pid), time.monotonic()
    if profile:
        argv = ["py-spy", "record", "-d", str(int(seconds)), "-r", "200", "-f", "raw"]
        subprocess.run([*argv, "-o", profile, "-p", str(watcher.pid)], check=True)
    time.sleep(max(seconds - (time.monotonic() - began_s), 0.0))
    spent_s = (ticks_of(watcher.pid) - before) / os.sysconf("SC_CLK_TCK")
    took_s, pss = time.monotonic() - began_s, pss_bytes(watcher.pid)
    peak_mb = round(highest_bytes(watcher.pid) / 2**20, 1)
    threads = len(list(Path(f"/proc/{watcher.pid}/task").iterdir()))
    connections = [
        one for one in psutil.Process(watcher.pid).net_connections("tcp")
        if one.raddr and one.raddr.port == sshd.port
    ]  # fmt: skip
    watcher.send_signal(signal.SIGTERM)
    out, _ = watcher.communicate(timeout=30)
    told = json.loads(out.splitlines()[-1])
    late = sorted(age for age, times in told["late"] for _ in range(times))
    return {
        "core_percent": round(100 * spent_s / took_s, 2),
        "pss_mb": round(pss / 2**20, 1),
        "peak_mb": peak_mb,
        "latest_frame_s": late[-1],
        "median_frame_s": late[len(late) // 2],
        "frames": len(late),
        "threads": threads,
        "connections": len(connections),
        "verdicts": sorted(told["verdicts"].values()),
        "gpus_seen": sum(told["cards"].values()),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Measure and print beside the targets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=20, help="of each run")
    parser.add_argument("--gpus", action="store_true", help="eight fake cards each")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--profile", metavar="FILE", help="py-spy's stacks of the watcher")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    result = measure(given)
    for key, value in result.items():
        target = f"   target <= {TARGETS[key]}" if key in TARGETS else ""
        print(f"{key:<18} {value}{target}")
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
