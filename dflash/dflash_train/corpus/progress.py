"""How far preparing is, on standard error; loads nothing heavy."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SAY_EVERY_S = 10.0


def default_workers() -> int:
    """As many processes as this one may use cores; 8 at most."""
    return min(8, len(os.sched_getaffinity(0)))


class AnswerCount:
    """Lines in the journals of a folder; each byte is read once.

    Args:
        folder: of prepare; may not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[Path, int] = {}
        self._lines = 0

    def read(self) -> int:
        """Answers so far."""
        for file in self._folder.glob("part-*.answers.jsonl"):
            with file.open("rb") as journal:
                journal.seek(self._places.get(file, 0))
                for piece in iter(lambda: journal.read(1 << 20), b""):
                    self._lines += piece.count(b"\n")
                self._places[file] = journal.tell()
        return self._lines


class Progress:
    """A bar on a terminal, else a line now and then; on standard error."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._said = time.monotonic()
        self._first: tuple[float, int] | None = None

    def lines(self, done: int, total: int) -> None:
        """`done` of `total` lines are prepared."""
        if sys.stderr.isatty():
            self._draw(done, total)
            return
        now = time.monotonic()
        start, before = self._first = self._first or (now, done)
        if now - self._said >= SAY_EVERY_S or done == total:
            self._said = now
            rate = f", {(done - before) / (now - start):,.0f} lines/s" if now > start else ""
            sys.stderr.write(f"prepare: {done:,} of {total:,} lines{rate}\n")

    def problem(self, file: str, line: int, reason: str) -> None:
        """One line, above the bar where there is one."""
        text = f"{file} line {line}: {reason}"
        if self._bar is None:
            sys.stderr.write(f"{text}\n")
        else:
            self._bar.write(text, file=sys.stderr)

    @contextmanager
    def following(self, folder: Path, every_s: float | None = None) -> Iterator[None]:
        """Meanwhile tell how many answers the target has given, as journals in `folder` grow."""
        every_s = every_s or (1.0 if sys.stderr.isatty() else SAY_EVERY_S)
        count, ended = AnswerCount(folder), threading.Event()
        start_s, before = time.monotonic(), count.read()

        def follow() -> None:
            while not ended.wait(every_s):
                self._answers(count.read() - before, time.monotonic() - start_s)

        thread = threading.Thread(target=follow, name="answers", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _answers(self, given: int, elapsed_s: float) -> None:
        text = f"{given:,} answers, {given / elapsed_s:.1f}/s"
        if self._bar is None:
            sys.stderr.write(f"prepare: {text}\n")
        else:
            self._bar.set_postfix_str(text)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def _draw(self, done: int, total: int) -> None:
        from tqdm import tqdm  # noqa: PLC0415  (a terminal only)

        if self._bar is None:
            self._bar = tqdm(total=total, unit="line", desc="prepare", file=sys.stderr)
        self._bar.update(done - self._bar.n)
