"""How long `dflash-watch --version` takes, beside bare Python; target: at most 5 x.

Run: python tests/bench/bench_start.py [ROUNDS]. Rounds alternate, so that a busy machine slows
both; medians are compared. Prints a table and one JSON line.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET_RATIO = 5.0
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "--version": ["-m", "dflash_watch.cli", "--version"],
    "--help": ["-m", "dflash_watch.cli", "--help"],
}


def measure_s(arguments: list[str], environment: dict[str, str]) -> float:
    """Wall time of one start, in seconds."""
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - begin


def main() -> int:
    """Measure; 0 when the target is met."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    folders = [str(ROOT / name) for name in ("dflash", "watchdog", "tui")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds + 1):
        for name, arguments in COMMANDS.items():
            taken[name].append(measure_s(arguments, environment))
    medians = {name: statistics.median(times[1:]) for name, times in taken.items()}  # 1st: cold
    bare = medians["python -c pass"]
    for name, median in medians.items():
        print(f"{name:<16} {median * 1e3:6.1f} ms   {median / bare:4.1f} x")
    ratio = medians["--version"] / bare
    print(json.dumps({"figure": "start", "ratio": round(ratio, 2), "target": TARGET_RATIO}))
    return 0 if ratio <= TARGET_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
