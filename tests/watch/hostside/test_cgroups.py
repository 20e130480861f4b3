"""Cgroups of a container, version 1, 2 and both, on miniature trees; and this machine's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dflash_watch.agent.cgroups import ContainerGroups, read_mounts

V2 = "29 23 0:26 / {top} rw - cgroup2 cgroup2 rw\n"
V1 = "3{number} 23 0:3{number} / {top}/{name} rw - cgroup cgroup rw,{name}\n"


class Machine:
    """A `/proc` with one process, 7, and hierarchies below `top`."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.top = folder / "proc", folder / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "7").mkdir()
        self._mounts, self._groups = "", ""

    def unified(self, path: str, top: str = "") -> None:
        self._mounts += V2.format(top=self.top / top if top else self.top)
        self._groups += f"0::{path}\n"

    def old(self, name: str, path: str) -> None:
        number = self._groups.count("\n") + 1
        self._mounts += V1.format(number=number, top=self.top, name=name)
        self._groups += f"{number}:{name}:{path}\n"

    def write(self, path: str, **files: object) -> None:
        folder = self.top / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".", 1)).write_text(f"{text}\n")

    def groups(self) -> ContainerGroups:
        (self.proc / "self" / "mountinfo").write_text(self._mounts)
        (self.proc / "7" / "cgroup").write_text(self._groups)
        return ContainerGroups(str(self.proc), 7)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_proxmox_keeps_limits_above_the_groups_that_its_container_lives_in(machine: Machine):
    machine.unified("/lxc/200/ns/init.scope")
    machine.write("lxc/200/ns/init.scope", cgroup__procs="7", memory__current=5)
    machine.write("lxc/200/ns/system.slice", cgroup__procs="8\n9", memory__current=6)
    machine.write("lxc/200/ns", cgroup__procs="", memory__current=11, memory__max="max")
    machine.write(
        "lxc/200", cgroup__procs="", memory__current=12, memory__max=1000, memory__high="max",
        memory__events="low 0\noom 3\noom_kill 2", cpu__stat="throttled_usec 2500000",
        pids__current=3, pids__max=500, cgroup__events="populated 1\nfrozen 0",
        memory__pressure="some avg10=12.50 avg60=0 avg300=0 total=1\nfull avg10=1.00",
    )  # fmt: skip
    machine.write("lxc", memory__current=5000, memory__max="max")
    groups = machine.groups()
    assert groups.read() == {
        "cgroup": "/lxc/200/ns/init.scope", "frozen": False, "memory_bytes": 12,
        "memory_limit_bytes": 1000, "oom_kills": 2, "throttled_s": 2.5,
        "tasks": 3, "tasks_limit": 500, "memory_stall_ratio": 0.125,
    }  # fmt: skip
    assert sorted(groups.pids()) == [7, 8, 9]
    assert groups.holds("/lxc/200/ns/system.slice")
    assert not groups.holds("/lxc/2001/ns")


def test_a_freezer_above_the_group_counts(machine: Machine):
    machine.unified("/lxc/200/ns")
    machine.write("lxc/200/ns", cgroup__procs="7", cgroup__events="frozen 0")
    machine.write("lxc/200", cgroup__procs="", cgroup__events="frozen 1")
    assert machine.groups().is_frozen() is True


def test_version_1_beside_an_empty_version_2_is_read_where_the_facts_are(machine: Machine):
    machine.unified("/lxc.payload.200", "unified")
    machine.write("unified/lxc.payload.200", cgroup__procs="7", cgroup__events="frozen 0")
    for name in ("freezer", "memory", "cpu", "pids"):
        machine.old(name, "/lxc.payload.200")
        machine.write(f"{name}/lxc.payload.200", cgroup__procs="7")
    machine.write("freezer/lxc.payload.200", freezer__state="FROZEN")
    machine.write(
        "memory/lxc.payload.200", memory__usage_in_bytes=7, memory__oom_control="oom_kill 1",
        memory__limit_in_bytes=9223372036854771712,
    )  # fmt: skip
    machine.write("memory/lxc.payload.200/inner", memory__oom_control="under_oom 0\noom_kill 2")
    machine.write("cpu/lxc.payload.200", cpu__stat="throttled_time 1500000000")
    assert machine.groups().read() == {
        "cgroup": "/lxc.payload.200", "frozen": True, "memory_bytes": 7, "oom_kills": 3,
        "throttled_s": 1.5,
    }  # fmt: skip
    machine.write("freezer/lxc.payload.200", freezer__state="THAWED")
    assert machine.groups().is_frozen() is False


def test_a_process_in_the_root_group_has_no_container(machine: Machine):
    machine.unified("/")
    machine.write("", cgroup__procs="1\n7")
    groups = machine.groups()
    assert (groups.is_there, groups.pids(), groups.is_frozen()) == (False, [], None)


def test_a_path_out_of_this_namespace_is_no_path(machine: Machine):
    machine.unified("/../../lxc/200")
    assert machine.groups().is_there is False


def test_garbage_is_unknown_never_zero(machine: Machine):
    machine.unified("/docker/abc")
    machine.write(
        "docker/abc", cgroup__procs="x\n7", memory__current="many", memory__max="", cpu__stat="?",
        cgroup__events="", memory__pressure="some avg10=high", pids__max="max", pids__current="-",
    )  # fmt: skip
    assert machine.groups().read() == {"cgroup": "/docker/abc"}
    assert machine.groups().pids() == [7]


def test_this_machines_mounts_are_found():
    assert read_mounts("/proc")
    ContainerGroups("/proc", os.getpid()).read()
