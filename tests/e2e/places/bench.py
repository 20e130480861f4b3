"""The same places for programs that are no tests."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from e2e.places.container import Container
from e2e.places.fixtures import Proxmox
from e2e.places.lxcfs import lxcfs
from e2e.places.pct import write_pct
from e2e.places.rootfs import debian_root
from e2e.places.sshd import Sshd


@contextlib.contextmanager
def proxmox() -> Iterator[Proxmox]:
    """An sshd, and a container behind its pct; both end with the body."""
    lxcpath = Path(subprocess.check_output(["lxc-config", "lxc.lxcpath"], text=True).strip())
    with tempfile.TemporaryDirectory() as work, lxcfs():
        for name in ("sshd", "container"):
            (Path(work) / name).mkdir()
        server = Sshd(Path(work) / "sshd", sys.executable)
        try:
            box = Container(debian_root(), Path(work) / "container", lxcpath)
            try:
                write_pct(server.bin, str(box.lxcpath))
                yield Proxmox(server, box)
            finally:
                box.remove()
        finally:
            server.down()
