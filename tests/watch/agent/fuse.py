"""A file system that can stop answering: a FUSE server of one file in a process of its own.

Linux and root only. While its server is stopped (`freeze`) whatever touches the mount sleeps in
state D and takes no signal, as with a dead network mount; `close` ends it all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NAME = "file"
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 14, 15, 17, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, BATCH_FORGET = 25, 26, 27, 28, 29, 42
UNKNOWN = -38  # ENOSYS


class Mount:
    """One mounted file, its path, and its server."""

    def __init__(self, folder: Path, content: bytes) -> None:
        self.folder, self.path = folder, folder / NAME
        kept = folder.with_suffix(".content")
        kept.write_bytes(content)
        words = [sys.executable, __file__, str(folder), str(kept)]
        self.server = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self.server.stdout
        assert self.server.stdout.readline() == b"mounted\n"

    def freeze(self) -> None:
        """From now on nothing there answers."""
        self.server.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It answers again."""
        self.server.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the server: whoever waits gets an error."""
        self.server.kill()
        self.server.wait(60)
        if self.server.stdout:
            self.server.stdout.close()
        subprocess.run(["umount", "-l", self.folder], check=False, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def mounted(content: bytes) -> Iterator[Mount]:
    """A mount for the body; skipped where FUSE cannot be had."""
    if os.getuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("mounting needs root and /dev/fuse")
    with tempfile.TemporaryDirectory(prefix="dflash-fuse-") as name:
        folder = Path(name) / "mount"
        folder.mkdir()
        mount = Mount(folder, content)
        try:
            yield mount
        finally:
            mount.close()


def attributes(node: int, size: int) -> bytes:
    """`struct fuse_attr` of the root (1) or the file (2)."""
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode: int, node: int, body: bytes, content: bytes) -> bytes | int:
    """What goes back: bytes, or a negative error number."""
    if opcode == INIT:
        return struct.pack("<4I2HIIHHI7I", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, 0, *[0] * 7)
    if opcode == LOOKUP:
        if body.rstrip(b"\0") != NAME.encode():
            return -2
        return struct.pack("<4Q2I", 2, 0, 3600, 3600, 0, 0) + attributes(2, len(content))
    if opcode == GETATTR:
        return struct.pack("<Q2I", 3600, 0, 0) + attributes(node, len(content))
    if opcode in (OPEN, OPENDIR):
        return struct.pack("<Q2I", 0, 0, 0)
    if opcode == READ:
        offset, size = struct.unpack_from("<QI", body, 8)
        return content[offset : offset + size]
    if opcode == STATFS:
        return struct.pack("<5Q4I6I", 1000, 900, 900, 10, 9, 4096, 255, 4096, 0, *[0] * 6)
    return b"" if opcode in (FLUSH, RELEASE, READDIR, RELEASEDIR) else UNKNOWN


def serve(folder: str, content: bytes) -> None:
    """Mount and answer until killed."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"dflash", folder.encode(), b"fuse.dflash", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    print("mounted", flush=True)
    while True:
        request = os.read(device, 1 << 20)
        _size, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        if opcode in (FORGET, BATCH_FORGET):
            continue
        got = answer(opcode, node, request[40:], content)
        error, data = (got, b"") if isinstance(got, int) else (0, got)
        os.write(device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]).read_bytes())
