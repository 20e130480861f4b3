"""Container entries as data: names, looks, failures."""

from __future__ import annotations

import subprocess

import pytest
from dflash_watch.errors import UsageError
from dflash_watch.place import Place
from dflash_watch.transport import entries, way
from dflash_watch.transport.base import Reason, TransportError
from dflash_watch.transport.local import LocalHost
from e2e.places.container import Container


@pytest.mark.parametrize("entry", entries.ENTRIES.values(), ids=lambda entry: entry.name)
def test_each_look_is_a_script_that_posix_sh_accepts(entry: entries.Entry) -> None:
    done = subprocess.run(["sh", "-n", "-c", entry.look], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("name", "arg"),
    [
        ("pct", "train"),
        ("pct", "200; reboot"),
        ("pct", "--help"),
        ("docker", "-it"),
        ("docker", "a b"),
        ("kubectl", "ns/pod/c/d"),
        ("nsenter", "self"),
        ("chroot", "x"),
        ("pct", ""),
    ],
)
def test_a_name_that_cannot_be_one_is_refused_before_anything_runs(name: str, arg: str) -> None:
    with pytest.raises(UsageError):
        way.open_host(Place(entry=name, entry_arg=arg))


@pytest.mark.parametrize(
    ("name", "arg", "look", "prefix"),
    [
        ("docker", "t", entries.Look(), "docker exec -i t"),
        ("podman", "t", entries.Look(), "podman exec -i t"),
        ("incus", "t", entries.Look(), "incus exec --mode=non-interactive t --"),
        ("kubectl", "p", entries.Look(), "kubectl exec -i p --"),
        ("kubectl", "n/p", entries.Look(), "kubectl -n n exec -i p --"),
        ("kubectl", "n/p/c", entries.Look(), "kubectl -n n exec -i p -c c --"),
        ("nsenter", "7", entries.Look(), "nsenter -t 7 -m -u -i -p --"),
        ("pct", "200", entries.Look(tool="pct", uid=1000), "sudo -n pct exec 200 --"),
        ("pct", "200", entries.Look(tool="lxc-attach", uid=0), "lxc-attach -n 200 --"),
    ],
)
def test_prefixes(name: str, arg: str, look: entries.Look, prefix: str) -> None:
    assert " ".join(entries.entry_of(name, arg).enter(arg, look)) == prefix


def test_a_look_is_found_among_what_a_login_shell_says() -> None:
    text = "Welcome\nDFLASH-LOOK uid 0\nDFLASH-LOOK state Paused\nDFLASH-LOOK lock \nlast login\n"
    assert entries.parse_look(text) == entries.Look(uid=0, state="frozen")


@pytest.mark.parametrize(
    ("look", "reason", "message"),
    [
        (
            entries.Look(state="frozen", host="pve", tool="pct", uid=0),
            Reason.CONTAINER_FROZEN,
            "container 200 is frozen (backup or snapshot?)",
        ),
        (
            entries.Look(state="frozen", lock="backup", tool="pct", uid=0),
            Reason.CONTAINER_FROZEN,
            "container 200 is frozen (locked: backup)",
        ),
        (
            entries.Look(state="missing", host="pve", node="pve2", tool="pct", uid=0),
            Reason.CONTAINER_MISSING,
            "container 200 does not exist on pve; it is on pve2",
        ),
        (
            entries.Look(state="stopped", host="pve", tool="pct", uid=0),
            Reason.CONTAINER_STOPPED,
            "container 200 is not running on pve",
        ),
        (entries.Look(host="pve", uid=0), Reason.ENTRY_FAILED, "pct: not found on pve"),
    ],
)
def test_why_a_container_cannot_be_entered(
    look: entries.Look, reason: Reason, message: str
) -> None:
    problem = entries.assess_look(entries.ENTRIES["pct"], "200", look)
    assert problem is not None
    assert (problem.reason, problem.message) == (reason, message)


def test_a_look_that_knows_nothing_forbids_nothing() -> None:
    assert entries.assess_look(entries.ENTRIES["pct"], "200", entries.Look()) is None


@pytest.mark.parametrize(
    ("stderr", "status", "reason"),
    [
        ("DFLASH-NO-PYTHON\n", 97, Reason.NO_PYTHON),
        ("container '200' not running!\n", 255, Reason.CONTAINER_STOPPED),
        (
            "Configuration file 'nodes/pve/lxc/200.conf' does not exist\n",
            2,
            Reason.CONTAINER_MISSING,
        ),
        ("Error: No such container: train\n", 1, Reason.CONTAINER_MISSING),
        ("Error response from daemon: Container ab is paused\n", 1, Reason.CONTAINER_FROZEN),
        ("Error response from daemon: container ab is not running\n", 1, Reason.CONTAINER_STOPPED),
        (
            "Error: exec sessions on running containers only: container state improper\n",
            255,
            Reason.CONTAINER_STOPPED,
        ),
        ('Error from server (NotFound): pods "p" not found\n', 1, Reason.CONTAINER_MISSING),
        ("sudo: a password is required\n", 1, Reason.ENTRY_FAILED),
        ("lxc-attach: 200: attach.c: Failed to get init pid\n", 1, Reason.CONTAINER_STOPPED),
        (
            'OCI runtime exec failed: exec: "sh": executable file not found in $PATH\n',
            127,
            Reason.ENTRY_FAILED,
        ),
        ("bash: pct: command not found\n", 127, Reason.ENTRY_FAILED),
        ("", 255, Reason.ENTRY_FAILED),
        ("", None, Reason.LOST),
        ("Traceback ...\nImportError: x\n", 1, Reason.ENTRY_FAILED),
    ],
)
def test_a_failure_is_read_from_what_the_tool_said(
    stderr: str, status: int | None, reason: Reason
) -> None:
    error = entries.read_failure("box", stderr, "", status)
    assert error.reason is reason
    assert "\n" not in str(error)


@pytest.mark.lxc
def test_the_look_at_a_real_container_knows_its_state(container: Container) -> None:
    place = Place(entry="pct", entry_arg=container.id)

    def state() -> str | None:
        return way.look_at(LocalHost(), place, 10).state

    assert state() == "running"
    container.freeze()
    assert state() == "frozen"
    with pytest.raises(TransportError, match="frozen"):
        way.enter(LocalHost(), place, ("true",), 10)
    container.thaw()
    container.stop()
    assert state() == "stopped"
    gone = Place(entry="pct", entry_arg="999999")
    assert way.look_at(LocalHost(), gone, 10).state == "missing"
