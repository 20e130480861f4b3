"""The places themselves: what they claim about a Proxmox host must be true first."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from e2e.places.container import Container
from e2e.places.fixtures import Proxmox
from e2e.places.sshd import Sshd


def _ssh(sshd: Sshd, command: str, host: str = "box") -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", sshd.ssh_config, "-o", "BatchMode=yes", host, command]
    return subprocess.run(
        argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False
    )


@pytest.mark.ssh
@pytest.mark.parametrize("host", ["box", "far", "piped"])
def test_the_server_answers_openssh_directly_through_two_jumps_and_through_a_pipe(
    sshd: Sshd, host: str
) -> None:
    assert _ssh(sshd, "echo here", host).stdout == "here\n"


@pytest.mark.lxc
def test_ps_inside_prints_the_absurd_age_that_was_seen_in_the_field(container: Container) -> None:
    line = container.run(["ps", "-p", "1", "-o", "etime=,pcpu="]).stdout.split()
    assert re.fullmatch(r"4410772\d\d-\d\d:\d\d:\d\d", line[0])
    assert line[1] == "0.0"


@pytest.mark.lxc
def test_this_environment_runs_inside_and_has_no_py_spy(container: Container) -> None:
    container.require_python()
    code = (
        "import torch, dflash_events, os, shutil, sys;"
        "print(shutil.which('py-spy', path=os.path.dirname(sys.executable)))"
    )
    done = container.run([container.python, "-c", code], env=container.environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout == "None\n"


@pytest.mark.lxc
def test_a_command_started_inside_is_known_by_both_its_numbers(
    container: Container, tmp_path: Path
) -> None:
    spawned = container.spawn(["sleep", "60"], output=tmp_path / "out")
    assert ("sleep", "60") in [process.cmdline for process in container.processes()]
    spawned.signal(9)
    assert spawned.wait(60) == 137


@pytest.mark.lxc
@pytest.mark.ssh
@pytest.mark.parametrize(
    ("inner", "status", "text"),
    [
        ("exec {id} -- sh -c 'exit 7'", 7, ""),
        ("exec {id} -- sh -c 'kill -9 $$'", 137, ""),
        ("exec {id} -- no-such-program", 127, "Failed to exec"),
        ("exec {id} sh -c true", 255, "Unknown option: c"),
        ("exec 99999 -- true", 2, "lxc/99999.conf' does not exist"),
        ("status 99999", 2, "does not exist"),
    ],
)
def test_pct_fails_with_the_codes_and_words_of_proxmox(
    proxmox: Proxmox, inner: str, status: int, text: str
) -> None:
    done = _ssh(proxmox.sshd, "pct " + inner.format(id=proxmox.container.id))
    assert done.returncode == status
    assert text in done.stderr


@pytest.mark.lxc
@pytest.mark.ssh
def test_pct_passes_arguments_on_without_a_shell_in_between(proxmox: Proxmox) -> None:
    hostile = "a b; hostname $(id) 'x' \"y\" \\ *"
    done = _ssh(
        proxmox.sshd, f"pct exec {proxmox.container.id} -- printf %s {shlex.quote(hostile)}"
    )
    assert done.stdout == hostile


@pytest.mark.lxc
@pytest.mark.ssh
def test_pct_says_running_of_a_frozen_container_and_not_running_of_a_stopped_one(
    proxmox: Proxmox,
) -> None:
    number = proxmox.container.id
    proxmox.container.freeze()
    assert _ssh(proxmox.sshd, f"pct status {number}").stdout == "status: running\n"
    proxmox.container.stop()
    done = _ssh(proxmox.sshd, f"pct exec {number} -- true")
    assert (done.returncode, done.stderr) == (255, f"container '{number}' not running!\n")
    assert number in _ssh(proxmox.sshd, "pct list").stdout
