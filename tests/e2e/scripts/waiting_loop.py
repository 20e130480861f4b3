"""A loop that makes steps, then waits for ever for something outside of it.

--fault forked-lock  a worker process, forked while a thread holds a lock, waits for that lock
        lock-file    another process holds a lock on a file
        full-pipe    nobody reads the pipe that it prints into
        dead-worker  the worker process that answers is killed
"""

import argparse
import fcntl
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

fork = multiprocessing.get_context("fork")
cache_lock = threading.Lock()


def step(number):
    time.sleep(0.1)
    print(f"step {number} loss {1 / number:.4f}", flush=True)


def answer(requests, replies):
    """A worker: takes the lock for each item, as a cache or a logger does."""
    while True:
        item = requests.get()
        with cache_lock:
            replies.put(item)


def start_worker():
    requests, replies = fork.Queue(), fork.Queue()
    worker = fork.Process(target=answer, args=(requests, replies), daemon=True)
    worker.start()
    return worker, requests, replies


def forked_lock():
    def keep():
        with cache_lock:
            time.sleep(1)

    threading.Thread(target=keep).start()
    time.sleep(0.2)
    _worker, requests, replies = start_worker()
    requests.put(1)
    replies.get()


def dead_worker():
    worker, requests, replies = start_worker()
    requests.put(1)
    replies.get()
    os.kill(worker.pid, signal.SIGKILL)
    requests.put(2)
    replies.get()


def lock_file():
    path = Path(tempfile.mkdtemp()) / "build.lock"
    if os.fork() == 0:
        with path.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            signal.pause()
    time.sleep(0.5)
    with path.open("w") as wanted:
        fcntl.flock(wanted, fcntl.LOCK_EX)


def full_pipe():
    _reading, writing = os.pipe()  # both ends stay open, nobody reads
    os.dup2(writing, 1)
    while True:
        print("x" * 4096, flush=True)


FAULTS = {
    "forked-lock": forked_lock,
    "lock-file": lock_file,
    "full-pipe": full_pipe,
    "dead-worker": dead_worker,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fault", choices=sorted(FAULTS), required=True)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    for number in range(1, args.steps + 1):
        step(number)
    sys.stdout.flush()
    FAULTS[args.fault]()


if __name__ == "__main__":
    main()
