"""Least rights as the documents give them, on a real sshd, a real sudo and a real container."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from dflash_watch.agent.stub import ENTRY_SCRIPT
from dflash_watch.cli import main
from dflash_watch.place import Place
from dflash_watch.transport.rights import commands_of, gate_script, sudo_lines
from e2e.places.container import CHECKOUT, Container
from e2e.places.fixtures import Proxmox
from e2e.places.needs import require_programs
from e2e.places.pct import write_pct
from e2e.places.sshd import Sshd

LIMIT_S = 120
WATCHER = 54321
FOLDERS = os.pathsep.join(str(CHECKOUT / name) for name in ("dflash", "watchdog", "tui"))


def forced(sshd: Sshd, place: Place, version: str = "0.1.0") -> None:
    """The key may do what the gate of this place lets it do; the line is the gate's own."""
    gate = sshd.work / "gate"
    gate.write_text(gate_script(place, commands_of(place, ENTRY_SCRIPT), version))
    gate.chmod(0o755)
    (line,) = [line for line in gate.read_text().splitlines() if "restrict,command=" in line]
    options = line.strip("# ").partition(" ssh-ed25519")[0]
    options = options.replace("/usr/local/lib/dflash-watch-gate", str(gate))
    key = (sshd.work / "id_client.pub").read_text()
    (sshd.work / "authorized_keys").write_text(f"{options} {key}")


@pytest.fixture
def limited(sshd: Sshd):
    """The server, whose key is given back all rights afterwards."""
    yield sshd
    shutil.copy(sshd.work / "id_client.pub", sshd.work / "authorized_keys")


def watch(sshd: Sshd, *words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "dflash_watch.cli", *words, "--ssh-config", sshd.ssh_config]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=sshd.work,
        env={**os.environ, "PYTHONPATH": FOLDERS, "XDG_STATE_HOME": str(sshd.work / "state")},
    )  # fmt: skip


def ssh(sshd: Sshd, *words: str) -> subprocess.CompletedProcess:
    command = ["ssh", "-F", sshd.ssh_config, "-o", "BatchMode=yes", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.mark.ssh
def test_a_key_with_the_gate_watches_and_does_nothing_else(limited: Sshd) -> None:
    forced(limited, Place(host="box"))
    told = watch(limited, "check", "--host", "box", "--json", "--match", "no-such-program-at-all")
    assert "no process whose command line matches" in told.stdout, told.stderr
    for words in (["id"], ["sh", "-c", "id"], [], ["-tt", "id"], ["-s", "sftp"]):
        refused = ssh(limited, "box", *words)
        assert refused.returncode != 0
        assert "uid=" not in refused.stdout
    assert "this key does what dflash-watch 0.1.0 does on box" in ssh(limited, "box", "id").stderr
    tunnel = ssh(limited, "-W", f"127.0.0.1:{limited.port}", "box")
    assert tunnel.returncode != 0
    assert "SSH-2.0" not in tunnel.stdout


@pytest.mark.ssh
def test_a_gate_of_another_version_is_told_in_one_line(limited: Sshd) -> None:
    place = Place(host="box")
    forced(limited, place)
    gate = limited.work / "gate"
    gate.write_text(gate.read_text().replace(commands_of(place, ENTRY_SCRIPT)[0].sha256, "0" * 64))
    told = watch(limited, "check", "--host", "box")
    assert told.returncode == 3
    assert "was the watcher updated" in told.stdout
    assert len(told.stdout.splitlines()) == 1


@pytest.mark.ssh
@pytest.mark.lxc
def test_a_key_with_the_gate_enters_its_container_and_no_other(
    limited: Sshd, proxmox: Proxmox
) -> None:
    arg = proxmox.container.id
    forced(limited, Place(host="box", entry="pct", entry_arg=arg))
    told = watch(limited, "check", "--host", "box", "--ct", arg, "--match", "no-such-program")
    assert "no process whose command line matches" in told.stdout, told.stderr
    other = watch(limited, "check", "--host", "box", "--ct", "99999")
    assert "and nothing else" in other.stdout


@pytest.fixture
def programs() -> Iterator[Path]:
    """A folder for programs that other users may enter; those of pytest they may not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


SESSION = """
import json, sys
from dflash_watch.clock import SystemClock
from dflash_watch.frame import Frame, LinkChange
from dflash_watch.place import Place, TargetChoice
from dflash_watch.session import Session
place = Place(**json.loads(sys.argv[1]))
session = Session(place, TargetChoice(match="no-such-program-at-all"), 1.0, SystemClock())
while True:
    record = session.get(1.0)
    if isinstance(record, LinkChange) and record.reason: print("LINK", record.reason); break
    if isinstance(record, Frame): print("FRAME", record.run.note); break
session.close()
"""
ALONE = """
for name in sudoers passwd group shadow; do mount --bind "$1/$name" /etc/$name; done
mkdir -p "$1/none"; mount --bind "$1/none" /etc/sudoers.d
shift; exec "$@"
"""
"""Within a mount namespace of its own: the machine's files stay as they are."""


def alone(folder: Path, *words: str) -> subprocess.CompletedProcess:
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", ALONE, "sh", folder]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False,
        env={**os.environ, "PYTHONPATH": FOLDERS},
    )  # fmt: skip


@pytest.mark.lxc
def test_another_user_enters_with_the_two_sudo_lines_and_may_do_nothing_more(
    container: Container, tmp_path: Path, programs: Path
) -> None:
    require_programs("sudo", "visudo", "unshare", "setpriv", packages="sudo util-linux")
    arg = container.id
    write_pct(programs, str(container.lxcpath))
    place = Place(host="box", entry="pct", entry_arg=arg)
    (line,) = sudo_lines(place, "watcher")
    line = line.replace("/usr/sbin/pct", str(programs / "pct"))
    (tmp_path / "sudoers").write_text(
        f'Defaults secure_path="{programs}:/usr/sbin:/usr/bin:/sbin:/bin"\n{line}\n'
    )
    (tmp_path / "sudoers").chmod(0o440)
    user = f"watcher:x:{WATCHER}:{WATCHER}::/nonexistent:/bin/sh\n"
    (tmp_path / "passwd").write_text(Path("/etc/passwd").read_text() + user)
    (tmp_path / "group").write_text(Path("/etc/group").read_text() + f"watcher:x:{WATCHER}:\n")
    (tmp_path / "shadow").write_text(Path("/etc/shadow").read_text() + "watcher:*:1::::::\n")
    tmp_path.chmod(0o755)
    checked = subprocess.run(
        ["visudo", "-c", "-f", str(tmp_path / "sudoers")], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr

    become = ("setpriv", f"--reuid={WATCHER}", f"--regid={WATCHER}", "--clear-groups")
    become = (*become, "env", f"PATH={programs}:/usr/sbin:/usr/bin:/sbin:/bin")
    way = {"entry": "pct", "entry_arg": arg, "exec_prefix": become}
    told = alone(tmp_path, sys.executable, "-c", SESSION, json.dumps(way))
    assert told.stdout.startswith("FRAME no process whose command line matches"), told

    for wrong in (
        ["id"],
        ["sh", "-c", "id"],
        [str(programs / "pct"), "exec", arg, "id"],
        [str(programs / "pct"), "exec", "99999", "--", "sh", "-c", "id"],
        [str(programs / "pct"), "list"],
        ["lxc-info", "-n", "99999", "-s", "-p"],
    ):
        refused = alone(tmp_path, *become, "sudo", "-n", *wrong)
        assert refused.returncode != 0, wrong
        assert "uid=" not in refused.stdout
        assert "password is required" in refused.stderr, (wrong, refused.stderr)


def test_the_gate_quotes_what_a_person_typed(capfd: pytest.CaptureFixture[str], tmp_path) -> None:
    words = ["--exec", "sh -c '$(touch pwned); `touch pwned`'"]
    assert main(["rights", "--host", "box", *words]) == 0
    gate = tmp_path / "gate"
    gate.write_text(capfd.readouterr().out)
    done = subprocess.run(
        ["sh", str(gate)], capture_output=True, text=True, cwd=tmp_path, check=False,
        env={"PATH": os.environ["PATH"], "SSH_ORIGINAL_COMMAND": "id"},
    )  # fmt: skip
    assert done.returncode == 126
    assert done.stdout == ""
    assert done.stderr.startswith("dflash-watch-gate: ")
    assert not (tmp_path / "pwned").exists()


def test_rights_tells_the_commands_as_data_and_refuses_where_there_is_no_key(capfd) -> None:
    assert main(["rights", "--host", "box", "--ct", "200", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert [one["what"].split(",")[0] for one in told["commands"]] == [
        "look at container 200", "look at container 200", "start the second agent",
    ]  # fmt: skip
    assert main(["rights", "--ct", "200"]) == 64
    assert "no host" in capfd.readouterr().err
