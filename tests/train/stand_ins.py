"""Stand-ins for what surrounds a worker: its slot in the run directory, and other threads."""

from __future__ import annotations

import threading
from contextlib import contextmanager


class Seen:
    """A worker's slot that remembers what it was told."""

    def __init__(self, name):
        self.name, self.waits, self.depths = name, [], []
        self.is_waiting = threading.Event()

    @contextmanager
    def waiting(self, reason, **where):
        self.waits.append((reason, where["object"], where["on"]))
        self.is_waiting.set()
        yield
        self.is_waiting.clear()

    def waits_on(self, on):
        self.waits[-1] = (*self.waits[-1][:2], on)

    def queue(self, depth, capacity):
        self.depths.append((depth, capacity))


def run_all(*bodies):
    threads = [threading.Thread(target=body) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
