"""What a watching may do on a host, exactly: its commands, and what lets a key do nothing else.

The commands are recorded from the code that runs them (`way.py`), so what is printed is what runs.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dflash_watch.place import Place
from dflash_watch.readers.lines import printable
from dflash_watch.transport import entries, way
from dflash_watch.transport.base import Host, Reason, Stream, TransportError
from dflash_watch.transport.command import PrefixHost
from dflash_watch.transport.host_side import is_wanted
from dflash_watch.transport.quoting import shell_line

GATE = "/usr/local/lib/dflash-watch-gate"
SUDO = {
    "pct": ("/usr/bin/lxc-info -n {arg} -s -p", "/usr/sbin/pct exec {arg} -- sh -c *"),
    "nsenter": ("/usr/bin/nsenter -t {arg} -m -u -i -p -- sh -c *",),
}
"""Entry -> what it puts `sudo -n` before, as another user than root."""


class Command(NamedTuple):
    """One command that the login shell of a host is given."""

    what: str
    line: str

    @property
    def sha256(self) -> str:
        """Of the line, as a gate compares it."""
        return hashlib.sha256(self.line.encode()).hexdigest()


class _Recorder:
    """A host that starts nothing and remembers what was to be started."""

    line = ""

    def open(self, argv: Sequence[str], timeout_s: float) -> Stream:
        """Remember, then refuse."""
        del timeout_s
        self.line = shell_line(argv)
        raise TransportError(Reason.LOST, "nothing is started")

    def trouble(self, timeout_s: float) -> None:
        """There is none."""
        del timeout_s

    def close(self) -> None:
        """Nothing is held."""


def commands_of(place: Place, script: str) -> list[Command]:
    """All commands of watching this place, on the host that is reached over SSH.

    Args:
        place: with a host.
        script: of the agent's start, for `sh -c`.
    """
    inside = ("sh", "-c", script)

    def enter(host: Host) -> object:
        return way.enter(host, place, inside, 1.0)

    def look(host: Host) -> object:
        return way.look_at(host, place, 1.0)

    def look_around(host: Host) -> object:
        return host.open(inside, 1.0)

    if place.entry is None:
        return [_recorded(place, "start the agent", enter)]
    noun = f"{entries.entry_of(place.entry, place.entry_arg or '').noun} {place.entry_arg}"
    found = [
        _recorded(place, f"look at {noun}, start the agent in it", enter),
        _recorded(place, f"look at {noun}, after a loss", look),
    ]
    if is_wanted(place):
        found.append(_recorded(place, "start the second agent, on the host itself", look_around))
    return found


def _recorded(place: Place, what: str, act: Callable[[Host], object]) -> Command:
    recorder = _Recorder()
    host: Host = PrefixHost(recorder, place.exec_prefix) if place.exec_prefix else recorder
    try:
        act(host)
    except TransportError:
        return Command(what, recorder.line)
    raise AssertionError("a recorder starts nothing")


def sudo_lines(place: Place, user: str) -> list[str]:
    """Lines for sudoers that let another user than root enter this one container."""
    rules = SUDO.get(place.entry or "", ())
    told = ", ".join(rule.format(arg=place.entry_arg) for rule in rules)
    return [f"{user} ALL=(root) NOPASSWD: {told}"] if told else []


def gate_script(place: Place, commands: Sequence[Command], version: str) -> str:
    """A forced command for sshd: POSIX sh that runs these commands and nothing else."""
    rows = "\n".join(f"{one.sha256}) ;; # {one.what}" for one in commands)
    notes = "\n".join(f"# {printable(line)}".rstrip() for line in _notes(place, version))
    refusal = printable(
        f"dflash-watch-gate: this key does what dflash-watch {version} does on {place.label()}"
        " and nothing else; was the watcher updated, or told something else?"
    )
    return f"""#!/bin/sh
{notes}
sum=$(printf '%s' "$SSH_ORIGINAL_COMMAND" | sha256sum) || exit 126
case ${{sum%% *}} in
{rows}
*) echo {shlex.quote(refusal)} >&2; exit 126 ;;
esac
exec sh -c "$SSH_ORIGINAL_COMMAND"
"""


def _notes(place: Place, version: str) -> list[str]:
    what = place.label().partition(" \u00b7 ")[2]
    lines = [
        f"Lets an SSH key do what dflash-watch {version} does on {place.label()}, nothing else.",
        "Make it anew after each update: the commands are compared by their hash.",
        "",
        f"1. on {place.host}: save this file as {GATE}, mode 0755, owner root",
        "2. there, in authorized_keys of the user who logs in, one line before the key:",
        f'   restrict,command="{GATE}" ssh-ed25519 AAAA...',
    ]
    if rules := sudo_lines(place, place.user or "watcher"):
        lines += ["3. for another user than root, in /etc/sudoers.d/dflash-watch:"]
        lines += [f"   {rule}" for rule in rules]
    where = f"inside {what}" if what else "as the user who logs in"
    lines += [
        "",
        "What remains: the agent's code comes over standard input, so whoever has the key can run",
        f"any program {where}.",
    ]
    if is_wanted(place):
        lines += ["And on the host itself: the second agent. Leave it out with --no-host-agent."]
    return lines
