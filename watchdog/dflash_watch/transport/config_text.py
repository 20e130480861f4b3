"""ssh_config for paramiko's parser: Include expanded, Match blocks it would misread off."""

from __future__ import annotations

import glob
import os
import shlex
from pathlib import Path

_MAX_DEPTH = 16
_FOLDER = "~/.ssh"
_KNOWN_CRITERIA = frozenset(
    {"all", "canonical", "final", "host", "originalhost", "user", "localuser", "exec"}
)
_NEVER = "Match originalhost never.invalid"


def expanded_config(path: Path, depth: int = 0) -> str:
    """Text of a file and of all that it includes; empty where there is no file.

    After an Include the block that it stood in is opened again, so that it ends no outer block.
    """
    if depth > _MAX_DEPTH or not path.is_file():
        return ""
    lines: list[str] = []
    block = "Host *"
    for line in path.read_text(errors="replace").splitlines():
        keyword, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if keyword.lower() == "include":
            lines += [expanded_config(found, depth + 1) for found in _included(value)]
            lines.append(block)
            continue
        if keyword.lower() in ("host", "match"):
            block = _NEVER if keyword.lower() == "match" and _misread(value) else line
            lines.append(block)
        elif keyword and (value.strip() or keyword.startswith("#")):
            lines.append(line)
    return "".join(f"{line}\n" for line in [*lines, "Host *"])


def _words(text: str) -> list[str]:
    """As ssh splits them; a quote without an end reaches to the end of the line."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.replace('"', " ").replace("'", " ").split()


def _included(value: str) -> list[Path]:
    found: list[Path] = []
    for word in _words(value):
        if "\0" not in word:
            # Not pathlib: it refuses patterns and homes that ssh takes for names of no file.
            pattern = os.path.join(os.path.expanduser(_FOLDER), os.path.expanduser(word))  # noqa: PTH111, PTH118
            found += sorted(map(Path, glob.glob(pattern)))  # noqa: PTH207
    return found


def _misread(criteria: str) -> bool:
    """A criterion that paramiko does not know counts as true with it."""
    words = _words(criteria)
    names = []
    while words:
        name = words.pop(0).lstrip("!").lower()
        names.append(name.partition("=")[0])
        if name not in ("all", "canonical", "final") and "=" not in name and words:
            words.pop(0)
    return not set(names) <= _KNOWN_CRITERIA
