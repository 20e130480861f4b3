"""A real stall on a real card: what is said, when, and what stack samples cost the run.

    python tests/bench/gpu_stall_real.py [--work DIR] [--json FILE] [--only foreign,tiny,ghost]

Needs a card and torch. `foreign`: a plain loop whose next kernel never ends, and samples of its
stacks while it is well (the longest gap of a thread that ticks, with and without a sample).
`tiny`: the trainer with two targets and two drafters on one card: SIGSTOP, then the same kernel.
`ghost`: memory held by a process of another PID namespace. Each is watched by `dflash-watch
--json`; then `check` and `dump` look at those that stand.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2]
PATHS = [str(HERE / name) for name in ("dflash", "watchdog", "tui")]
CARD = "cuda:0"
SPIN = """
def spin(place):
    import torch
    with torch.cuda.device(0):
        torch.cuda._sleep(1 << 62)
"""
FOREIGN = (
    SPIN
    + """
import os, sys, threading, time, torch
gap = [0.0]
def tick():
    last = time.perf_counter()
    while True:
        time.sleep(0.0005)
        now = time.perf_counter()
        gap[0] = max(gap[0], now - last)
        last = now
def tell():
    while True:
        time.sleep(0.25)
        open(sys.argv[1] + ".gap", "a").write(f"{time.time()} {gap[0]}\\n")
        gap[0] = 0.0
for body in (tick, tell):
    threading.Thread(target=body, daemon=True).start()
x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
for step in range(1, 100000):
    for _ in range(20): y = x @ x
    if os.path.exists(sys.argv[1]): spin(0)
    torch.cuda.synchronize()
    print(f"step={step}/100000 loss={1 / step:.4f}", flush=True)
    time.sleep(0.2)
"""
)
TINY = (
    SPIN
    + """
import os, sys, threading, time
from dflash_train import cli
trigger = sys.argv.pop(1)
def wait():
    while not os.path.exists(trigger): time.sleep(0.1)
    spin(0)
threading.Thread(target=wait, daemon=True).start()
sys.exit(cli.main())
"""
)


class _Kept(dict[str, Any]):
    """Answers of one part; each is on disk as soon as it is there."""

    def __init__(self, file: Path | None, whole: dict[str, Any]) -> None:
        super().__init__()
        self._file, self._whole = file, whole

    def __setitem__(self, key: str, value: object) -> None:
        super().__setitem__(key, value)
        if self._file is not None:
            self._file.write_text(json.dumps(self._whole, indent=1) + "\n")


def environment() -> dict[str, str]:
    given = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*PATHS, given])}


class Watch:
    """`dflash-watch --json` beside a run; its lines with the moment they came."""

    def __init__(self, where: list[str], incidents: Path) -> None:
        self.lines: list[dict[str, Any]] = []
        argv = [sys.executable, "-m", "dflash_watch.cli", *where, "--json"]
        self.process = subprocess.Popen(
            [*argv, "--incidents", str(incidents)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            told["came_t"] = time.time()
            self.lines.append(told)

    def until(self, wanted: Callable[[dict[str, Any]], bool], seconds: float) -> dict[str, Any]:
        """The newest line once it is as wanted; else an `error` that says what it was."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            if self.lines and wanted(self.lines[-1]):
                return self.lines[-1]
            time.sleep(0.05)
        last = self.lines[-1] if self.lines else {}
        said = {key: last.get(key) for key in ("verdict", "failure", "summary")}
        return {"error": f"not within {seconds:.0f} s", **said}

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def short(line: dict[str, Any], since_t: float) -> dict[str, Any]:
    """What a person sees first, and how long after the fault."""
    keys = ("error", "verdict", "failure", "subject", "severity", "summary", "next", "evidence")
    shown = {key: line[key] for key in keys if key in line}
    if "came_t" in line:
        shown["after_s"] = round(line["came_t"] - since_t, 1)
    return shown


def look(*words: str) -> dict[str, Any]:
    """`check` or `dump`: exit code, seconds, what it printed."""
    begun_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "dflash_watch.cli", *words], capture_output=True, text=True,
        env=environment(), timeout=60, check=False,
    )  # fmt: skip
    return {
        "rc": done.returncode, "s": round(time.monotonic() - begun_s, 1),
        "out": done.stdout[-6000:], "err": done.stderr[-500:],
    }  # fmt: skip


@contextmanager
def program(argv: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run with its log; killed at the end."""
    with log.open("wb") as out:
        run = subprocess.Popen(argv, stdout=out, stderr=out, env=environment())
    try:
        yield run
    finally:
        run.kill()
        run.wait()


def kept(incidents: Path) -> dict[str, Any]:
    """Folders, and the first stack sample of the last one."""
    folders = sorted(one for one in incidents.glob("*") if one.is_dir())
    stacks = sorted(folders[-1].glob("stacks-*.txt")) if folders else []
    return {
        "folders": [one.name for one in folders],
        "stacks": stacks[-1].read_text()[:5000] if stacks else None,
        "report": (folders[-1] / "report.md").read_text()[:4000] if folders else None,
    }


def foreign(work: Path, found: dict[str, Any]) -> None:
    """A plain loop: samples of its stacks while it is well, then a kernel that never ends."""
    trigger = work / "foreign-trigger"
    argv = [sys.executable, "-c", FOREIGN, str(trigger)]
    with program(argv, work / "foreign.log") as run:
        watch = Watch(["--pid", str(run.pid)], work / "foreign-incidents")
        try:
            found["running"] = short(watch.until(_runs, 90), time.time())
            found["pause"] = _pause(run.pid, Path(f"{trigger}.gap"))
            fault_t = time.time()
            trigger.touch()
            found["spin"] = short(watch.until(_stands, 60), fault_t)
            time.sleep(15)
            found["later"] = short(watch.lines[-1], fault_t)
            found["check"] = look("check", "--pid", str(run.pid))
            found["dump"] = look("dump", "--pid", str(run.pid))
            found["kept"] = kept(work / "foreign-incidents")
            found["told"] = _told(watch)
        finally:
            watch.end()


def _pause(pid: int, gaps: Path) -> dict[str, Any]:
    """Longest gap of the ticking thread in quarters of a second with and without a sample."""
    spans, costs = [], []
    for _ in range(5):
        begun_t = time.time()
        done = look("dump", "--pid", str(pid))
        spans.append((begun_t, time.time()))
        costs.append(done["s"])
        time.sleep(2)
    rows = [tuple(map(float, line.split())) for line in gaps.read_text().splitlines()]
    rows = [row for row in rows if row[0] > spans[0][0]]
    within = [gap for t, gap in rows if any(a <= t <= b + 0.25 for a, b in spans)]
    without = [gap for t, gap in rows if not any(a <= t <= b + 0.25 for a, b in spans)]
    return {
        "dump_s": costs, "last_dump": done["out"][:3000],
        "longest_gap_ms_with_samples": sorted(round(1e3 * gap, 2) for gap in within),
        "longest_gap_ms_without": sorted(round(1e3 * gap, 2) for gap in without),
    }  # fmt: skip


def tiny(work: Path, found: dict[str, Any]) -> None:
    """The trainer on one card: stopped and continued, then a kernel that never ends."""
    trigger, run_dir = work / "tiny-trigger", work / "tiny-run"
    argv = [
        sys.executable, "-c", TINY, str(trigger), "--preset", "tiny", "--run-dir", str(run_dir),
        "--no-watch", "--launch", "threads", "--target-devices", f"{CARD},{CARD}",
        "--drafter-devices", f"{CARD},{CARD}", "optim.steps=90000", "checkpoint.every_steps=0",
    ]  # fmt: skip
    with program(argv, work / "tiny.log") as run:
        time.sleep(8)
        watch = Watch(["--run-dir", str(run_dir)], work / "tiny-incidents")
        try:
            found["running"] = short(watch.until(_runs, 180), time.time())
            time.sleep(10)
            fault_t = time.time()
            run.send_signal(signal.SIGSTOP)
            found["stopped"] = short(watch.until(_stands, 60), fault_t)
            run.send_signal(signal.SIGCONT)
            found["continued"] = short(watch.until(_runs, 60), time.time())
            time.sleep(10)
            fault_t = time.time()
            trigger.touch()
            found["spin"] = short(watch.until(_stands, 90), fault_t)
            time.sleep(15)
            found["later"] = short(watch.lines[-1], fault_t)
            found["check"] = look("check", "--run-dir", str(run_dir))
            found["dump"] = look("dump", "--run-dir", str(run_dir))
            found["kept"] = kept(work / "tiny-incidents")
            found["told"] = _told(watch)
        finally:
            watch.end()
    found["log"] = (work / "tiny.log").read_text(errors="replace").splitlines()[-12:]


def ghost(work: Path, found: dict[str, Any]) -> None:
    """Memory held by a process of another PID namespace, which the driver lists nowhere here."""
    text = "import torch, time; x = torch.zeros(20 << 30, dtype=torch.uint8, device='cuda')\n"
    argv = ["unshare", "-p", "-f", "--mount-proc", "--kill-child", sys.executable, "-c"]
    with program([*argv, text + "time.sleep(600)"], work / "holder.log"):
        call = [sys.executable, "-c", FOREIGN, str(work / "never")]
        with program(call, work / "ghost.log") as run:
            watch = Watch(["--pid", str(run.pid)], work / "ghost-incidents")
            try:
                found["running"] = short(watch.until(_runs, 60), time.time())
                time.sleep(15)
                found["later"] = short(watch.lines[-1], time.time())
            finally:
                watch.end()


def _runs(line: dict[str, Any]) -> bool:
    return bool(line["verdict"] == "running")


def _stands(line: dict[str, Any]) -> bool:
    return line["verdict"] in ("stalled", "crashed", "quiet", "slow", "blind")


def _told(watch: Watch) -> list[str]:
    return [f"{one['t']:.1f} {one['verdict']} {one['failure']}" for one in watch.lines]


def main() -> int:
    """Each part alone: one that fails is told, the others go on."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", type=Path, default=Path("runs/gpu-stall-real"))
    parser.add_argument("--only", default="foreign,tiny,ghost")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    work = options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {}
    for name in options.only.split(","):
        result[name] = found = _Kept(options.json, result)
        try:
            {"foreign": foreign, "tiny": tiny, "ghost": ghost}[name](work, found)
        except Exception as error:  # noqa: BLE001 - a card is lent for minutes: the rest goes on
            found["error"] = f"{type(error).__name__}: {error}"
        print(name, json.dumps(found, indent=1), flush=True)
    return int(any("error" in part for part in result.values()))


if __name__ == "__main__":
    raise SystemExit(main())
