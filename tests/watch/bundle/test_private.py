"""What is written is its owner's alone, whatever the umask and whatever lay there before."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dflash_watch.capture import CaptureWriter
from dflash_watch.clock import SystemClock
from dflash_watch.commands.learned import LimitsKeeper
from dflash_watch.errors import UsageError
from dflash_watch.journal import Journal, JournalFile
from dflash_watch.limits import LearnedLimits
from dflash_watch.model import RunOptions
from dflash_watch.private import make_folder, open_private

NEW = os.O_WRONLY | os.O_CREAT
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Somebody's umask: everything open, usual, everything taken."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_folders_and_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    clock = SystemClock()
    make_folder(tmp_path / "state" / "a" / "b")
    os.close(open_private(tmp_path / "state" / "file", NEW))
    journal = JournalFile(tmp_path / "kept" / "journal.jsonl")
    Journal(journal, clock, "box")("stacks", "asked")
    assert journal.close(30)
    keeper = LimitsKeeper(tmp_path / "learned" / "limits" / "x.json", clock)
    keeper.close(LearnedLimits("a run"), 30)
    CaptureWriter(tmp_path / "record.jsonl", RunOptions(), 1.0).close()
    made = list(tmp_path.rglob("*"))
    assert len(made) == 10
    wanted = {path: oct(0o700 if path.is_dir() else 0o600) for path in made}
    assert {path: oct(mode(path)) for path in made} == wanted


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch(0o666)
    path.chmod(0o666)
    os.close(open_private(path, NEW))
    assert mode(path) == 0o600


def test_no_link_is_followed_into_a_file_that_matters(tmp_path: Path) -> None:
    matters = tmp_path / "shell-profile"
    matters.write_text("mine\n")
    for name in ("journal.jsonl", "record.jsonl", "new"):
        (tmp_path / name).symlink_to(matters)
    journal = JournalFile(tmp_path / "journal.jsonl")
    Journal(journal, SystemClock(), "box")("stacks", "asked")
    assert journal.close(30)
    with pytest.raises(UsageError, match="is a symbolic link"):
        CaptureWriter(tmp_path / "record.jsonl", RunOptions(), 1.0)
    with pytest.raises(OSError, match="symbolic link"):
        open_private(tmp_path / "new", NEW | os.O_TRUNC)
    assert matters.read_text() == "mine\n"


@as_root
def test_a_file_that_belongs_to_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "record.jsonl").touch()
    os.chown(tmp_path / "record.jsonl", 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        CaptureWriter(tmp_path / "record.jsonl", RunOptions(), 1.0)
    assert (tmp_path / "record.jsonl").stat().st_size == 0


def test_a_pipe_that_nobody_reads_holds_up_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code = (
        "import os, sys; from pathlib import Path; from dflash_watch.private import open_private\n"
    )
    code += "open_private(Path(sys.argv[1]), os.O_WRONLY)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "pipe")], capture_output=True, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False,
    )  # fmt: skip
    assert b"OSError" in done.stderr
