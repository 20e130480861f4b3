"""What reading costs: 200 MB of log with 100 stack dumps in it, and each reader by itself.

    python tests/bench/bench_readers.py [MEGABYTES]

Targets: `dflash-watch diagnose` of that log within 10 s and 300 MB. Judged by CPU seconds, which a
busy machine does not change much; the readers' own figures are the best of three.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [str(ROOT / part) for part in ("dflash", "watchdog")]
sys.path[:0] = PACKAGES

from dflash_watch.frame import LogSample  # noqa: E402 - after the path is set
from dflash_watch.readers.gputext import parse_gpus  # noqa: E402 - after the path is set
from dflash_watch.readers.logtext import LogReader  # noqa: E402 - after the path is set
from dflash_watch.readers.pstext import parse_ps  # noqa: E402 - after the path is set
from dflash_watch.readers.stackparse import StackScanner, parse_dumps  # noqa: E402 - as above

DUMPS, THREADS, FRAMES = 100, 50, 25
TARGET_S, TARGET_MB = 10.0, 300.0
RECORDED = ROOT / "tests" / "watch" / "readers"


def log_line(i: int) -> str:
    """As a trainer writes them: a step, and a line that says nothing."""
    if i % 2:
        return (
            f"2026-11-29 10:{i // 60 % 60:02d}:{i % 60:02d} INFO worker {i % 8} fetched a batch\n"
        )
    return (
        f"[rank0] step {i // 2} loss {2 + i % 997 / 1000:.3f} tok/s 14,{i % 1000:03d} queue 12/20\n"
    )


def dump(k: int) -> str:
    """What py-spy prints of a process."""
    frames = "".join(f"    f{j} (train.py:{j + 1})\n" for j in range(FRAMES))
    threads = "".join(f'Thread {1000 + i} (idle): "w-{i}"\n{frames}' for i in range(THREADS))
    return f"Process {4000 + k}: python train.py\nPython v3.11.7 (python)\n\n{threads}\n"


def write_log(path: Path, size: int) -> None:
    """A log of about `size` bytes with the dumps spread over it."""
    i, written, next_dump = 0, 0, 0
    with path.open("w") as file:
        while written < size:
            if written >= next_dump * size // DUMPS and next_dump < DUMPS:
                written += file.write(dump(next_dump))
                next_dump += 1
            written += file.write("".join(log_line(i + k) for k in range(1000)))
            i += 1000


def of_diagnose(path: Path) -> tuple[float, float, float, str]:
    """Seconds, CPU seconds, peak MB, and the first line of the answer."""
    call = [sys.executable, "-m", "dflash_watch.cli", "diagnose", "--log", str(path)]
    started = time.perf_counter()
    done = subprocess.run(
        call, capture_output=True, text=True, env={"PYTHONPATH": ":".join(PACKAGES)}, check=False
    )
    seconds = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = (done.stdout or done.stderr).partition("\n")[0]
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, answer


def best_of_three(work: Callable[[], object]) -> float:
    """CPU seconds."""
    times = []
    for _ in range(3):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def scan(lines: list[str]) -> None:
    """A log looked through for dumps, line by line."""
    scanner = StackScanner()
    for line in lines:
        scanner.feed(line)
    scanner.finish()


def read(text: str) -> None:
    """A log read for all it says."""
    reader = LogReader()
    for at in range(0, len(text), 65536):
        reader.feed(LogSample(path="a.log", via="fd 1", text=text[at : at + 65536]), 0.0)


def main() -> int:
    """Print the figures; 1 when a target is missed."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        write_log(path, size * 1_000_000)
        seconds, cpu_s, peak, answer = of_diagnose(path)
    print(f"diagnose of {size} MB with {DUMPS} dumps: {answer}")
    print(f"    {seconds:.1f} s, {cpu_s:.1f} s of CPU, {peak:.0f} MB")
    lines = [log_line(i) for i in range(20_000)]
    text = "".join(lines)
    many = "".join(dump(k) for k in range(DUMPS))
    table = (RECORDED / "gpus" / "faults.txt").read_text() * 200
    processes = (RECORDED / "ps" / "eLf.txt").read_text() * 500
    for name, work, amount in (
        ("log read for all it says", lambda: read(text), len(text)),
        ("log looked through for dumps", lambda: scan(lines), len(text)),
        (f"{DUMPS} dumps of {THREADS} threads", lambda: parse_dumps(many), len(many)),
        ("tables of nvidia-smi", lambda: parse_gpus(table), len(table)),
        ("tables of ps", lambda: parse_ps(processes), len(processes)),
    ):
        cost = best_of_three(work)
        print(f"{name:32} {amount / cost / 1e6:6.1f} MB/s")
    return int(cpu_s > TARGET_S or peak > TARGET_MB)


if __name__ == "__main__":
    sys.exit(main())
