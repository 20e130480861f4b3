"""`check` over SSH and into a container, beside the commands a person would type.

Target: wall time without the sampling window at most 1.5 times that of
`ssh box "pct exec ID -- sh -c 'ps ...; tail ...; nvidia-smi ...'"`. Rounds alternate, medians are
compared. Where the container has no nvidia-smi the typed commands are cheaper than in real life.

Run as root: python tests/bench/bench_check.py [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT / name) for name in ("dflash", "watchdog", "tui", "tests")]
sys.path[:0] = FOLDERS

from e2e.places.bench import proxmox  # noqa: E402 - the path comes first
from e2e.places.fixtures import Proxmox  # noqa: E402

TARGET_RATIO, WINDOW_S = 1.5, 2.0
DEVELOPERS = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
"""Not set where a user has installed this: byte code is kept after the first, cold round."""
QUERY = "nvidia-smi --query-gpu=index,memory.used,utilization.gpu --format=csv,noheader"


def wall_s(argv: list[str], allowed: tuple[int, ...]) -> float:
    """Wall time of a command, in seconds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(FOLDERS)}
    for name in DEVELOPERS:
        environment.pop(name, None)
    begin = time.perf_counter()
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - begin
    if done.returncode not in allowed:
        raise RuntimeError(f"exit {done.returncode}: {done.stdout}{done.stderr}")
    return taken


def measure(place: Proxmox, rounds: int) -> dict[str, list[float]]:
    """Wall times of both ways, in turns."""
    script = str(ROOT / "tests" / "e2e" / "scripts" / "plain_loop.py")
    start = f"exec /usr/bin/python3 {script} --steps 100000 --step-s 0.2 > /root/run.log 2>&1"
    run = place.container.spawn(["/bin/sh", "-c", start], output=place.sshd.work / "out")
    config, box = place.sshd.ssh_config, place.container.id
    typed = f"ps -p {run.pid} -o pid,etime,pcpu,stat,cmd; tail -n 5 /root/run.log; {QUERY}"
    by_hand = ["ssh", "-F", config, "box", f'pct exec {box} -- sh -c "{typed}"']
    check = [sys.executable, "-m", "dflash_watch.cli", "check", "--host", "box", "--ssh-config"]
    check += [config, "--ct", box, "--pid", str(run.pid), "--window-s", str(WINDOW_S)]
    taken: dict[str, list[float]] = {"typed by hand": [], "check": []}
    for _ in range(rounds + 1):
        taken["typed by hand"].append(wall_s(by_hand, (0, 127)))
        taken["check"].append(wall_s(check, (0,)) - WINDOW_S)
    run.signal(15)
    return {name: times[1:] for name, times in taken.items()}  # the first is cold


def main() -> int:
    """Measure; 0 when the target is met."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with proxmox() as place:
        taken = measure(place, rounds)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, median in medians.items():
        print(f"{name:<14} {median * 1e3:6.0f} ms   ({min(taken[name]) * 1e3:.0f} at best)")
    ratio = medians["check"] / medians["typed by hand"]
    print(json.dumps({"figure": "check", "ratio": round(ratio, 2), "target": TARGET_RATIO}))
    return 0 if ratio <= TARGET_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
