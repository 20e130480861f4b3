"""Values of the command line: text in, plain values out, one clear line for what is wrong.

Pure; imports no msgspec, so that `--help` stays fast.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterable

from dflash_watch.errors import UsageError

ROLES = ("target", "drafter", "loader", "other")
_HOST = re.compile(r"[A-Za-z0-9_.:%-]+")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MULTIPLES = {"": 1.0, "k": 1e3, "m": 1e6}


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """`did you mean X?` for the nearest known word, or None."""
    bare = {one.lstrip("-"): one for one in known}  # dashes alone make nothing alike
    near = difflib.get_close_matches(word.lstrip("-"), list(bare), n=1, cutoff=0.65)
    return f"did you mean {bare[near[0]]}?" if near else None


def parse_host(text: str) -> tuple[str | None, str, int | None]:
    """User, host and port of `USER@HOST:PORT`, `[IPV6]:PORT` or a bare IPv6 address.

    Raises:
        UsageError: no host, a port out of range, or characters no host name has.
    """
    user, at, rest = text.rpartition("@")
    if at and (not user or user.startswith("-")):
        raise UsageError(f"--host: no user before @ in '{text}'", hint="write USER@HOST or HOST")
    host, port = _split_port(rest, text)
    if not host or host.startswith("-") or not _HOST.fullmatch(host):
        raise UsageError(
            f"--host: '{text}' is not a host",
            hint="write HOST, USER@HOST, HOST:PORT or [IPV6]:PORT",
        )
    return user or None, host, port


def _split_port(rest: str, text: str) -> tuple[str, int | None]:
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", rest)
    if bracketed:
        return bracketed[1], None if bracketed[2] is None else _port(bracketed[2], text)
    if rest.count(":") == 1:
        host, _, port = rest.partition(":")
        return host, _port(port, text)
    return rest, None


def _port(port: str, text: str) -> int:
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise UsageError(
            f"--host: port '{port}' in '{text}', expected a number from 1 to 65535",
            hint="an IPv6 address with a port needs brackets: [::1]:22",
        )
    return int(port)


def parse_roles(text: str) -> dict[str, tuple[int, ...]]:
    """Role -> GPU indices of `target=0-4,drafter=5-7` (also `target=0,2,drafter=1`).

    Raises:
        UsageError: an unknown role, a bad range, or a GPU that has two roles.
    """
    roles: dict[str, list[int]] = {}
    role = None
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, span = part.rpartition("=")
        role = _role(name, text) if equals else role
        if role is None:
            raise UsageError(
                f"--roles: '{part}' has no role", hint="write --roles target=0-4,drafter=5-7"
            )
        roles.setdefault(role, []).extend(_span(span, text))
    indices = [index for owned in roles.values() for index in owned]
    twice = sorted({index for index in indices if indices.count(index) > 1})
    if twice:
        raise UsageError(f"--roles: GPU {twice[0]} is named twice", hint="one role a GPU")
    if not roles:
        raise UsageError("--roles: nothing given", hint="write --roles target=0-4,drafter=5-7")
    return {name: tuple(sorted(owned)) for name, owned in roles.items()}


def _role(name: str, text: str) -> str:
    if name not in ROLES:
        hint = did_you_mean(name, ROLES) or f"expected one of {', '.join(ROLES)}"
        raise UsageError(f"--roles: unknown role '{name}' in '{text}'", hint=hint)
    return name


def _span(span: str, text: str) -> range:
    found = re.fullmatch(r"\s*(\d{1,3})(?:\s*-\s*(\d{1,3}))?\s*", span, re.ASCII)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if last < first:
        raise UsageError(
            f"--roles: '{span}' in '{text}' is not a GPU index or a rising range",
            hint="write 5 or 5-7",
        )
    return range(first, last + 1)


def parse_number(option: str, text: str, low: float, high: float) -> float:
    """A number within [low, high].

    Raises:
        UsageError: not a number, or out of range.
    """
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{option}: '{text}' is not a number") from None
    if not low <= value <= high:
        raise UsageError(f"{option}: {text} is out of range, expected {low:g} to {high:g}")
    return value


def parse_rate(text: str) -> float:
    """Tokens a second: `14200`, `14.2k`, `14.2K`.

    Raises:
        UsageError: not a number above zero.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmM]?)", text.strip(), re.ASCII)
    value = float(found[1]) * _MULTIPLES[found[2].lower()] if found else 0.0
    if value <= 0:
        raise UsageError(
            f"--expect-tokens-per-s: '{text}' is not a rate above zero", hint="write 14200 or 14.2k"
        )
    return value


def parse_pid(text: str) -> int:
    """A process id.

    Raises:
        UsageError: not a whole number above zero.
    """
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(
            f"--pid: '{text}' is not a process id",
            hint="write the number that ps prints inside the container, or --match REGEX",
        )
    return int(text)


def parse_pattern(text: str) -> str:
    """A regular expression that compiles.

    Raises:
        UsageError: it does not, and where.
    """
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"--match: '{text}' is not a regular expression: {error}") from error
    if not text:
        raise UsageError("--match: empty, that is every process", hint="write part of the command")
    return text


def parse_entry(option: str, text: str) -> str:
    """The name or number of a container; for kubectl `NAMESPACE/POD` too.

    Raises:
        UsageError: a character that no container name has.
    """
    parts = text.split("/") if option == "--kubectl" else [text]
    if not all(_NAME.fullmatch(part) for part in parts):
        raise UsageError(f"{option}: '{text}' is not the name of a container")
    if option == "--ct" and not (text.isascii() and text.isdigit()):
        raise UsageError(
            f"--ct: '{text}' is not the number of a container",
            hint=f"see `pct list`; one with a name: --exec 'lxc-attach -n {text} --'",
        )
    if len(parts) > 3:
        raise UsageError(f"{option}: '{text}'", hint="write [NAMESPACE/]POD[/CONTAINER]")
    return text


def parse_ssh_config(path: str | None) -> str | None:
    """A file that is there to be read; `none` is none, as for `ssh -F`.

    Raises:
        UsageError: it cannot be read, and why.
    """
    if path is not None and path != "none":
        try:
            with open(os.path.expanduser(path), "rb"):  # noqa: PTH111, PTH123 - pathlib loads slowly
                pass
        except OSError as error:
            raise UsageError(
                f"--ssh-config: {path}: {error.strerror}", hint="check the path"
            ) from None
    return path


def parse_command(option: str, text: str) -> tuple[str, ...]:
    """An argument list, split as a POSIX shell splits words; nothing is expanded.

    Raises:
        UsageError: an open quote, or no word at all.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{option}: '{text}': {str(error).lower()}") from error
    if not words:
        raise UsageError(f"{option}: empty, expected a command")
    return words
