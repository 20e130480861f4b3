"""Host, cgroup and kernel lines: parsers on text, and this machine's own files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dflash_watch.agent.probes.host import (
    HostReader,
    parse_cgroup,
    parse_cpu,
    parse_meminfo,
    parse_vmstat_oom,
    read_cgroup,
    read_disks,
)
from dflash_watch.agent.probes.kernel import MATTERS, KernelReader, parse


def test_this_machine_has_memory_processors_and_a_name():
    host = HostReader("/proc").read(os.getpid())
    assert host["memory_total_bytes"] > host["memory_available_bytes"] > 0
    assert host["cpus"] == os.cpu_count()
    assert host["hostname"]


def test_the_busy_share_is_a_difference_of_two_looks(tmp_path):
    reader = HostReader(str(tmp_path), str(tmp_path))
    (tmp_path / "stat").write_text("cpu  100 0 100 800 0 0 0 0 0 0\n")
    assert "cpu_busy_ratio" not in reader.read(1)
    (tmp_path / "stat").write_text("cpu  150 0 100 850 0 0 0 0 0 0\n")
    assert reader.read(1)["cpu_busy_ratio"] == 0.5


@pytest.mark.parametrize("text", ["", "cpu", "cpu a b c d e f", "intr 1 2 3"])
def test_cpu_counters_that_are_none_are_unknown(text):
    assert parse_cpu(text) is None


def test_meminfo_is_in_bytes_and_strange_lines_are_left_out():
    assert parse_meminfo("MemTotal:  2 kB\nHugePages_Total:   3\nOdd: x\n") == {
        "MemTotal": 2048,
        "HugePages_Total": 3,
    }


def test_kills_of_the_whole_machine():
    assert parse_vmstat_oom("nr_free 1\noom_kill 7\n") == 7
    assert parse_vmstat_oom("nr_free 1\n") is None


def groups(tmp_path, pid):
    return parse_cgroup((tmp_path / "proc" / str(pid) / "cgroup").read_text())


def test_the_counters_of_a_process_that_is_gone_are_those_of_its_own_cgroup(tmp_path):
    job, root = tmp_path / "cgroup" / "job", tmp_path / "cgroup"
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text("0::/job\n")
    (tmp_path / "proc" / "vmstat").write_text("oom_kill 40\n")
    job.mkdir(parents=True)
    for group, kills in ((job, 0), (root, 30)):
        (group / "memory.current").write_text("1000\n")
        (group / "memory.events").write_text(f"oom_kill {kills}\n")
    reader = HostReader(str(tmp_path / "proc"), str(root))
    assert reader.read(7)["oom_kills"] == 0
    (job / "memory.events").write_text("oom_kill 1\n")
    (tmp_path / "proc" / "7" / "cgroup").unlink()
    gone = reader.read(7)
    assert (gone["oom_kills"], gone["machine_oom_kills"]) == (1, 40)


def test_a_version_2_cgroup_tells_use_limit_kills_and_throttling(tmp_path):
    group = tmp_path / "cgroup" / "job"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("1000\n")
    (group / "memory.max").write_text("max\n")
    (group / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    (group / "cpu.stat").write_text("usage_usec 1\nthrottled_usec 2500000\n")
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text("0::/job\n")
    assert read_cgroup(str(tmp_path / "cgroup"), groups(tmp_path, 7)) == {
        "cgroup_memory_bytes": 1000,
        "cgroup_memory_limit_bytes": None,
        "oom_kills": 1,
        "throttled_s": 2.5,
    }


def test_a_version_1_cgroup_without_a_limit_has_none(tmp_path):
    group = tmp_path / "cgroup" / "memory"
    group.mkdir(parents=True)
    (group / "memory.usage_in_bytes").write_text("1000\n")
    (group / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (group / "memory.oom_control").write_text("oom_kill_disable 0\noom_kill 3\n")
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text("4:memory:/hidden/by/the/namespace\n0::/\n")
    found = read_cgroup(str(tmp_path / "cgroup"), groups(tmp_path, 7))
    assert found["cgroup_memory_bytes"] == 1000
    assert found["cgroup_memory_limit_bytes"] is None
    assert found["oom_kills"] == 3


def test_cgroup_lines_of_both_versions():
    assert parse_cgroup("4:cpu,cpuacct:/a\n0::/b\nnonsense\n") == {
        "cpu": "/a",
        "cpuacct": "/a",
        "": "/b",
    }


def test_disks_that_are_not_there_are_left_out(tmp_path):
    disks = read_disks([(str(tmp_path), "run-dir"), (str(tmp_path / "gone"), "log")])
    assert [disk["what"] for disk in disks] == ["run-dir"]
    assert disks[0]["total_bytes"] >= disks[0]["free_bytes"] > 0


def test_a_kernel_record_has_a_moment_and_a_text():
    assert parse("6,1234,5000000,-;NVRM: Xid (PCI:0000:3b:00): 79\n SUBSYSTEM=pci\n") == (
        5.0,
        "NVRM: Xid (PCI:0000:3b:00): 79",
    )
    assert parse("nonsense") is None


@pytest.mark.parametrize(
    ("line", "matters"),
    [
        ("Out of memory: Killed process 123 (python)", True),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)", True),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", True),
        ("INFO: task python:123 blocked for more than 120 seconds.", True),
        ("nfs: server store not responding, still trying", True),
        ("usb 1-1: new high-speed USB device", False),
        ("eth0: link up", False),
    ],
)
def test_only_lines_that_matter_to_a_run_are_kept(line, matters):
    assert bool(MATTERS.search(line)) is matters


def test_a_kernel_log_that_is_refused_says_so(tmp_path):
    lines, problem = KernelReader(str(tmp_path / "kmsg")).read(100.0)
    assert lines is None
    assert "not readable in this container" in problem


@pytest.mark.skipif(not os.access("/dev/kmsg", os.W_OK), reason="kernel log not writable here")
def test_a_new_kernel_line_comes_once():
    reader = KernelReader()
    try:
        reader.read(1e12)
        Path("/dev/kmsg").write_text("<6>dflash test: Out of memory: Killed process 1 (nobody)\n")
        lines, problem = reader.read(1e12)
        assert problem is None
        assert len([line for line in lines if "dflash test" in line]) == 1
        assert reader.read(1e12)[0] == []
    finally:
        reader.close()
