"""Full disks behind the streams, and a machine that has no more files, threads or memory."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from dflash_watch import cli
from dflash_watch.errors import what_lacks
from dflash_watch.outlet import Outlet

ROOT = Path(__file__).resolve().parents[3]


def run(*words: str, out: str | None = None, err: str | None = None, limit: str = "") -> tuple:
    """Exit code, standard output and standard error of the command line."""
    argv = [sys.executable, "-m", "dflash_watch.cli", *words]
    if limit:
        argv = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *argv]
    folders = os.pathsep.join(str(ROOT / name) for name in ("dflash", "watchdog", "tui"))
    shell = ["sh", "-c", f'exec "$@" {f">{out}" if out else ""} {f"2>{err}" if err else ""}', "sh"]
    done = subprocess.run(
        [*shell, *argv], env={**os.environ, "PYTHONPATH": folders, "PYTHONUNBUFFERED": ""},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", ["--version", "--help", "explain", "incidents"])
def test_a_full_disk_behind_standard_output_is_one_line_and_code_3(words: str) -> None:
    code, _, said = run(words, out="/dev/full")
    assert (code, said.count("\n")) == (3, 1), said
    assert "standard output: No space left on device" in said


@pytest.mark.parametrize(("words", "code"), [("nonsense", 64), ("--version", 0), ("explain", 0)])
def test_a_full_disk_behind_standard_error_changes_no_exit_code(words: str, code: int) -> None:
    assert run(words, err="/dev/full")[0] == code


def test_a_full_disk_behind_both_is_still_code_3() -> None:
    assert run("explain", out="/dev/full", err="/dev/full")[0] == 3


@pytest.mark.parametrize("limit", ["-n 6", "-n 8", "-n 10"])
def test_few_open_files_are_at_most_cannot_tell_and_never_a_traceback(limit: str) -> None:
    code, out, said = run("check", "--pid", str(os.getpid()), limit=limit)
    assert code in {0, 3}, (out, said)
    assert "Traceback" not in out + said
    assert (out + said).count("\n") == 1, (out, said)


@pytest.mark.parametrize(
    ("error", "what"),
    [(OSError(errno.EMFILE, "full"), "open files"), (MemoryError(), "memory"),
     (BlockingIOError(errno.EAGAIN, "no fork"), "processes")],
)  # fmt: skip
def test_a_machine_that_gives_no_more_is_one_line(
    error: Exception, what: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_words: object) -> int:
        raise error

    monkeypatch.setattr(cli, "run_command", fail)
    assert cli.main(["check"]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"this machine gives no more {what}" in said


def test_what_lacks_is_found_behind_other_errors() -> None:
    shown = ValueError("closing what never began")
    shown.__context__ = RuntimeError("can't start new thread")
    assert what_lacks(shown) == "threads"
    assert what_lacks(MemoryError()) == "memory"
    assert what_lacks(ZeroDivisionError()) is None


def test_without_a_thread_items_pass_in_order_and_the_first_thread_to_be_had_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed: list[tuple[int, int]] = []
    outlet: Outlet[int] = Outlet(
        "test", lambda item: passed.append((item, threading.get_ident())), capacity=9
    )
    with monkeypatch.context() as patched:
        patched.setattr(threading, "_start_new_thread", _refuse)
        outlet.put(1)
        outlet.put(2)
    outlet.put(3)
    assert outlet.close(60)
    assert [item for item, _ in passed] == [1, 2, 3]
    assert [at == threading.get_ident() for _, at in passed] == [True, True, False]


def _refuse(*_: object, **__: object) -> int:
    raise RuntimeError("can't start new thread")
