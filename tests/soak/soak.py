"""A long watch of a small run: memory, descriptors and threads stay flat. `--seconds 3600`.

Watcher and agent together, one sample a second, the first fifth left out: compared are the medians
of the second and the last fifth. Ends with 1 when something grew.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
LOOP = ROOT / "tests" / "e2e" / "scripts" / "plain_loop.py"
FOLDERS = os.pathsep.join(str(ROOT / name) for name in ("dflash", "watchdog", "tui"))
MAY_GROW = {"MB": 6.0, "descriptors": 3.0, "threads": 2.0}


def main() -> int:
    """Watch for so many seconds; 1 when something grew."""
    parser = argparse.ArgumentParser(description="A long watch of a small run.")
    parser.add_argument("--seconds", type=float, default=3600.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        samples = soak(Path(folder), seconds)
    fifth = max(len(samples) // 5, 1)
    grew = False
    for name, most in MAY_GROW.items():
        early = statistics.median(one[name] for one in samples[fifth : 2 * fifth])
        late = statistics.median(one[name] for one in samples[-fifth:])
        grew |= late - early > most
        print(f"{name:<12} {early:8.1f} -> {late:8.1f}   (may grow by {most:g})")
    print(f"{len(samples)} samples over {seconds:.0f} s: {'something grew' if grew else 'flat'}")
    return int(grew)


def soak(folder: Path, seconds: float) -> list[dict[str, float]]:
    """Samples of the watcher with all it started, one a second."""
    environment = {**os.environ, "PYTHONPATH": FOLDERS, "XDG_STATE_HOME": str(folder / "state")}
    with (folder / "run.log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, str(LOOP), "--steps", "100000000", "--step-s", "0.02"],
            stdout=log, stderr=log, cwd=folder,
        )  # fmt: skip
    watch = subprocess.Popen(
        [sys.executable, "-m", "dflash_watch.cli", "--json", "--pid", str(run.pid)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment, cwd=folder,
    )  # fmt: skip
    samples, end_s = [], time.monotonic() + seconds
    try:
        while time.monotonic() < end_s:
            time.sleep(1.0)
            if watch.poll() is not None:
                raise SystemExit(f"the watcher ended with {watch.returncode}")
            samples.append(sample(psutil.Process(watch.pid)))
    finally:
        for process in (watch, run):
            process.terminate()
            process.wait(60)
    return samples


def sample(watcher: psutil.Process) -> dict[str, float]:
    """Sums over the watcher and its descendants; short-lived children included."""
    told = dict.fromkeys(MAY_GROW, 0.0)
    for one in (watcher, *watcher.children(recursive=True)):
        try:
            with one.oneshot():
                told["MB"] += one.memory_full_info().pss / 1e6
                told["descriptors"] += one.num_fds()
                told["threads"] += one.num_threads()
        except psutil.Error:  # it has ended meanwhile
            continue
    return told


if __name__ == "__main__":
    sys.exit(main())
