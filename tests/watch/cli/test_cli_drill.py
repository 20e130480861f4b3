"""`dflash-watch drill` as a person runs it: real runs, really broken, really watched."""

from __future__ import annotations

import json
import signal
import tempfile
from pathlib import Path

from watch.cli.conftest import Bench, is_gone, until


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("dflash-drill-*"))


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def test_faults_of_a_foreign_run_and_of_our_trainer_are_caught_and_nothing_is_left(bench: Bench):
    bench.environment["TMPDIR"] = str(bench.folder)
    process = bench.start("drill", "--json", "vanished", "target-raises")
    out, err = process.communicate(timeout=280)
    told = [json.loads(line) for line in out.splitlines()]
    assert [(one["drill"], one["state"]) for one in told] == [
        ("target-raises", "caught"), ("vanished", "caught"),
    ], err  # fmt: skip
    assert (told[0]["subject"], told[0]["stacks"]) == ("target-1", 1)
    assert process.returncode == 0
    assert not list(bench.folder.glob("dflash-drill-*"))


def test_a_drill_that_is_interrupted_undoes_everything(bench: Bench):
    bench.environment["TMPDIR"] = str(bench.folder)
    process = bench.start("drill", "vanished")
    started = until(lambda: len(found := children(process.pid)) == 2 and found, "run and watcher")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    until(lambda: all(is_gone(pid) for pid in started), "their end")
    assert not list(bench.folder.glob("dflash-drill-*"))


def test_an_unknown_fault_is_one_line_with_the_next_step(bench: Bench):
    done = bench.watch("drill", "killd")
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == "dflash-watch: drill: unknown fault 'killd'; did you mean killed?\n"
