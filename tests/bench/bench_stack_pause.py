"""How long a stack sample holds a process of 1,000 threads still; py-spy's own default beside it.

    python tests/bench/bench_stack_pause.py [--rounds 20] [--threads 1000] [--json FILE]

A thread of the target spins in C and notes each gap in its own time. It never sleeps, so the
kernel counts a voluntary switch only where somebody stopped it; such a gap, less the time it waited
for a core (`run_delay`), is how long it was held. A busy machine is not taken for a pause that way.
Windows of the same length without any sample are the control; attaches are counted by strace.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), *(str(ROOT / name) for name in ("watchdog", "dflash", "tui"))]

from watch.agent.driving import AgentProcess  # noqa: E402 - runs without an install

TARGET_MS = 1.0
SPIN = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
static int64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static int64_t delay(int file) {  /* waited for a core since it began, ns */
    char text[128];
    ssize_t size = pread(file, text, sizeof text - 1, 0);
    if (size <= 0) return 0;
    text[size] = 0;
    char *end;
    strtoll(text, &end, 10);
    return strtoll(end, 0, 10);
}
static int64_t slept(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}
/* page: 0 window asked for, 1 window it is in, 2 longest held, 3 times held, 4 longest gap */
void spin(volatile int64_t *page) {
    int file = open("/proc/thread-self/schedstat", O_RDONLY);
    int64_t wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID), waited = delay(file);
    int64_t sleeps = slept(), read_at = wall;
    for (;;) {
        int64_t w = now(CLOCK_MONOTONIC), c = now(CLOCK_THREAD_CPUTIME_ID);
        int64_t gap = (w - wall) - (c - cpu);
        if (gap > 20000 || w - read_at > 1000000) {
            int64_t d = delay(file), s = slept(), held = gap - (d - waited);
            if (gap > page[4]) page[4] = gap;
            if (s > sleeps) { page[3] += s - sleeps; if (held > page[2]) page[2] = held; }
            waited = d; sleeps = s; read_at = now(CLOCK_MONOTONIC);
            w = read_at; c = now(CLOCK_THREAD_CPUTIME_ID);
        }
        wall = w; cpu = c;
        if (page[1] != page[0]) { page[2] = page[3] = page[4] = 0; page[1] = page[0]; }
    }
}
"""
TARGET = """
import ctypes, mmap, sys, threading, time
threading.stack_size(256 * 1024)
file = open(sys.argv[2], "r+b")
page = mmap.mmap(file.fileno(), 4096)
library = ctypes.CDLL(sys.argv[1])
place = ctypes.addressof(ctypes.c_char.from_buffer(page))
library.spin.argtypes = [ctypes.c_void_p]
def deeper(n):
    deeper(n - 1) if n else time.sleep(10000)
for _ in range(int(sys.argv[3]) - 2):
    threading.Thread(target=deeper, args=(10,), daemon=True).start()
threading.Thread(target=library.spin, args=(place,), daemon=True).start()
print("up", flush=True)
time.sleep(10000)
"""


class Target:
    """The process of many threads, and what its spinning thread notes."""

    def __init__(self, folder: Path, threads: int) -> None:
        source, library, page = folder / "spin.c", folder / "spin.so", folder / "page"
        source.write_text(SPIN)
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        page.write_bytes(bytes(4096))
        command = [sys.executable, "-c", TARGET, str(library), str(page), str(threads)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        with page.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 4096)
        self._window = 0

    def window(self, during: Callable[[], None]) -> dict[str, float]:
        """What was noted while `during` ran, milliseconds."""
        self._window += 1
        self._page[:8] = struct.pack("<q", self._window)
        while self._read()[1] != self._window:
            time.sleep(0.001)
        begun_s = time.monotonic()
        during()
        took_s = time.monotonic() - begun_s
        _, _, held, times, gap = self._read()
        return {"took": took_s * 1e3, "held": held / 1e6, "times": times, "gap": gap / 1e6}

    def _read(self) -> tuple[int, ...]:
        return struct.unpack("<5q", self._page[:40])


def count_attaches(command: list[str]) -> int | None:
    """ptrace calls of a sampler that would stop a thread; None without strace."""
    if shutil.which("strace") is None:
        return None
    with tempfile.NamedTemporaryFile("r") as log:
        traced = ["strace", "-f", "-qq", "-e", "trace=ptrace", "-o", log.name, *command]
        subprocess.run(traced, check=False, capture_output=True)
        return log.read().count("ptrace(PTRACE_")


def measure(rounds: int, threads: int) -> dict[str, object]:
    """Windows of each kind in turn, and attaches of each."""
    py_spy = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert py_spy is not None, "py-spy is not installed"
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder), threads)
        pid = str(target.process.pid)
        agent = AgentProcess({"pid": target.process.pid}, every_s=60, max_life_s=3600)
        plain = [py_spy, "dump", "--json", "--pid", pid]
        tools: list[str] = []

        def sample() -> None:
            agent.ask("stacks", pid=target.process.pid, label="bench")
            record = agent.until(lambda one: one["type"] == "stacks")
            tools.append(record["tool"] + " " + record["mode"])
            agent.until(lambda one: one["type"] == "reply")

        def peer() -> None:
            subprocess.run(plain, check=False, capture_output=True)

        try:
            agent.frame()
            sample()
            seen: dict[str, list[dict[str, float]]] = {"sample": [], "nothing": [], "peer": []}
            for _ in range(rounds):
                one = target.window(sample)
                seen["sample"].append(one)
                seen["nothing"].append(target.window(lambda s=one["took"]: time.sleep(s / 1e3)))
                seen["peer"].append(target.window(peer))
            attaches = {
                "sample": count_attaches([*plain, "--nonblocking"]),
                "peer": count_attaches(plain),
            }
        finally:
            agent.kill()
            target.process.kill()
            target.process.wait()
    return {"windows": seen, "attaches": attaches, "tools": sorted(set(tools))}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = measure(given.rounds, given.threads)
    names = {
        "sample": f"sample by the agent ({', '.join(found['tools'])})",
        "nothing": "nothing, the same time",
        "peer": "py-spy dump, its default",
    }
    print(f"{given.threads} threads, {given.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for kind, name in names.items():
        rows = found["windows"][kind]
        held = [row["held"] for row in rows]
        print(
            f"{name:45} held: median {statistics.median(held):7.3f} ms, worst {max(held):7.3f} ms,"
            f" {sum(row['times'] for row in rows):.0f} stops;"
            f" longest gap {max(row['gap'] for row in rows):6.1f} ms;"
            f" takes {statistics.median(row['took'] for row in rows):5.0f} ms;"
            f" attaches {found['attaches'].get(kind, '-')}"
        )
    worst = max(row["held"] for row in found["windows"]["sample"])
    print(f"target: held at most {TARGET_MS} ms: {'met' if worst <= TARGET_MS else 'missed'}")
    if given.json:
        given.json.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
