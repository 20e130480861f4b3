"""Steps of playbooks, filled in; one that needs more than is known is left out.

A step nobody can type helps nobody: `ls -lt <run_dir>` of a run without a run directory.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from dflash_watch.readers.lines import printable

NAMES = (
    *("pid", "run_dir", "log", "host", "gpu", "rank", "step", "subject"),
    *("on_host", "ct", "docker", "podman", "kubectl", "machine"),
)
"""All placeholders that a playbook may use in its steps and sections."""
RESUME = "`dflash-train resume --run-dir {run_dir}`"
AS_YOU_DID = "start it as you did"
"""What stands for RESUME when the run is none of this toolkit's."""
IN_THE_INCIDENT = "in the incident"
"""Words of a step that the folder's path takes the place of once it is known."""
HERE = "this machine"
TOLD_BY_THE_RUN = frozenset({"pid", "run_dir", "log", "gpu", "rank", "step", "subject"})
_PLAIN = re.compile(r"[\w@%+=:,./-]*", re.ASCII)
"""One word to any shell, and nothing else."""
_ACTIVE = re.compile(r"[`<]|(?<=\])[(\[:]")
_BLANK = re.compile(r"\{(" + "|".join(NAMES) + r")\}")
_ITEM = re.compile(r"(\d+)\. ")


def place_values(where: str) -> dict[str, str]:
    """Values of the placeholders that depend on the place.

    Args:
        where: `Place.label()`: `10.1.2.6 \u00b7 ct 200`, `this machine`.
    """
    first, *inside = where.split(" \u00b7 ")
    values = {"on_host": ""}
    if first != HERE:
        values |= {"host": first, "on_host": f"on {first}: "}
    elif not inside:
        values["machine"] = first
    for part in inside:
        name, _, what = part.partition(" ")
        if name in NAMES:
            values[name] = what
    return values


def fill(text: str, known: Mapping[str, object]) -> str | None:
    """The text filled in; None when it needs something that is not known."""
    if known.get("run_dir") is None:
        text = text.replace(RESUME, AS_YOU_DID)
    if any(known.get(name) is None for name in _BLANK.findall(text)):
        return None
    return _BLANK.sub(lambda blank: _value(blank.group(1), known[blank.group(1)]), text)


def _value(name: str, value: object) -> str:
    """As it can be typed into a shell: a path of the run may hold anything, a command in it too."""
    text = str(value)
    if name not in TOLD_BY_THE_RUN or _PLAIN.fullmatch(text):
        return text
    # Steps stand in Markdown as well: no code ends, no tag, link or image begins.
    return shlex.quote(_ACTIVE.sub("?", printable(text.replace("\n", " "))))


def fill_next(steps: Sequence[str], **known: object) -> tuple[str, ...]:
    """The steps that can be taken, filled in."""
    return tuple(done for step in steps if (done := fill(step, known)) is not None)


def fill_section(text: str, known: Mapping[str, object]) -> str:
    """A section of a playbook, item by item, numbered anew where items were left out."""
    out: list[str] = []
    number = 0
    for item in _items(text):
        done = fill(item, known)
        if done is None:
            continue
        head = _ITEM.match(done)
        if head is not None:
            number = number + 1 if head.group(1) != "1" else 1
            done = f"{number}. {done[head.end() :]}"
        out.append(done)
    return "\n".join(out).strip()


def mark_blanks(text: str) -> str:
    """For a reader who looks at no run: `{pid}` as `<pid>`."""
    return _BLANK.sub(lambda blank: f"<{blank.group(1)}>", text)


def name_folder(steps: Sequence[str], path: str | None) -> tuple[str, ...]:
    """The steps with the incident's folder by its path, once that is known."""
    if path is None:
        return tuple(steps)
    return tuple(step.replace(IN_THE_INCIDENT, f"in {path}") for step in steps)


def _items(text: str) -> list[str]:
    """List items and paragraphs, each with the lines that belong to it; empty lines alone."""
    items: list[str] = []
    for line in text.split("\n"):
        begins = bool(_ITEM.match(line)) or line.startswith("- ") or not line.strip()
        if begins or not items or not items[-1].strip():
            items.append(line)
        else:
            items[-1] += f"\n{line}"
    return items
