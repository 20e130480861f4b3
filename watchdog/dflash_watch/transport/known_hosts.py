"""Which host keys are known, revoked or new; pure, but for reading and appending the files."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import paramiko


class Judgement(StrEnum):
    """What the files say about a key."""

    KNOWN = "known"
    NEW = "new"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """One usable line."""

    patterns: str
    """Comma separated, or `|1|salt|hash`."""
    key_type: str
    blob: bytes
    marker: str = ""
    """`@revoked`, `@cert-authority`, or empty."""
    where: str = ""
    """`file:line`."""


_MARKERS = ("", "@revoked", "@cert-authority")


def parse_known_hosts(text: str, path: str = "known_hosts") -> tuple[KnownKey, ...]:
    """Every line that can be used; a bad line costs only itself."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or marker not in _MARKERS:
            continue
        try:
            blob = base64.b64decode(words[2], validate=True)
        except ValueError:
            continue
        found.append(
            KnownKey(
                patterns=words[0], key_type=words[1], blob=blob, marker=marker,
                where=f"{path}:{number}",
            )
        )  # fmt: skip
    return tuple(found)


def read_known_hosts(paths: Iterable[str]) -> tuple[KnownKey, ...]:
    """All lines of all files that exist."""
    files = [(path, Path(path)) for path in paths]
    return tuple(
        key
        for path, file in files
        if file.is_file()
        for key in parse_known_hosts(file.read_text(errors="replace"), path)
    )


def names_of(hostname: str, port: int, alias: str | None) -> tuple[str, ...]:
    """Names a line may use: the alias alone, else `[host]:port` before the plain name."""
    if alias:
        return (alias.lower(),)
    name = hostname.lower()
    return (name,) if port == 22 else (f"[{name}]:{port}", name)


def lines_for(known: Iterable[KnownKey], names: tuple[str, ...]) -> tuple[KnownKey, ...]:
    """Lines that speak of the first of `names` that any line speaks of."""
    keys = tuple(known)
    for name in names:
        found = tuple(key for key in keys if not key.marker and matches(key.patterns, name))
        if found:
            return found
    return ()


def judge(
    known: Iterable[KnownKey], names: tuple[str, ...], key_type: str, blob: bytes
) -> Judgement:
    """Where a key that a server showed stands."""
    keys = tuple(known)
    if is_revoked(keys, names, blob):
        return Judgement.REVOKED
    found = lines_for(keys, names)
    if any(key.blob == blob and key.key_type == key_type for key in found):
        return Judgement.KNOWN
    # A plain name was written without thinking of another port: it may confirm, never accuse.
    return Judgement.CHANGED if lines_for(keys, names[:1]) else Judgement.NEW


def is_revoked(known: Iterable[KnownKey], names: tuple[str, ...], blob: bytes) -> bool:
    """Whether a line takes this key, of a host or of an authority, back."""
    lines = [key for key in known if key.marker == "@revoked" and key.blob == blob]
    return any(matches(key.patterns, name) for key in lines for name in names)


def authorities_for(known: Iterable[KnownKey], names: tuple[str, ...]) -> tuple[KnownKey, ...]:
    """Lines of authorities that may certify a host of these names."""
    lines = [key for key in known if key.marker == "@cert-authority"]
    return tuple(key for key in lines if any(matches(key.patterns, name) for name in names))


def fingerprint(blob: bytes) -> str:
    """`SHA256:...` as OpenSSH prints it."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode()
    return "SHA256:" + digest.rstrip("=")


def append_known_host(path: str, name: str, key: paramiko.PKey) -> None:
    """Remember a new key, as OpenSSH does."""
    file = Path(path)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    torn = file.is_file() and not file.read_bytes().endswith((b"\n",)) and file.stat().st_size
    with file.open("a", encoding="utf-8") as handle:
        handle.write(f"{chr(10) if torn else ''}{name} {key.get_name()} {key.get_base64()}\n")


def matches(patterns: str, name: str) -> bool:
    """Whether a comma separated list, or a hash, speaks of a name."""
    if patterns.startswith("|1|"):
        return bool(paramiko.HostKeys.hash_host(name, patterns) == patterns)
    hit = False
    for pattern in patterns.lower().split(","):
        if fnmatch.fnmatchcase(name, _escaped(pattern.lstrip("!"))):
            if pattern.startswith("!"):
                return False
            hit = True
    return hit


def _escaped(pattern: str) -> str:
    """OpenSSH knows `*` and `?` only; brackets are literal."""
    return pattern.replace("[", "[[]")
