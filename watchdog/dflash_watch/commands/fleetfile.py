"""A fleet as a TOML file: a table a run, keys as the options of the command line are called.

Keys above the first table hold for all runs. Each table is read as a command line, so that a value
means, and is refused, as it is there; paths of this machine are taken from the file's folder.
"""

from __future__ import annotations

import tomllib
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dflash_watch.commands.arguments import Parser, watch_parser
from dflash_watch.commands.request import Request, build_request
from dflash_watch.commands.values import did_you_mean
from dflash_watch.commands.watch import build_hook
from dflash_watch.errors import UsageError
from dflash_watch.hook import Hook
from dflash_watch.private import open_regular

RUNS = "run"
MOST_RUNS, MOST_BYTES = 200, 1 << 20
NOT_HERE = {"--help", "--version", "--demo", "--plain", "--json", "--until-end"}
OF_ONE = ("name", "record", "pid")
"""What cannot be the same for several runs."""
PATHS, LOCAL_PATHS = ("incidents", "record", "ssh-config"), ("run-dir", "log")
ELSEWHERE = ("host", "ct", "docker", "podman", "kubectl", "exec")


class Member(NamedTuple):
    """One run of the file."""

    name: str
    given: Namespace
    request: Request
    hook: Hook | None


def read_fleet(path: Path, environment: Mapping[str, str]) -> list[Member]:
    """The runs of a fleet file, in its order.

    Raises:
        UsageError: it cannot be read, or an entry is wrong: one line with file, entry and key.
    """
    told = _read(path)
    runs = told.pop(RUNS, None)
    if not isinstance(runs, list) or not runs or not all(isinstance(one, dict) for one in runs):
        raise UsageError(f"{path}: no runs", hint=f"write a table [[{RUNS}]] for each of them")
    if len(runs) > MOST_RUNS:
        raise UsageError(f"{path}: {len(runs)} runs", hint=f"at most {MOST_RUNS} in one process")
    for key in OF_ONE:
        if key in told:
            raise UsageError(f"{path}: {key}: not for all runs", hint=f"write it below [[{RUNS}]]")
    members: list[Member] = []
    for number, table in enumerate(runs, 1):
        name = table.get("name")
        label = f"{path}: run {number}" + (f" '{name}'" if isinstance(name, str) else "")
        try:
            member = _member(path, {**told, **table}, environment)
        except UsageError as error:
            message = error.message.replace("argument --", "").replace("--", "")
            raise UsageError(f"{label}: {message}", hint=error.hint) from error
        _refuse_twice(label, member, members)
        members.append(member)
    return members


def _read(path: Path) -> dict[str, Any]:
    try:
        with open_regular(path) as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="name a fleet file") from error
    if len(text) > MOST_BYTES:
        raise UsageError(f"{path}: larger than {MOST_BYTES >> 10} KiB", hint="is it a fleet file?")
    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: no TOML: {error}") from error


def _member(path: Path, table: Mapping[str, Any], environment: Mapping[str, str]) -> Member:
    parser = watch_parser()
    flags = {action.option_strings[0] for action in parser._actions if action.nargs == 0}  # noqa: SLF001 - ours
    known = [one for one in parser.options() if one not in NOT_HERE]
    words = [
        word
        for key, value in table.items()
        for word in _words(key, _placed(path, key, value, table), known, flags)
    ]
    given = _parse(parser, words)
    request = build_request(given)
    hook = build_hook(given, environment)
    return Member(given.name or request.place.label(), given, request, hook)


def _parse(parser: Parser, words: list[str]) -> Namespace:
    given = parser.parse(words)
    return Namespace(**{**vars(given), "until_end": False})


def _words(key: str, value: object, known: list[str], flags: set[str]) -> list[str]:
    option = f"--{key}"
    if option not in known:
        hint = did_you_mean(option, known)
        raise UsageError(f"{key}: no such key", hint=hint and hint.replace("--", "", 1))
    if option in flags:
        if not isinstance(value, bool):
            raise UsageError(f"{key}: {value!r}, expected true or false")
        return [option] if value else []
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{key}: {value!r}, expected a text or a number")
    return [f"{option}={value}"]


def _placed(path: Path, key: str, value: object, table: Mapping[str, Any]) -> object:
    """Paths of this machine as seen from the file."""
    is_here = not any(one in table for one in ELSEWHERE)
    if not isinstance(value, str) or not (key in PATHS or (key in LOCAL_PATHS and is_here)):
        return value
    return str(path.absolute().parent / Path(value).expanduser())


def _refuse_twice(label: str, member: Member, before: list[Member]) -> None:
    for other in before:
        if other.name == member.name:
            raise UsageError(f"{label}: name: '{member.name}' is taken", hint="give each its name")
        if (other.request.place, other.request.target) == (
            member.request.place, member.request.target,
        ):  # fmt: skip
            raise UsageError(f"{label}: the same run as '{other.name}'", hint="leave one out")
        if member.given.record is not None and other.given.record == member.given.record:
            raise UsageError(f"{label}: record: the file of '{other.name}'", hint="name another")
