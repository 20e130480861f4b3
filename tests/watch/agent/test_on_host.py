"""The second agent on this machine, the host of a real LXC container."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pythons
from dflash_watch.agent import proc
from e2e.places.container import Container, Spawned
from fake_nvml import FakeNvml
from watch.agent.driving import AgentProcess, wait_for

pytestmark = pytest.mark.lxc
Start = Callable[..., AgentProcess]
HOG = "import time; x = bytearray(64 << 20); time.sleep(1)"


@pytest.fixture
def inside(container: Container, tmp_path: Path) -> Iterator[Spawned]:
    """A process in the container, by which it is found."""
    spawned = container.spawn(["sleep", "1000"], output=tmp_path / "out")
    yield spawned
    spawned.end()


def asked(inside: Spawned, **more: object) -> dict[str, Any]:
    """The part of the configuration that names the container."""
    stat = proc.read_stat("/proc", inside.host_pid)
    assert stat is not None
    named = {
        "agent_pid": inside.pid, "agent_start_ticks": stat.start_ticks,
        "pid_namespace": Path(f"/proc/{inside.host_pid}/ns/pid").stat().st_ino,
    }  # fmt: skip
    return {"role": "host", "container": {"name": "container 200", **named, **more}}


@pytest.fixture
def quiet_log(tmp_path: Path) -> Path:
    """A kernel log of this test alone; one line a write, as the kernel's own."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    return path


def kernel_says(agent: AgentProcess, log: Path, text: str) -> dict[str, Any]:
    """What the agent makes of a line."""
    with log.open("w") as kernel:
        kernel.write(f"3,1,{round(proc.boot_s() * 1e6)},-;{text}\n")
    record = agent.until(lambda one: one.get("kernel"))
    (line,) = record["kernel"]
    assert line["text"].endswith(text)
    return dict(line)


def container_is(agent: AgentProcess, **facts: object) -> dict[str, Any]:
    """The first look in which the container is so."""

    def holds(record: dict[str, Any]) -> bool:
        there = record.get("container") or {}
        return all(there.get(key) == value for key, value in facts.items())

    return agent.until(holds)


@pytest.mark.parametrize("version", ["3.8", None])
def test_the_container_is_found_by_a_process_inside(version, agent: Start, inside):
    python = pythons.python(version) if version else None
    run = agent({}, python=python, **asked(inside))
    record = container_is(run, name="container 200", frozen=False)
    there = record["container"]
    assert "container-host" not in [gap["source"] for gap in record["gaps"]]
    assert there["memory_bytes"] > 0
    assert there["oom_kills"] >= 0
    assert there["cgroup"]
    assert record["pids"][str(inside.host_pid)] == inside.pid
    assert 1 in record["pids"].values()
    assert run.end() == 0


def test_a_freeze_is_seen_while_it_lasts_with_the_lock_that_proxmox_notes(
    agent: Start, container, inside, tmp_path
):
    config = tmp_path / "200.conf"
    config.write_text("arch: amd64\nlock: backup\n[snap]\nlock: snapshot\n")
    run = agent({}, **asked(inside, lock_file=str(config)))
    assert "lock" not in container_is(run, frozen=False)["container"]
    container.freeze()
    container_is(run, frozen=True, lock="backup")
    container.thaw()
    assert "lock" not in container_is(run, frozen=False)["container"]


def test_a_kill_at_the_containers_limit_is_counted_and_the_kernels_line_is_the_containers(
    agent: Start, container, inside
):
    run = agent({}, **asked(inside))
    before = container_is(run, frozen=False)["container"]["oom_kills"]
    container.limit_memory(container.memory() + (8 << 20))
    container.run([container.python, "-S", "-c", HOG])
    lines: list[dict[str, Any]] = []

    def killed(record: dict[str, Any]) -> bool:
        lines.extend(line for line in record.get("kernel") or () if "illed process" in line["text"])
        return (record.get("container") or {}).get("oom_kills", before) > before

    seen = run.until(killed)["container"]
    assert seen["memory_limit_bytes"] < 1 << 40
    if not lines:
        run.until(lambda one: killed(one) and lines)
    assert "container" in {line["about"] for line in lines}


def test_whom_the_kernels_log_is_about(agent: Start, inside, quiet_log):
    run = agent({}, **asked(inside), kernel_log=str(quiet_log))
    container_is(run, frozen=False)
    killed = "Memory cgroup out of memory: Killed process {} (python) total-vm:9kB"
    mine = kernel_says(run, quiet_log, killed.format(inside.host_pid))
    assert (mine["about"], mine["pid"]) == ("container", inside.pid)
    other = kernel_says(run, quiet_log, killed.format(os.getpid()))
    assert other["about"] == "other"
    assert "pid" not in other
    xid = kernel_says(run, quiet_log, "NVRM: Xid (PCI:0000:e7:00): 79, GPU has fallen off the bus.")
    assert xid["about"] == "machine"


def test_a_process_that_has_left_still_has_its_number(agent: Start, container, inside, quiet_log):
    run = agent({}, **asked(inside), kernel_log=str(quiet_log), every_s=0.1)
    short = container.spawn(["sleep", "1000"], output=quiet_log.with_name("short"))
    wait_for(lambda: str(short.host_pid) in (run.until(lambda one: "pids" in one)["pids"]))
    short.end()
    assert not Path(f"/proc/{short.host_pid}").exists()
    text = f"INFO: task sleep:{short.host_pid} blocked for more than 120 seconds."
    line = kernel_says(run, quiet_log, text)
    assert (line["about"], line["pid"]) == ("container", short.pid)


def test_gpus_are_read_on_request_with_numbers_as_they_are_inside(
    agent: Start, inside, fake_nvml: FakeNvml
):
    fake_nvml.gpus(2)
    fake_nvml.process(0, inside.host_pid, 5 << 30)
    fake_nvml.process(1, os.getpid(), 7 << 30)
    run = agent({}, **asked(inside), gpu_library=str(fake_nvml.library))
    assert "gpus" not in container_is(run, frozen=False)
    run.ask("gpus", on=True)
    cards = run.until(lambda one: one.get("gpus") and one["gpus"][1].get("processes"))["gpus"]
    told = [[(one["pid"], one["pid_space"]) for one in card["processes"]] for card in cards]
    assert told == [[(inside.pid, "container")], [(os.getpid(), "host")]]
    run.ask("gpus", on=False)
    run.until(lambda one: one["type"] == "host-frame" and "gpus" not in one)


@pytest.mark.parametrize(
    "other", [{"agent_start_ticks": 1}, {"agent_start_ticks": None}, {"pid_namespace": 1}]
)
def test_a_container_that_is_not_here_is_said(other, agent: Start, inside):
    wanted = asked(inside)
    wanted["container"].update(other)
    record = agent({}, **wanted).until(lambda one: one["type"] == "host-frame")
    (gap,) = (gap for gap in record["gaps"] if gap["source"] == "container-host")
    assert "nothing of it runs on this machine" in gap["reason"]
    assert "container" not in record


def test_it_says_little_when_nothing_happens(agent: Start, inside, quiet_log):
    """A look every 0.1 s, a record every five: an incident's window must not fill with them."""
    run = agent({}, **asked(inside), kernel_log=str(quiet_log), every_s=0.1)
    first = container_is(run, frozen=False)
    second = run.until(lambda one: one["type"] == "host-frame")
    assert second["boot_s"] - first["boot_s"] > 2
    assert json.dumps(second).count("{") < 10


def test_without_root_group_freezer_and_numbers_are_seen_and_the_rest_is_a_gap(
    agent: Start, container, inside
):
    """As `watcher@host` sees it; the namespace of init and the kernel log are root's."""
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    run = agent({}, prefix=nobody, **asked(inside))
    record = container_is(run, frozen=False)
    assert record["pids"][str(inside.host_pid)] == inside.pid
    assert record["container"]["memory_bytes"] > 0
    (gap,) = (gap for gap in record["gaps"] if gap["source"] == "kernel")
    assert "not readable" in gap["reason"]
    container.freeze()
    container_is(run, frozen=True)
    container.thaw()
