"""`dflash-watch rights`: what a watching runs on a host, as a gate that lets a key do only that."""

from __future__ import annotations

from argparse import Namespace

import msgspec
from dflash_events import __version__

from dflash_watch.agent.stub import ENTRY_SCRIPT
from dflash_watch.commands.choice import build_place
from dflash_watch.commands.context import Context, write_line
from dflash_watch.errors import EXIT_OK, UsageError
from dflash_watch.transport.rights import commands_of, gate_script, sudo_lines


def run(given: Namespace, _context: Context) -> int:
    """Print the gate, or with `--json` the commands with their hashes; connects to nothing.

    Raises:
        UsageError: no host: on this machine there is no key to be limited.
    """
    place = build_place(given)._replace(host_side=not given.no_host_agent)
    if place.host is None:
        raise UsageError("rights: no host", hint="name it with --host, the container with --ct")
    commands = commands_of(place, ENTRY_SCRIPT)
    if not given.json:
        write_line(gate_script(place, commands, __version__).rstrip())
        return EXIT_OK
    told = [{"what": one.what, "command": one.line, "sha256": one.sha256} for one in commands]
    sudoers = sudo_lines(place, place.user or "watcher")
    write_line(msgspec.json.encode({"commands": told, "sudoers": sudoers}).decode())
    return EXIT_OK
