"""Panes of tmux: whose terminal is it, and what stands in it.

A tmux server can be stuck, so every question has a deadline; captures for the log are asked in one
frame and collected in a later one.
"""

from __future__ import annotations

import os
from typing import List, NamedTuple, Optional, Tuple

from dflash_watch.agent.tools import which

FORMAT = "#{pane_id} #{pane_pid} #{pane_tty} #{pane_active}#{window_active}"
LOOK_S = 2.0
PLACES = ["/usr/local/bin", "/usr/bin", "/bin", "/snap/bin", "/opt/bin"]


class Pane(NamedTuple):
    """One pane and the server it belongs to."""

    name: str
    pid: int
    tty: str
    active: bool
    socket: str


def command(socket: str) -> List[str]:
    """The words before a tmux subcommand."""
    return [which("tmux", PLACES) or "tmux", "-S", socket]


def sockets() -> List[str]:
    """Servers of every user whose socket can be seen, one's own first."""
    base = os.environ.get("TMUX_TMPDIR") or "/tmp"  # noqa: S108 - where tmux keeps them
    own = os.path.join(base, f"tmux-{os.getuid()}")
    found = []
    for directory in list_names(base):
        if directory.startswith("tmux-"):
            inside = os.path.join(base, directory)
            found += [os.path.join(inside, name) for name in list_names(inside)]
    return sorted(
        found, key=lambda path: (not path.startswith(own), not path.endswith("/default"), path)
    )


def list_names(directory: str) -> List[str]:
    """What stands in a directory; nothing where it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def ask(socket: str, *words: str) -> Optional[str]:
    """What tmux says, within a deadline; None when it does not."""
    import subprocess  # late: only where there is a tmux

    try:
        done = subprocess.run(
            command(socket) + list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=LOOK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def parse_panes(text: str, socket: str) -> List[Pane]:
    """Panes of a `list-panes` answer in FORMAT; lines that do not fit are left out."""
    panes = []
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) == 4 and words[1].isdigit():
            panes.append(Pane(words[0], int(words[1]), words[2], words[3] == "11", socket))
    return panes


def pane_of(session: str) -> Tuple[Optional[Pane], str]:
    """The active pane of a session (or `session:window.pane`), or why there is none."""
    if which("tmux", PLACES) is None:
        return None, f"tmux {session}: there is no tmux here"
    seen = sockets()
    for socket in seen:
        panes = parse_panes(ask(socket, "list-panes", "-t", session, "-F", FORMAT) or "", socket)
        if panes:
            return max(panes, key=lambda pane: pane.active), ""
    return None, f"no tmux session {session} ({len(seen)} servers asked)"


def panes() -> List[Pane]:
    """Every pane of every server that answers."""
    found = []
    for socket in sockets():
        found += parse_panes(ask(socket, "list-panes", "-a", "-F", FORMAT) or "", socket)
    return found
