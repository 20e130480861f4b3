"""The agent inside a real LXC container whose `ps` lies."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dflash_watch.agent import proc
from e2e.places.container import Container, Spawned
from fake_nvml import FakeNvml
from watch.agent.driving import AgentProcess, typed

pytestmark = pytest.mark.lxc
Start = Callable[..., AgentProcess]
SCRIPT = """
import sys, time
log = open(sys.argv[1], "w", buffering=1)
begun = time.process_time()
step = 0
while True:
    step += 1
    end = time.monotonic() + 0.05
    while time.monotonic() < end: pass
    print(f"step={step}", file=log)
    time.sleep(0.05)
"""


@pytest.fixture
def inside(container: Container, tmp_path: Path) -> Iterator[Spawned]:
    """A half-busy script in the container that writes a log there."""
    (container.share / "busy.py").write_text(SCRIPT)
    log = str(container.share / "busy.log")
    spawned = container.spawn(
        ["/usr/bin/python3", str(container.share / "busy.py"), log], output=tmp_path / "out"
    )
    yield spawned
    spawned.signal(9)
    spawned.wait(60)


def prefix(container: Container) -> tuple[str, ...]:
    attach = ("lxc-attach", "-P", str(container.lxcpath), "-n", container.id)
    return (*attach, "--clear-env", "--")


def host_ticks(pid: int) -> int:
    stat = proc.read_stat("/proc", pid)
    assert stat
    return stat.cpu_ticks


def test_age_and_cpu_are_right_where_ps_is_absurd(agent: Start, container, inside):
    """Finding 3: lxcfs and procps make an age of a million years, and no CPU time."""
    ps = container.run(["ps", "-p", str(inside.pid), "-o", "etime=,pcpu="]).stdout.split()
    assert re.fullmatch(r"4410772\d\d-\d\d:\d\d:\d\d", ps[0])
    assert ps[1] == "0.0"
    begun = time.monotonic()
    run = agent({"pid": inside.pid}, prefix=prefix(container))
    first = run.frame()
    last = run.frame(lambda frame: frame["boot_s"] - first["boot_s"] > 2)
    one, two = first["processes"][0], last["processes"][0]
    wall = last["boot_s"] - first["boot_s"]
    assert 0 < one["age_s"] < 60 + time.monotonic() - begun
    assert two["age_s"] - one["age_s"] == pytest.approx(wall, abs=0.1)
    assert 0 < one["cpu_ticks"] < two["cpu_ticks"] <= host_ticks(inside.host_pid)


def test_the_numbers_are_those_of_the_container(agent: Start, container, inside):
    run = agent({"pid": inside.pid}, prefix=prefix(container))
    hello = typed(run.until(lambda record: record["type"] == "hello"))
    frame = run.frame()
    assert hello.tools == {"py-spy": None}
    assert hello.pid_namespace == int(
        re.sub(r"\D", "", str(Path(f"/proc/{inside.host_pid}/ns/pid").readlink()))
    )
    assert [each["pid"] for each in frame["processes"]] == [inside.pid]
    assert inside.pid != inside.host_pid


def test_a_log_is_found_and_read_inside(agent: Start, container, inside):
    log = str(container.share / "busy.log")
    run = agent({"log": log}, prefix=prefix(container))
    frame = run.frame(lambda frame: frame["run"]["state"] == "found" and frame.get("logs"))
    assert frame["run"]["root_pid"] == inside.pid
    found = next(each for each in frame["logs"] if each["path"] == log)
    assert found["text"].startswith("step=1\n")
    assert found["path_state"] == "same"


def test_output_to_a_file_of_the_host_is_read_and_not_called_moved(
    agent: Start, container, inside, tmp_path
):
    (tmp_path / "out").write_text("step 1\n")  # opened by who entered the container
    assert container.run(["test", "-e", str(tmp_path / "out")]).returncode == 1
    run = agent({"pid": inside.pid}, prefix=prefix(container))
    found = next(each for each in run.frame()["logs"] if each["via"] == "fd 1")
    assert found["text"] == "step 1\n"
    assert found.get("path_state", "same") == "same"
    assert "watched_path" not in found


def test_a_driver_inside_gives_process_numbers_of_the_container(
    agent: Start, container, inside, fake_nvml_build
):
    folder = container.share / "nvml"
    nvml = FakeNvml.build(folder)
    nvml.gpu(0, util=99)
    nvml.process(0, inside.pid, 9 << 30)
    run = agent({"pid": inside.pid}, prefix=prefix(container), gpu_library=str(nvml.library))
    frame = run.frame(lambda frame: frame.get("gpus"))
    assert frame["gpus"][0]["processes"] == [
        {"pid": inside.pid, "pid_space": "container", "memory_bytes": 9 << 30}
    ]


def test_the_agent_inside_ends_with_its_input_and_leaves_nothing(agent: Start, container, inside):
    run = agent({"pid": inside.pid}, prefix=prefix(container))
    run.frame(lambda frame: frame["seq"] >= 1)
    before = {each.pid for each in container.processes()}
    assert run.end() == 0
    after = {each.pid for each in container.processes()}
    assert after < before
    assert inside.pid in after
    assert not any("dflash" in word for each in container.processes() for word in each.cmdline)
