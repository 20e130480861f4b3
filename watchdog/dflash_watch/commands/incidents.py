"""`dflash-watch incidents`: what was kept, and one of it to read."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dflash_watch.commands.context import Context, incidents_dir, write_line
from dflash_watch.commands.values import did_you_mean
from dflash_watch.errors import EXIT_OK, UsageError
from dflash_watch.journal import NAME, read_journal
from dflash_watch.readers.lines import escaped
from dflash_watch.units import moment

JOURNAL_COLUMNS = ("t", "host", "run", "action", "outcome", "watcher_pid")
JOURNAL_STAMP = "%Y-%m-%d %H:%M:%S"
VALUE_LIMIT, HASH_LIMIT = 120, 15
"""Characters shown of one value; `--json` has all of it."""


def run(given: Namespace, _context: Context) -> int:
    """List the incidents, newest first, or print the report of one.

    Raises:
        UsageError: no incident of that name, or what was named is no folder.
    """
    folder = incidents_dir(given.incidents)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--incidents: {folder} is no folder", hint="check the path")
    if given.incidents is not None and not folder.exists():
        raise UsageError(f"--incidents: {folder} is not there", hint="check the path")
    if given.journal:
        if given.show is not None:
            raise UsageError("--journal: there is one for all incidents", hint="leave out SHOW")
        show_journal(folder / NAME, as_json=given.json)
        return EXIT_OK
    kept = find_incidents(folder)
    if given.show is not None:
        show(choose(kept, given.show, folder), as_json=given.json)
        return EXIT_OK
    if not kept and not given.json:
        write_line(f"no incidents in {folder}")
    for path in kept:
        told = read_verdict(path)
        write_line(json.dumps({"path": str(path), **told}) if given.json else row(path, told))
    return EXIT_OK


def show_journal(path: Path, *, as_json: bool) -> None:
    """What was done, oldest first; nothing when nothing was.

    Raises:
        UsageError: it cannot be read.
    """
    count = 0
    for entry in journal_of(path):
        write_line(escaped(json.dumps(entry)) if as_json else journal_row(entry))
        count += 1
    if not count and not as_json:
        write_line(f"nothing noted in {path}")


def journal_of(path: Path) -> Iterator[dict[str, Any]]:
    """Its entries.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        yield from read_journal(path)
    except OSError as error:
        hint = "is it yours, and a file?"
        raise UsageError(f"{path}: {error.strerror}", hint=hint) from error


def journal_row(entry: Mapping[str, Any]) -> str:
    """One line of the journal for people."""
    where = " ".join(dict.fromkeys(str(entry[key]) for key in ("host", "run") if key in entry))
    told = " ".join(
        f"{key}={_short(value, HASH_LIMIT if key == 'sha256' else VALUE_LIMIT)}"
        for key, value in entry.items()
        if key not in JOURNAL_COLUMNS
    )
    when = moment(entry.get("t"), JOURNAL_STAMP)
    line = f"{when}  {where:<20} {entry.get('action')}: {entry.get('outcome')}  {told}"
    return line.rstrip()


def _short(value: object, limit: int) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def find_incidents(folder: Path) -> list[Path]:
    """Whole incident folders, newest first; names begin with the moment."""
    if not folder.is_dir():
        return []
    whole = (path for path in folder.iterdir() if (path / "verdict.json").is_file())
    return sorted((path for path in whole if not path.name.startswith(".")), reverse=True)


def choose(kept: list[Path], word: str, folder: Path) -> Path:
    """The incident meant: a path, `last`, a name, or the only one with that part in its name.

    Raises:
        UsageError: none, or more than one.
    """
    if (Path(word) / "verdict.json").is_file():
        return Path(word)
    if not kept:
        raise UsageError(f"no incidents in {folder}", hint="name the folder with --incidents DIR")
    if word == "last":
        return kept[0]
    meant = [path for path in kept if path.name == word] or [
        path for path in kept if word in path.name
    ]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UsageError(f"'{word}' fits {len(meant)} incidents", hint=f"newest: {meant[0].name}")
    hint = did_you_mean(word, [path.name for path in kept]) or f"newest: {kept[0].name}"
    raise UsageError(f"no incident '{word}' in {folder}", hint=hint)


def read_verdict(path: Path) -> dict[str, Any]:
    """verdict.json, empty when it cannot be read."""
    try:
        told = json.loads((path / "verdict.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def row(path: Path, told: dict[str, Any]) -> str:
    """One line of the list."""
    moment, _, name = path.name.partition("-")
    verdict, subject = str(told.get("verdict") or "unreadable"), str(told.get("subject") or "")
    run_name = str(told.get("run") or "")
    return f"{moment}  {verdict:<9} {name:<28} {subject:<14} {run_name}".rstrip()


def show(path: Path, *, as_json: bool) -> None:
    """The report, or the verdict as JSON."""
    name = "verdict.json" if as_json else "report.md"
    try:
        text = (path / name).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path / name}: {error.strerror}") from error
    write_line(as_line(path / name, text) if as_json else text.rstrip())
    if not as_json:
        others = sorted(
            one.name for one in path.iterdir() if one.name != name and one.name[0] != "."
        )
        write_line(f"\nbeside it in {path}: {', '.join(others)}")


def as_line(path: Path, text: str) -> str:
    """JSON on one line.

    Raises:
        UsageError: it is none.
    """
    try:
        return json.dumps(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: damaged: {error}") from error
