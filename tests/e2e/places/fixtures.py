"""pytest fixtures: `sshd`, `container`, `pct`, and `proxmox`, which is all three together.

The expensive half lives for the session; the name a test asks for gives it back running, thawed
and quiet afterwards.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dflash_watch.place import Place
from e2e.places.container import Container
from e2e.places.lxcfs import lxcfs
from e2e.places.needs import give_up, require_programs, require_root
from e2e.places.pct import write_pct
from e2e.places.rootfs import debian_root
from e2e.places.sshd import Sshd


@dataclass(frozen=True, slots=True)
class Proxmox:
    """A host reached over SSH and the container behind its `pct`."""

    sshd: Sshd
    container: Container

    def place(self) -> Place:
        """`--host box --ct ID`."""
        return Place(
            host="box", ssh_config=self.sshd.ssh_config, entry="pct", entry_arg=self.container.id
        )


@pytest.fixture(scope="session")
def session_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """The server itself; tests ask for `sshd`."""
    require_root()
    require_programs("sshd", "ssh", "ssh-keygen", packages="openssh-server openssh-client")
    server = Sshd(tmp_path_factory.mktemp("sshd"), sys.executable)
    yield server
    server.thaw()
    server.down()


@pytest.fixture(scope="session")
def session_container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """The container itself; tests ask for `container`."""
    require_root()
    require_programs(
        "lxc-start", "lxc-attach", "lxcfs", "debootstrap", packages="lxc lxcfs uidmap debootstrap"
    )
    if "overlay" not in Path("/proc/filesystems").read_text():
        give_up("this kernel has no overlay file system")
    root = debian_root()
    lxcpath = subprocess.check_output(["lxc-config", "lxc.lxcpath"], text=True).strip()
    with lxcfs():
        box = Container(root, tmp_path_factory.mktemp("container"), Path(lxcpath))
        try:
            yield box
        finally:
            box.remove()


@pytest.fixture
def sshd(session_sshd: Sshd) -> Iterator[Sshd]:
    """A real sshd on loopback (see places/sshd.py)."""
    yield session_sshd
    session_sshd.restore()


@pytest.fixture
def container(session_container: Container) -> Iterator[Container]:
    """A real LXC container with lxcfs (see places/container.py)."""
    yield session_container
    session_container.restore()


@pytest.fixture
def pct(session_container: Container, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a `pct` in a directory of its own."""
    return write_pct(tmp_path_factory.mktemp("pct"), str(session_container.lxcpath))


@pytest.fixture
def proxmox(sshd: Sshd, container: Container) -> Proxmox:
    """SSH host with a `pct` on its PATH, and the container behind it."""
    write_pct(sshd.bin, str(container.lxcpath))
    return Proxmox(sshd, container)
