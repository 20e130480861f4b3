"""From a parsed command line to the records everything else takes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from dflash_watch.commands.values import (
    parse_command,
    parse_entry,
    parse_host,
    parse_number,
    parse_pattern,
    parse_pid,
    parse_rate,
    parse_roles,
)
from dflash_watch.model import Record, RunOptions
from dflash_watch.place import Place, TargetChoice

_ENTRIES = {"ct": "pct", "docker": "docker", "podman": "podman", "kubectl": "kubectl"}


class Request(Record, frozen=True, kw_only=True):
    """Where to look, at which run, and what the person said about it."""

    place: Place
    target: TargetChoice
    options: RunOptions
    every_s: float = 1.0


def build_request(given: Namespace) -> Request:
    """The request a command line means.

    Raises:
        UsageError: a value is wrong; says which, what was expected, and what to write.
    """
    place = build_place(given)
    target = build_target(given)
    options = RunOptions(
        name=given.name,
        roles=parse_roles(given.roles) if given.roles is not None else {},
        expect_tokens_per_s=(
            parse_rate(given.expect_tokens_per_s) if given.expect_tokens_per_s is not None else None
        ),
        watched_log=target.log,
        where=place.label(),
    )
    every_s = parse_number("--every-s", getattr(given, "every_s", "1"), 0.2, 60.0)
    return Request(place=place, target=target, options=options, every_s=every_s)


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
        ssh_config=given.ssh_config,
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
    return None if path is None else str(Path(path).expanduser().absolute())
