"""Programs that a drill starts; run as `python programs.py NAME ...`, standard library only.

pipeline MODE TRIGGER   two targets feed two drafters; breaks as MODE says once TRIGGER is there
bar TRIGGER             one progress bar, redrawn with carriage returns
buffered ARGV...        dflash-train whose log lines wait in a buffer
link CUT ARGV...        passes bytes to a program and back; refuses to start while CUT is there
"""

from __future__ import annotations

import ctypes
import logging
import os
import queue
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

STEP_S = 0.05
DEPTH = 8
FROZEN = "frozen"
PR_SET_PDEATHSIG = 1
AUTOTUNER = """
def do_bench(fn):
    raise RuntimeError("Triton Error [CUDA]: out of memory")

def _bench(fn):
    return do_bench(fn)

def run(fn):
    return _bench(fn)
"""


class Turns:
    """Delivery in order: whose batch is next."""

    def __init__(self) -> None:
        self.next = 0
        self.changed = threading.Condition()

    def put(self, number: int, into: queue.Queue[int]) -> None:
        """Wait for the turn of this batch, then give it."""
        with self.changed:
            while self.next != number:
                self.changed.wait()
        into.put(number)
        with self.changed:
            self.next += 1
            self.changed.notify_all()


def autotune() -> None:
    """Raise as a kernel's first call does on a full card, through frames of such files."""
    names: dict[str, Callable[[object], None]] = {}
    exec(compile(AUTOTUNER, "/usr/lib/python3/triton/runtime/autotuner.py", "exec"), names)  # noqa: S102 - our own text
    names["run"](None)


def target(index: int, mode: str, trigger: Path, turns: Turns, into: queue.Queue[int]) -> None:
    """Every second batch, until the fault takes it."""
    for number in range(index, 1 << 30, 2):
        time.sleep(STEP_S)
        if mode == "autotune-oom" and trigger.exists():
            autotune()
        if mode == "swallow" and index == 1 and trigger.exists():
            return  # an exception that somebody swallowed looks like this
        turns.put(number, into)


def drafter(mode: str, trigger: Path, out: queue.Queue[int]) -> None:
    """Take, work, say so."""
    while True:
        step = out.get()
        if mode == "exit-hang" and trigger.exists():
            return
        time.sleep(STEP_S)
        print(f"step={step} loss={2 + 1 / (step + 1):.4f} tok/s=80000", flush=True)


def pipeline(mode: str, trigger: Path) -> None:
    """Threads and one queue; ends only in mode `exit-hang`, and does not end then either."""
    states, turns = queue.Queue[int](DEPTH), Turns()
    for index in range(2):
        threading.Thread(
            target=target, args=(index, mode, trigger, turns, states), name=f"target-{index}",
            daemon=mode == "exit-hang",
        ).start()  # fmt: skip
    drafters = [
        threading.Thread(target=drafter, args=(mode, trigger, states), name=f"drafter-{index}")
        for index in range(2)
    ]
    if mode == "exit-hang":
        threading.Thread(target=threading.Event().wait, name="uploader").start()
    for thread in drafters:
        thread.start()
    for thread in drafters:
        thread.join()
    print("saved final checkpoint to out/final.pt", flush=True)
    print("training finished", flush=True)


def bar(trigger: Path) -> None:
    """Lines at first; from the trigger on one line that is drawn again and again."""
    began = time.monotonic()
    for step in range(1 << 30):
        time.sleep(STEP_S)
        text = f"{step}/1000000 [{time.monotonic() - began:.0f}s, {1 / STEP_S:.2f}it/s, loss=2.1]"
        is_bar = trigger.exists()
        sys.stderr.write(f"\rTraining: {text}" if is_bar else f"step {step} loss 2.1 {text}\n")
        sys.stderr.flush()


def buffered(argv: list[str]) -> None:
    """The trainer, with nothing flushed line by line, and its log the only one."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    logging.StreamHandler.flush = lambda _handler: None  # type: ignore[assignment]  # on purpose
    sys.argv[1:] = argv
    runpy.run_module("dflash_train.cli", run_name="__main__")


def tied(argv: list[str]) -> None:
    """A drill that was killed cannot clean up: what it started goes with it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.execvp(argv[0], argv)  # noqa: S606 - an argument list is the point


def link(cut: Path, argv: list[str]) -> int:
    """Both directions through this process, so that stopping it freezes the way."""
    while cut.exists() and cut.read_text() == FROZEN:
        time.sleep(STEP_S)
    if cut.exists():
        sys.stderr.write("the link is cut, on purpose\n")
        return 255
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if child.stdin is None or child.stdout is None:
        return 255
    threading.Thread(target=pump, args=(0, child.stdin.fileno()), daemon=True).start()
    pump(child.stdout.fileno(), 1)
    return child.wait()


def pump(source: int, sink: int) -> None:
    """Bytes until the end; the sink is closed then."""
    while data := os.read(source, 1 << 16):
        view = memoryview(data)
        while view:
            view = view[os.write(sink, view) :]
    os.close(sink)


def main(argv: list[str]) -> int:
    """Run one of them."""
    match argv:
        case ["pipeline", mode, trigger]:
            pipeline(mode, Path(trigger))
        case ["bar", trigger]:
            bar(Path(trigger))
        case ["buffered", *words]:
            buffered(words)
        case ["tied", *words]:
            tied(words)
        case ["link", cut, *words]:
            return link(Path(cut), words)
        case _:
            sys.stderr.write(__doc__ or "")
            return 64
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
