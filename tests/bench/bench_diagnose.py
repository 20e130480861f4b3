"""`dflash-watch diagnose` on a 200 MB log with 100 stack dumps in it: at most 10 s and 300 MB.

Run: python tests/bench/bench_diagnose.py [MB]. The log is made first, in a temporary folder; its
last lines hold the cause. CPU time is what counts on a shared machine, wall time is told beside.
Prints a table and one JSON line.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DUMPS, THREADS, FRAMES = 100, 100, 20
TARGET_S, TARGET_MB = 10.0, 300.0
STEP = "2026-11-29 14:{:02d}:{:02d} INFO step {}/500000 loss 2.{:04d} tok/s 14200 mem 53 GB\n"
CAUSE = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total "
    "capacity of 79.15 GiB of which 1.10 GiB is free.\n"
)


def dump(number: int) -> str:
    """One dump in faulthandler's form."""
    threads = []
    for i in range(THREADS):
        head = f"Thread 0x00007f{i:010x} (most recent call first):\n"
        frames = [
            f'  File "/venv/lib/site-packages/pkg/mod{j}.py", line {number + j} in f_{j}\n'
            for j in range(FRAMES)
        ]
        threads.append(head + "".join(frames))
    return "Timeout (0:05:00)!\n" + "\n".join(threads) + "\n"


def write_log(path: Path, megabytes: int) -> None:
    """Step lines, a warning now and then, dumps spread over all of it, the cause at its end."""
    size, written, step, dumps = megabytes << 20, 0, 0, 0
    with path.open("w") as file:
        while written < size:
            step += 1
            line = STEP.format(step // 60 % 60, step % 60, step, step % 10_000)
            if step % 97 == 0:
                line += f"W1129 UserWarning: something is deprecated, step {step}\n"
            if written > (dumps + 0.5) * size / DUMPS:
                dumps += 1
                line += dump(dumps)
            written += file.write(line)
        file.write(CAUSE)


def main() -> int:
    """Measure; 0 when the target is met."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    paths = os.pathsep.join(str(ROOT / name) for name in ("dflash", "watchdog", "tui"))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        write_log(log, megabytes)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        shown = subprocess.run(
            [sys.executable, "-m", "dflash_watch.cli", "diagnose", folder, "--json"],
            env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        wall_s = time.perf_counter() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    peak_mb = used.ru_maxrss / 1024
    told = json.loads(shown.stdout)
    right = (told["verdict"], told["failure"]) == ("crashed", "cuda-oom")
    print(f"{megabytes} MB, {DUMPS} dumps: {cpu_s:.1f} s of CPU, {wall_s:.1f} s, {peak_mb:.0f} MB")
    print(f"said {told['verdict']}, {told['failure']}")
    figure = {"figure": "diagnose", "cpu_s": round(cpu_s, 2), "peak_mb": round(peak_mb)}
    print(json.dumps({**figure, "right": right, "target_s": TARGET_S, "target_mb": TARGET_MB}))
    return 0 if right and cpu_s <= TARGET_S and peak_mb <= TARGET_MB else 1


if __name__ == "__main__":
    sys.exit(main())
