"""Which number is which inside a container: on a miniature `/proc`, where numbers come again."""

from __future__ import annotations

from pathlib import Path

import pytest
from dflash_watch.agent.container import Container, find_init, find_inside
from dflash_watch.agent.proc import inner_numbers

STAT = "{pid} (python) S 1 1 1 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0 {ticks} 0 0" + " 0" * 28


class Host:
    """A `/proc` with one version 2 hierarchy; processes come, go and come again."""

    def __init__(self, folder: Path) -> None:
        self.root, self._group = folder / "proc", folder / "cgroup" / "lxc" / "200"
        self._group.mkdir(parents=True)
        (self.root / "self").mkdir(parents=True)
        mount = f"29 23 0:26 / {folder / 'cgroup'} rw - cgroup2 cgroup2 rw\n"
        (self.root / "self" / "mountinfo").write_text(mount)
        self.members: list[int] = []

    def process(self, pid: int, inner: int | None, ticks: int = 1, namespace: int = 1) -> None:
        """One that runs; `inner`: its number in the container, None for a stranger."""
        place = self.root / str(pid)
        (place / "ns").mkdir(parents=True, exist_ok=True)
        numbers = f"{pid}" if inner is None else f"{pid}\t{inner}"
        (place / "status").write_text(f"Name:\tpython\nNSpid:\t{numbers}\nThreads:\t1\n")
        (place / "stat").write_text(STAT.format(pid=pid, ticks=ticks))
        (place / "cgroup").write_text("0::/lxc/200\n" if inner is not None else "0::/\n")
        (place / "ns" / "pid").unlink(missing_ok=True)
        (place / "ns" / "pid").symlink_to(f"pid:[{namespace}]")
        self._member(pid, inner is not None)

    def ends(self, pid: int) -> None:
        for path in sorted((self.root / str(pid)).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        (self.root / str(pid)).rmdir()
        self._member(pid, is_inside=False)

    def _member(self, pid: int, is_inside: bool) -> None:
        self.members = [one for one in self.members if one != pid] + [pid] * is_inside
        text = "".join(f"{one}\n" for one in self.members)
        (self._group / "cgroup.procs").write_text(text)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path)
    made.process(500, 1)
    made.process(501, 17, ticks=99)
    made.process(17, None, ticks=99)
    return made


def test_a_process_inside_is_known_by_its_number_there_and_its_start(host: Host):
    root = str(host.root)
    assert inner_numbers(f"{root}/17/status") == [17]
    assert find_inside(root, 17, 99) == 501  # not the host's own 17, of the same tick
    assert find_inside(root, 17, 98) is None
    assert find_init(root, 501) == 500


def test_one_who_left_keeps_the_number_until_a_stranger_has_it(host: Host):
    container = Container(str(host.root), 501)
    container.refresh()
    assert (container.inner(501), container.inner(17)) == (17, None)
    host.ends(501)
    container.refresh()
    assert container.inner(501) == 17
    host.process(501, None)
    assert container.inner(501) is None


def test_one_who_comes_with_a_number_that_was_used_has_its_own_number_inside(host: Host):
    container = Container(str(host.root), 501)
    container.refresh()
    assert container.news() == {"500": 1, "501": 17}
    assert container.news() is None
    host.ends(501)
    container.refresh()
    assert container.news() == {"500": 1}
    host.process(501, 33, ticks=200)
    container.refresh()
    assert container.inner(501) == 33
    assert container.news() == {"500": 1, "501": 33}
