"""Whom a line of the host's kernel log is about; texts as the kernel prints them."""

from __future__ import annotations

from dflash_watch.agent.kernelwho import KernelWho
from hypothesis import given
from hypothesis import strategies as st

MEMCG = (
    "[100.000001] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=ns,mems_allowed=0,"
    "oom_memcg=/lxc/{ct},task_memcg=/lxc/{ct}/ns/user.slice,task=python,pid={pid},uid=100000"
)
KILLED = (
    "[100.000002] Memory cgroup out of memory: Killed process {pid} (python)"
    " total-vm:9000kB, anon-rss:8000kB, file-rss:0kB, shmem-rss:0kB, UID:100000 oom_score_adj:0"
)


class Groups:
    def holds(self, path: str) -> bool:
        return path == "/lxc/200" or path.startswith("/lxc/200/")


class Container:
    """Process 4711 of the host is 17 inside."""

    groups = Groups()

    def inner(self, pid: int) -> int | None:
        return {4711: 17}.get(pid)


def marked(*lines: str) -> list[tuple[str, int | None]]:
    who = KernelWho("/nowhere", Container())  # type: ignore[arg-type]  # all that is asked of one
    return [(one["about"], one.get("pid")) for one in who.mark(list(lines))]


def test_a_kill_in_the_container_has_the_number_that_its_victim_had_inside():
    lines = (MEMCG.format(ct=200, pid=4711), KILLED.format(pid=4711))
    assert marked(*lines) == [("container", 17), ("container", 17)]


def test_a_kill_in_another_container_is_about_another_though_the_number_is_not_known():
    lines = (MEMCG.format(ct=2001, pid=99), KILLED.format(pid=99))
    assert marked(*lines) == [("other", None), ("other", None)]


def test_a_victim_that_came_and_went_between_two_looks_is_known_by_its_group():
    assert marked(MEMCG.format(ct=200, pid=5000), KILLED.format(pid=5000)) == [
        ("container", None), ("container", None),
    ]  # fmt: skip


def test_a_number_that_nobody_has_any_more_is_unknown():
    assert marked(KILLED.format(pid=5001)) == [("unknown", None)]


def test_xid_lines_name_a_process_or_none():
    assert marked(
        "[7.1] NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name=python, Ch 00000008",
        "[7.2] NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off",
        "[7.3] INFO: task python:4711 blocked for more than 120 seconds.",
        "[7.4] python[4711]: segfault at 0 ip 00007f sp 00007f error 4",
        "[7.5] nfs: server filer not responding, still trying",
    ) == [
        ("container", 17), ("machine", None), ("container", 17), ("container", 17),
        ("machine", None),
    ]  # fmt: skip


@given(st.text())
def test_no_line_breaks_it(text: str):
    assert marked(text)[0][0] in {"container", "other", "machine", "unknown"}
