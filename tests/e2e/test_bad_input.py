"""What a person gets wrong on the way to a run: one clear line, and exit 3 or 64, never a dump."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.places.container import CHECKOUT, Container
from e2e.places.fixtures import Proxmox

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]
COMMANDS = ("watch", "check", "dump")
HIDE = """
for each in /usr/bin/python3* /usr/local/bin/python3* /opt/*/bin/python3*; do
    [ -e "$each" ] && mount --bind /dev/null "$each"
done; true
"""
SHOW = 'while read -r _ at _; do case $at in */python3*) umount "$at";; esac; done < /proc/mounts'


def refused(proxmox: Proxmox, command: str, code: int, *words: str, host: str = "box") -> str:
    """The one line that a command ends with."""
    container = () if "--ct" in words else ("--ct", proxmox.container.id)
    where = ("--host", host, "--ssh-config", proxmox.sshd.ssh_config, *container)
    return refused_locally(proxmox.sshd.work, command, code, *where, *words)


def refused_locally(folder: Path, command: str, code: int, *words: str) -> str:
    """The same without any way."""
    argv = [sys.executable, "-m", "dflash_watch.cli", *([] if command == "watch" else [command])]
    packages = os.pathsep.join(str(CHECKOUT / name) for name in ("dflash", "watchdog", "tui"))
    env = {**os.environ, "PYTHONPATH": packages, "XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run(
        [*argv, *(["--json"] if command == "watch" else []), *words],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    # Watching tells machines as well, in its own form; the line for people stands alone.
    said = done.stdout + done.stderr if command == "check" else done.stderr
    lines = said.splitlines()
    assert len(lines) == 1, said
    assert "Traceback" not in said
    return lines[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_host_that_does_not_exist(proxmox: Proxmox, command: str) -> None:
    line = refused(proxmox, command, 3, "--pid", "1", host="no-such-host.invalid")
    assert "no-such-host.invalid: unknown host" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_key_that_is_refused(proxmox: Proxmox, command: str, tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    text = Path(proxmox.sshd.ssh_config).read_text()
    config.write_text(text.replace("id_client", "id_stranger"))
    line = refused(proxmox, command, 3, "--pid", "1", "--ssh-config", str(config))
    assert "box" in line
    assert re.search(r"refuse|not accepted|denied", line), line
    assert "id_stranger" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_host_key_that_has_changed(proxmox: Proxmox, command: str) -> None:
    proxmox.sshd.swap_host_key()
    line = refused(proxmox, command, 3, "--pid", "1")
    assert "host key" in line
    assert "changed" in line
    assert proxmox.sshd.fingerprint("host_key_other") in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_container_that_does_not_exist(proxmox: Proxmox, command: str) -> None:
    line = refused(proxmox, command, 3, "--pid", "1", "--ct", "99999")
    assert "container 99999 does not exist" in line
    assert "pct list" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_container_name_that_cannot_be_one(proxmox: Proxmox, command: str) -> None:
    line = refused(proxmox, command, 64, "--pid", "1", "--ct", "trainer; reboot")
    assert "trainer; reboot" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_container_that_is_stopped(proxmox: Proxmox, command: str) -> None:
    proxmox.container.stop()
    line = refused(proxmox, command, 3, "--pid", "1")
    assert f"container {proxmox.container.id} is not running" in line
    assert f"pct start {proxmox.container.id}" in line


@pytest.fixture
def no_python(container: Container) -> Iterator[None]:
    """Every Python in the container is hidden, and none runs."""
    assert container.run(["sh", "-c", HIDE]).returncode == 0
    yield
    container.run(["sh", "-c", SHOW])
    assert container.run(["python3", "-c", ""]).returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("no_python")
def test_a_container_without_python(proxmox: Proxmox, command: str) -> None:
    line = refused(proxmox, command, 3, "--pid", "1")
    assert "no Python 3.8 or newer" in line


@pytest.mark.parametrize("command", ["check", "dump"])
@pytest.mark.parametrize("path", ["/etc", "/etc/hostname"])
def test_a_run_directory_that_is_none(proxmox: Proxmox, command: str, path: str) -> None:
    line = refused(proxmox, command, 3, "--run-dir", path)
    assert "not a run directory" in line
    assert path in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_process_that_is_no_python(proxmox: Proxmox, command: str, tmp_path: Path) -> None:
    sleeper = proxmox.container.spawn(["/bin/sleep", "300"], output=tmp_path / "out")
    line = refused(proxmox, command, 3, "--pid", str(sleeper.pid))
    assert f"{sleeper.pid}" in line
    assert "Python" in line
    assert "sleep" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_process_that_does_not_exist(proxmox: Proxmox, command: str) -> None:
    assert "no process 4000000" in refused(proxmox, command, 3, "--pid", "4000000")


def test_a_recording_that_is_none_or_cut_at_its_head(tmp_path: Path) -> None:
    capture = tmp_path / "capture.jsonl"
    for text in ("", "step 1 loss 2.5\n", '{"type":"header","sch'):
        capture.write_text(text)
        line = refused_locally(tmp_path, "replay", 64, "--json", str(capture))
        assert str(capture) in line
    assert "no such file" in refused_locally(tmp_path, "replay", 64, "--json", "gone.jsonl").lower()
