"""Our own agent over the real ways: what `ps` gets wrong in a container, the agent gets right."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from dflash_watch.clock import SystemClock
from dflash_watch.frame import Frame, Hello, LinkChange, Record, StackSample
from dflash_watch.place import Place, TargetChoice
from dflash_watch.session import Session
from dflash_watch.transport.ask import ask_nobody
from dflash_watch.transport.program import build_program
from e2e.places.container import Container
from e2e.places.fixtures import Proxmox
from e2e.places.needs import require_root
from watch.transport.stand_in import watching

BUSY = "import time\nprint('begun', flush=True)\nwhile True: sum(range(20000))\n"


def _until(session: Session, kind: type[Record], count: int = 1) -> list[Record]:
    """The next records of a kind."""
    found: list[Record] = []
    end_s = time.monotonic() + 90
    while len(found) < count and time.monotonic() < end_s:
        record = session.get(0.5)
        if isinstance(record, kind):
            found.append(record)
    assert len(found) == count
    return found


@pytest.mark.lxc
@pytest.mark.ssh
def test_age_and_cpu_are_right_where_ps_prints_440_million_days(
    proxmox: Proxmox, tmp_path: Path
) -> None:
    script = proxmox.container.share / "busy.py"
    script.write_text(BUSY)
    started_s = time.monotonic()
    run = proxmox.container.spawn(["python3", str(script)], output=tmp_path / "log")
    target = TargetChoice(pid=run.pid)
    session = Session(proxmox.place(), target, 1.0, SystemClock(), ask=ask_nobody)
    try:
        first, second, third = _until(session, Frame, 3)
        assert isinstance(first, Frame)
        assert isinstance(second, Frame)
        assert isinstance(third, Frame)
        age_s = time.monotonic() - started_s
        line = proxmox.container.run(["ps", "-p", str(run.pid), "-o", "etime=,pcpu="])
        elapsed, share = line.stdout.split()
        assert re.match(r"4410772\d\d-", elapsed)
        assert share == "0.0"
        assert third.processes is not None
        assert second.processes is not None
        mine = next(p for p in third.processes if p.pid == run.pid)
        before = next(p for p in second.processes if p.pid == run.pid)
        assert mine.age_s == pytest.approx(age_s, abs=3.0)
        assert mine.cpu_ticks is not None
        assert before.cpu_ticks is not None
        assert mine.cpu_ticks - before.cpu_ticks > 10
    finally:
        session.close()
        run.signal(9)
        run.wait(60)


@pytest.mark.lxc
@pytest.mark.ssh
def test_stacks_come_from_our_own_py_spy_in_a_container_that_has_none(
    proxmox: Proxmox, tmp_path: Path
) -> None:
    script = proxmox.container.share / "sleeper.py"
    script.write_text("import time\ndef wait_here():\n    time.sleep(600)\nwait_here()\n")
    run = proxmox.container.spawn(["python3", str(script)], output=tmp_path / "log")
    target = TargetChoice(pid=run.pid)
    session = Session(proxmox.place(), target, 1.0, SystemClock(), ask=ask_nobody)
    try:
        hello = _until(session, Hello)[0]
        assert isinstance(hello, Hello)
        assert hello.tools["py-spy"] is None
        session.request_stacks(run.pid, "A")
        sample = _until(session, StackSample)[0]
        assert isinstance(sample, StackSample)
        assert (sample.tool, sample.error) == ("py-spy", None)
        assert "wait_here" in [frame.name for thread in sample.threads for frame in thread.frames]
    finally:
        session.close()
        run.signal(9)
        run.wait(60)


@pytest.mark.lxc
@pytest.mark.ssh
def test_the_agent_is_gone_from_the_container_after_close_and_after_a_cut(
    proxmox: Proxmox,
) -> None:
    """Finding 9: closing a channel ends nothing over there; the end of input does."""

    def inside() -> int:
        words = [process.cmdline for process in proxmox.container.processes()]
        return sum("dflash-agent" in word for line in words for word in line)

    _settles(inside, 0)
    with watching(proxmox.place(), build_program) as watcher:
        watcher.frames(2)
        assert inside() > 0
        proxmox.sshd.down()
        watcher.lost("refuse")
        _settles(inside, 0)
        proxmox.sshd.up()
        watcher.frames(2)
    _settles(inside, 0)


def _settles(inside: object, expected: int) -> None:
    assert callable(inside)
    end_s = time.monotonic() + 90
    while inside() != expected and time.monotonic() < end_s:
        time.sleep(0.05)
    assert inside() == expected


def test_a_place_without_python_is_named(tmp_path: Path) -> None:
    require_root()
    root = tmp_path / "root"
    shell = shutil.which("dash") or "/bin/sh"
    listed = subprocess.check_output(["ldd", shell], text=True)
    for path in {"/bin/sh", *re.findall(r"/\S+", listed)}:
        copy = root / path[1:]
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    with watching(Place(exec_prefix=("chroot", str(root))), build_program) as watcher:
        closed = watcher.closed()
        assert isinstance(closed, LinkChange)
        assert "no Python 3.8 or newer there" in str(closed.reason)


@pytest.mark.lxc
@pytest.mark.ssh
@pytest.mark.parametrize(
    ("number", "words"),
    [("999999", "container 999999 does not exist"), (None, "is not running")],
)
def test_what_cannot_be_entered_ends_the_session_with_one_clear_line(
    proxmox: Proxmox, number: str | None, words: str
) -> None:
    place = Place(
        host="box",
        ssh_config=proxmox.sshd.ssh_config,
        entry="pct",
        entry_arg=number or proxmox.container.id,
    )
    if number is None:
        proxmox.container.stop()
    with watching(place, build_program) as watcher:
        closed = watcher.closed()
        assert words in str(closed.reason)
        assert watcher.session.error is not None
        assert "\n" not in str(watcher.session.error)


@pytest.mark.lxc
def test_a_frozen_container_is_waited_for_from_the_start(container: Container) -> None:
    container.freeze()
    with watching(Place(entry="pct", entry_arg=container.id), build_program) as watcher:
        watcher.lost("is frozen")
        container.thaw()
        watcher.frames(2)
