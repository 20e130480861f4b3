"""A session over every kind of way: comes up, answers, ends, and leaves nothing behind."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from dflash_watch.frame import Hello, StackSample
from dflash_watch.offer import SENDS
from dflash_watch.place import Place
from e2e.places.container import Container
from e2e.places.fixtures import Proxmox
from e2e.places.sshd import Sshd
from watch.transport.stand_in import MARK, Watcher, is_frame, is_link, stand_in, watching


def _agents() -> list[int]:
    """Every stand-in on this machine, inside containers or not."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if words and words[-1] == MARK and "python" in words[0]:
            found.append(process.pid)
    return found


def _wait_until_gone(before: list[int]) -> list[int]:
    """Agents that are there beyond `before`, after ten seconds at most."""
    end_s = time.monotonic() + 90
    while (left := sorted(set(_agents()) - set(before))) and time.monotonic() < end_s:
        time.sleep(0.05)
    return left


def _hello(watcher: Watcher) -> Hello:
    record = watcher.wait(lambda r: isinstance(r, Hello))
    assert isinstance(record, Hello)
    return record


def test_a_local_session_says_how_it_gets_there_and_then_hands_out_each_frame_once() -> None:
    before = _agents()
    with watching(Place()) as watcher:
        frames = watcher.frames(4)
        links = [r.state for r in watcher.seen if not is_frame(r) and hasattr(r, "state")]
        assert links == ["connecting", "up"]
        assert [frame.seq for frame in frames] == [0, 1, 2, 3]
    assert _wait_until_gone(before) == []


def test_a_frame_that_is_sent_twice_is_handed_out_once() -> None:
    """Whatever way sends it again: its number says that it is the same one."""
    usual = stand_in()
    doubled = usual.code.replace(
        b"seq, due = seq + 1,",
        b"conf['again'] = again = 1 - conf.get('again', 1); seq, due = seq + again,",
    )
    assert doubled != usual.code
    with watching(Place(), lambda: msgspec.structs.replace(usual, code=doubled)) as watcher:
        assert [frame.seq for frame in watcher.frames(4)] == [0, 1, 2, 3]


def test_after_close_there_is_nothing_more_to_get() -> None:
    with watching(Place()) as watcher:
        watcher.frames(1)
        watcher.session.close()
        while not watcher.session.is_over:
            watcher.session.get(0.1)
        with pytest.raises(EOFError):
            watcher.session.get(0.1)


@pytest.mark.ssh
@pytest.mark.parametrize("host", ["box", "far", "piped"])
def test_a_session_over_ssh_goes_directly_through_jumps_and_through_a_proxy_command(
    sshd: Sshd, host: str
) -> None:
    before = _agents()
    with watching(Place(host=host, ssh_config=sshd.ssh_config)) as watcher:
        assert [frame.seq for frame in watcher.frames(2)] == [0, 1]
    assert _wait_until_gone(before) == []


@pytest.mark.lxc
@pytest.mark.ssh
def test_a_session_through_pct_over_ssh_runs_inside_the_container(proxmox: Proxmox) -> None:
    with watching(proxmox.place()) as watcher:
        assert _hello(watcher).hostname == f"ct{proxmox.container.id}"
        watcher.frames(2)
        steps = [getattr(r, "step", None) for r in watcher.seen if is_link(r, "connecting")]
        assert steps == ["resolve", "ssh", "container"]
        assert any(MARK in process.cmdline for process in proxmox.container.processes())
    assert _wait_until_gone([]) == []


@pytest.mark.lxc
def test_a_session_through_pct_on_the_host_itself(
    pct: Path, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{pct.parent}{os.pathsep}{os.environ['PATH']}")
    with watching(Place(entry="pct", entry_arg=container.id)) as watcher:
        assert _hello(watcher).hostname == f"ct{container.id}"


@pytest.mark.lxc
def test_without_pct_the_container_is_entered_by_lxc_attach(container: Container) -> None:
    with watching(Place(entry="pct", entry_arg=container.id)) as watcher:
        assert _hello(watcher).hostname == f"ct{container.id}"


@pytest.mark.lxc
@pytest.mark.ssh
def test_any_prefix_is_a_way_in_here_and_on_the_host(proxmox: Proxmox) -> None:
    number, config = proxmox.container.id, proxmox.sshd.ssh_config
    ssh = ("ssh", "-F", config, "box", "pct", "exec", number, "--")
    for place in (
        Place(exec_prefix=("env", "LC_ALL=C")),
        Place(exec_prefix=ssh),
        Place(host="box", ssh_config=config, exec_prefix=("lxc-attach", "-n", number, "--")),
    ):
        with watching(place) as watcher:
            assert (_hello(watcher).hostname == f"ct{number}") == (number in place.exec_prefix)


@pytest.mark.lxc
def test_the_init_process_of_a_container_is_a_way_in_by_nsenter(container: Container) -> None:
    init = next(process.host_pid for process in container.processes() if process.pid == 1)
    with watching(Place(entry="nsenter", entry_arg=str(init))) as watcher:
        assert _hello(watcher).hostname == f"ct{container.id}"


@pytest.mark.ssh
def test_start_up_files_that_talk_do_not_lie_their_way_into_the_stream(sshd: Sshd) -> None:
    noise = "echo Welcome; printf 'DFLASH 00 1 5\\n'; head -c 100000 /dev/zero; echo last >&2\n"
    sshd.noisy(noise)
    with watching(Place(host="box", ssh_config=sshd.ssh_config)) as watcher:
        assert [frame.seq for frame in watcher.frames(2)] == [0, 1]


def test_a_stack_request_brings_our_own_py_spy_along_and_is_answered_once() -> None:
    with watching(Place()) as watcher:
        watcher.session.request_stacks(41, "A")
        watcher.session.request_stacks(42, "B")
        samples = [watcher.wait(lambda r: isinstance(r, StackSample)) for _ in range(2)]
        assert [sample.label for sample in samples if isinstance(sample, StackSample)] == ["A", "B"]
        size = (Path(sys.executable).parent / "py-spy").stat().st_size
        assert all(f"'py-spy': {size}" in getattr(sample, "raw", "") for sample in samples)


def test_a_way_that_breaks_again_and_again_is_not_made_to_carry_the_tool_each_time() -> None:
    with watching(Place()) as watcher:
        for number in range(SENDS + 1):
            hello = watcher.wait(lambda r: isinstance(r, Hello))
            watcher.session.request_stacks(42, f"A{number}")
            sample = watcher.wait(lambda r: isinstance(r, StackSample))
            assert ("'py-spy'" in getattr(sample, "raw", "")) == (number < SENDS)
            os.kill(hello.agent_pid, signal.SIGKILL)
            watcher.lost()
            watcher.session.retry_now()
        told = [outcome for action, outcome in watcher.noted if action == "tool"]
        assert told == ["sent"] * SENDS + ["not sent: after 4 times one in 15 minutes"]


def test_a_stack_request_that_fails_comes_back_as_a_sample_with_its_error() -> None:
    with watching(Place()) as watcher:
        watcher.session.request_stacks(-1, "A")
        sample = watcher.wait(lambda r: isinstance(r, StackSample))
        assert (getattr(sample, "label", ""), getattr(sample, "error", "")) == (
            "A",
            "no such process",
        )


def test_the_pace_can_be_changed_while_it_runs() -> None:
    with watching(Place(), every_s=3600.0) as watcher:
        watcher.frames(1)
        watcher.session.set_pace(0.1)
        assert len(watcher.frames(2)) == 2


def test_a_reader_that_sleeps_loses_neither_the_link_nor_memory() -> None:
    before = _agents()
    with watching(Place(), every_s=0.005) as watcher:
        watcher.frames(1)
        time.sleep(9)  # the queue is full after two seconds; an answer is due after five
        seqs = [frame.seq for frame in watcher.frames(600)]
        assert all(later == earlier + 1 for earlier, later in itertools.pairwise(seqs))
        assert not any(is_link(record, "lost") for record in watcher.seen)
        time.sleep(3)  # closed over a full queue
    assert _wait_until_gone(before) == []


@pytest.mark.lxc
@pytest.mark.ssh
def test_a_watcher_that_is_killed_leaves_no_agent_in_the_container(proxmox: Proxmox) -> None:
    code = (
        "import sys; from watch.transport.stand_in import watching; import msgspec, time\n"
        "from dflash_watch.place import Place\n"
        "with watching(msgspec.json.decode(sys.argv[1], type=Place)) as w:\n"
        "    w.frames(1); print('up', flush=True); time.sleep(60)\n"
    )
    argv = [sys.executable, "-c", code, msgspec.json.encode(proxmox.place()).decode()]
    environment = os.environ | {
        "PYTHONPATH": proxmox.container.environment()["PYTHONPATH"],
        "DFLASH_STAND_IN": MARK,
    }
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == b"up\n"
        assert _agents() != []
        watcher.send_signal(signal.SIGKILL)
    assert _wait_until_gone([]) == []
