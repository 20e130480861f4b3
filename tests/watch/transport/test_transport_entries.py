"""Container entries as data: names, looks, failures."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from dflash_watch.errors import UsageError
from dflash_watch.place import Place
from dflash_watch.transport import entries, way
from dflash_watch.transport.base import Reason, Reply, run, status_soon
from dflash_watch.transport.failures import read_failure
from dflash_watch.transport.local import LocalHost
from e2e.places.container import Container
from e2e.places.needs import require_root


@pytest.mark.parametrize("entry", entries.ENTRIES.values(), ids=lambda entry: entry.name)
def test_each_look_is_a_script_that_posix_sh_accepts(entry: entries.Entry) -> None:
    done = subprocess.run(["sh", "-n", "-c", entry.script()], capture_output=True, check=False)
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
    ("name", "arg", "tool", "answer", "expected"),
    [
        ("docker", "t", "docker", "running", "exec -i t true x y"),
        ("podman", "t", "podman", "running", "exec -i t true x y"),
        ("incus", "t", "incus", "RUNNING", "exec --mode=non-interactive t -- true x y"),
        ("kubectl", "p", "kubectl", "Running", "exec -i p -- true x y"),
        ("kubectl", "n/p", "kubectl", "Running", "-n n exec -i p -- true x y"),
        ("kubectl", "n/p/c", "kubectl", "Running", "-n n exec -i p -c c -- true x y"),
    ],
)
def test_the_command_goes_behind_the_tools_own_words(
    tmp_path: Path, name: str, arg: str, tool: str, answer: str, expected: str
) -> None:
    reply = _enter(tmp_path, name, arg, tool, answer)
    assert (reply.status, reply.out) == (0, expected + "\n")


@pytest.mark.parametrize(
    ("name", "answer", "reason"),
    [
        ("docker", "paused", Reason.CONTAINER_FROZEN),
        ("docker", "exited", Reason.CONTAINER_STOPPED),
        ("incus", "FROZEN", Reason.CONTAINER_FROZEN),
        ("incus", "", Reason.CONTAINER_MISSING),
        ("kubectl", "Pending", Reason.CONTAINER_STOPPED),
    ],
)
def test_what_does_not_run_is_not_entered(
    tmp_path: Path, name: str, answer: str, reason: Reason
) -> None:
    reply = _enter(tmp_path, name, "t", name, answer)
    assert (reply.status, reply.out) == (entries.EXIT_NOT_ENTERED, "")
    place = Place(entry=name, entry_arg="t")
    assert way.read_end(place, reply.err, "", reply.status).reason is reason


@pytest.mark.parametrize(
    ("name", "words", "status", "reason"),
    [
        ("docker", "Error: No such object: t", 1, Reason.CONTAINER_MISSING),
        ("docker", "Error response from daemon: No such container: t", 1, Reason.CONTAINER_MISSING),
        (
            "docker",
            "Cannot connect to the Docker daemon at unix:///d.sock. Is the docker daemon running?",
            1,
            Reason.ENTRY_FAILED,
        ),
        (
            "docker",
            "permission denied while trying to connect to the Docker daemon socket",
            1,
            Reason.ENTRY_FAILED,
        ),
        ("podman", 'Error: no such container "t"', 125, Reason.CONTAINER_MISSING),
        ("podman", "Error: no such object: t", 125, Reason.CONTAINER_MISSING),
        (
            "kubectl",
            'Error from server (NotFound): pods "t" not found',
            1,
            Reason.CONTAINER_MISSING,
        ),
        (
            "kubectl",
            'Error from server (Forbidden): pods "t" is forbidden: User "u" cannot get resource',
            1,
            Reason.ENTRY_FAILED,
        ),
        (
            "kubectl",
            "Unable to connect to the server: dial tcp 10.0.0.1:6443: connection refused",
            1,
            Reason.ENTRY_FAILED,
        ),
    ],
)
def test_a_tool_that_refuses_in_its_own_words_is_understood(
    tmp_path: Path, name: str, words: str, status: int, reason: Reason
) -> None:
    """The words of the real tools, from a stand-in: each says the same of a look and an entry."""
    fake = tmp_path / name
    fake.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit {status}\n")
    fake.chmod(0o755)
    argv = entries.entry_argv(entries.entry_of(name, "t"), "t", ["true"])
    reply = run(LocalHost(), ["env", f"PATH={tmp_path}:/usr/bin:/bin", *argv], 30)
    error = way.read_end(Place(entry=name, entry_arg="t"), reply.err, reply.out, reply.status)
    assert error.reason is reason, error
    assert "\n" not in str(error)


def test_a_host_without_the_tool_is_not_entered_and_says_so() -> None:
    entry = entries.ENTRIES["incus"]
    reply = run(LocalHost(), entries.entry_argv(entry, "t", ["true"]), 10)
    assert reply.status == entries.EXIT_NOT_ENTERED
    error = way.read_end(Place(entry="incus", entry_arg="t"), reply.err, "", reply.status)
    assert error.message.startswith("incus: not found on ")


def _enter(tmp_path: Path, name: str, arg: str, tool: str, answer: str) -> Reply:
    """Enter with a tool that answers a look, and prints its arguments for anything else."""
    fake = tmp_path / tool
    fake.write_text(
        f"#!/bin/sh\ncase \" $* \" in *' exec '*) echo \"$*\" ;; *) echo '{answer}' ;; esac\n"
    )
    fake.chmod(0o755)
    argv = entries.entry_argv(entries.entry_of(name, arg), arg, ["true", "x", "y"])
    path = f"PATH={tmp_path}:/usr/bin:/bin"
    return run(LocalHost(), ["env", path, *argv], 10)


def test_a_look_is_found_among_what_a_login_shell_says() -> None:
    text = "Welcome\nDFLASH-LOOK host pve\nDFLASH-LOOK state Paused\nDFLASH-LOOK lock \nlast\n"
    assert entries.parse_look(text) == entries.Look(host="pve", state="frozen")


def test_words_without_a_line_end_before_the_look_hide_nothing_and_stay_harmless() -> None:
    text = "\x1b[2Jno line endDFLASH-LOOK host pve\nDFLASH-LOOK state running\nlast\n"
    assert entries.parse_look(text) == entries.Look(host="pve", state="running")
    assert entries.without_look(text) == "?[2Jno line end\nlast\n"


@pytest.mark.parametrize(
    ("look", "reason", "message"),
    [
        (
            entries.Look(state="frozen", host="pve", tool="pct"),
            Reason.CONTAINER_FROZEN,
            "container 200 is frozen (backup or snapshot?)",
        ),
        (
            entries.Look(state="frozen", lock="backup", tool="pct"),
            Reason.CONTAINER_FROZEN,
            "container 200 is frozen (locked: backup)",
        ),
        (
            entries.Look(state="missing", host="pve", node="pve2", tool="pct"),
            Reason.CONTAINER_MISSING,
            "container 200 does not exist on pve; it is on pve2",
        ),
        (
            entries.Look(state="stopped", host="pve", tool="pct"),
            Reason.CONTAINER_STOPPED,
            "container 200 is not running on pve",
        ),
        (entries.Look(host="pve", tool="none"), Reason.ENTRY_FAILED, "pct: not found on pve"),
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
    error = read_failure("box", stderr, "", status)
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
    stream = way.enter(LocalHost(), place, ("true",), 10)
    assert stream.receive(10) == b""
    status = status_soon(stream, 5.0)
    error = way.read_end(place, stream.error_text(), "", status)
    assert error.reason is Reason.CONTAINER_FROZEN
    stream.close()
    container.thaw()
    container.stop()
    assert state() == "stopped"
    gone = Place(entry="pct", entry_arg="999999")
    assert way.look_at(LocalHost(), gone, 10).state == "missing"


@pytest.mark.parametrize(
    ("allowed", "status", "out"),
    [
        ("lxc-info", 0, "-n pct exec 200 -- true x\n"),
        ("nothing", 0, "-n pct exec 200 -- true x\n"),
        ("stopped", entries.EXIT_NOT_ENTERED, ""),
    ],
)
def test_another_user_than_root_goes_through_sudo_that_never_asks(
    allowed: str, status: int, out: str
) -> None:
    require_root()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        answer = {"lxc-info": f"State: RUNNING\nPID: {os.getpid()}", "stopped": "State: STOPPED"}
        said = f"printf '%s\\n' '{answer[allowed]}'" if allowed in answer else "exit 1"
        sudo = f'#!/bin/sh\ncase "$*" in *lxc-info*) {said} ;; *) echo "$*" ;; esac\n'
        for tool, text in (("sudo", sudo), ("pct", "#!/bin/sh\nexit 9\n")):
            (folder / tool).write_text(text)
            (folder / tool).chmod(0o755)
        script = entries.entry_argv(entries.ENTRIES["pct"], "200", ["true", "x"])
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        argv = [*nobody, "env", f"PATH={folder}:/usr/bin:/bin", *script]
        reply = run(LocalHost(), argv, 10)
    assert (reply.status, reply.out) == (status, out)


@pytest.mark.parametrize("number", [1, 9, 15])
def test_what_was_killed_before_it_spoke_is_tried_again(number):
    error = read_failure("box", "Killed", "", 128 + number)
    assert (error.reason, error.permanent) == (Reason.LOST, False)
    assert f"killed by signal {number} before the agent spoke" in str(error)
    assert read_failure("box", "", "", 255).permanent
