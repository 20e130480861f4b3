"""Which paths lie on file systems that can hang: network mounts and FUSE."""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

from dflash_watch.agent import proc

CAN_HANG = re.compile(
    r"nfs|cifs|smb|9p$|afs$|ceph|lustre|gluster|gpfs|beegfs|ocfs2|gfs2|orangefs|pvfs2|fuse(?!\.lxcfs$|ctl$)|virtiofs|davfs"
)
RENEW_S = 30.0


def parse_mountinfo(text: str) -> List[Tuple[str, str]]:
    """(mount point, file system type), longest mount point first."""
    mounts = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        words = left.split()
        if dash and len(words) >= 5 and right.split():
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), words[4])
            mounts.append((point, right.split()[0]))
    # A later mount on the same point hides the earlier: stable sort of the reversed list.
    return sorted(mounts, key=lambda mount: len(mount[0]), reverse=True)


class Mounts:
    """The mount table, read again now and then."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._mounts: List[Tuple[str, str]] = []
        self._read_s: Optional[float] = None

    def kind(self, path: str, now_s: float) -> str:
        """File system type of an absolute path, by its longest mount point; empty when unknown."""
        if self._read_s is None or now_s - self._read_s >= RENEW_S:
            text = proc.read_text(self._root + "/self/mountinfo", 1 << 20)
            self._mounts, self._read_s = parse_mountinfo(text or ""), now_s
        for point, kind in self._mounts:
            if path == point or path.startswith(point.rstrip("/") + "/"):
                return kind
        return ""

    def can_hang(self, path: Optional[str], now_s: float) -> bool:
        """Could touching this path block for ever."""
        return (
            bool(path)
            and str(path).startswith("/")
            and bool(CAN_HANG.match(self.kind(str(path), now_s)))
        )
