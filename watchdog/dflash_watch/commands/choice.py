"""Which place and which run a command line means; loads nothing that takes time."""

from __future__ import annotations

import os
from argparse import Namespace

from dflash_watch.commands.values import (
    parse_command,
    parse_entry,
    parse_host,
    parse_pattern,
    parse_pid,
    parse_ssh_config,
)
from dflash_watch.place import Place, TargetChoice

_ENTRIES = {"ct": "pct", "docker": "docker", "podman": "podman", "kubectl": "kubectl"}


def build_place(given: Namespace) -> Place:
    """The way to the run; this machine when nothing was said."""
    user, host, port = (None, None, None) if given.host is None else parse_host(given.host)
    entry, entry_arg = None, None
    for option, name in _ENTRIES.items():
        if (value := getattr(given, option)) is not None:
            entry, entry_arg = name, parse_entry(f"--{option}", value)
    return Place(
        host=host,
        user=user,
        port=port,
        entry=entry,
        entry_arg=entry_arg,
        exec_prefix=() if given.exec is None else parse_command("--exec", given.exec),
        ssh_config=parse_ssh_config(given.ssh_config),
        accept_new_host_keys=given.accept_new_host_key,
    )


def build_target(given: Namespace) -> TargetChoice:
    """Which run was asked for; paths on this machine are made absolute."""
    is_here = given.host is None and given.exec is None and not _entry_given(given)
    return TargetChoice(
        run_dir=_absolute(given.run_dir) if is_here else given.run_dir,
        pid=None if given.pid is None else parse_pid(given.pid),
        match=None if given.match is None else parse_pattern(given.match),
        log=_absolute(given.log) if is_here else given.log,
        tmux=given.tmux,
    )


def _entry_given(given: Namespace) -> bool:
    return any(getattr(given, option) is not None for option in _ENTRIES)


def _absolute(path: str | None) -> str | None:
    # os.path: pathlib takes 4 ms to load, before the connection is even started.
    return None if path is None else os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111
