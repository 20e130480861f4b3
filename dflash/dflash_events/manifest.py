"""run.json: written whole or not at all, read with errors a person can act on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterable, NamedTuple, Sequence

from dflash_events.events import plain
from dflash_events.identity import identity_from
from dflash_events.schema import MANIFEST_NAME, SCHEMA, RunDirError
from dflash_events.secrets import mask_arguments

_MAX_BYTES = 16 * 1024 * 1024


class Manifest(NamedTuple):
    """What stands in run.json."""

    data: dict[str, Any]
    notes: list[str]
    """What a person should know: a newer schema, keys that are missing."""


def process_facts(command: Sequence[str] | None) -> dict[str, object]:
    """What can be said of any process: host, directory, masked command, start."""
    try:
        cwd: str | None = os.getcwd()  # noqa: PTH109 - a plain text
    except OSError:
        cwd = None
    return {
        "host": socket.gethostname(),
        "cwd": cwd,
        "command": mask_arguments(_own_command() if command is None else command),
        "started_t": time.time(),
    }


def _own_command() -> list[str]:
    try:
        raw = Path("/proc/self/cmdline").read_bytes()
    except OSError:
        return [sys.executable or "python", *sys.argv]
    return [part.decode("utf-8", "replace") for part in raw.rstrip(b"\x00").split(b"\x00")]


def size_of(path: Path) -> int:
    """Bytes in a file now; 0 when it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def write_manifest(run_dir: Path, data: dict[str, object]) -> None:
    """Put run.json in place in one step: a reader sees the old one or the new one.

    Raises:
        OSError: the directory is gone, full, or not ours.
    """
    text = json.dumps(plain(data), indent=1, allow_nan=False)
    part = run_dir / f".{MANIFEST_NAME}.{os.getpid()}.{threading.get_ident()}"
    try:
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(run_dir / MANIFEST_NAME)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def read_manifest(run_dir: str | Path) -> Manifest:
    """The manifest of a run directory (or of a path to run.json itself).

    Raises:
        RunDirError: none there, unreadable, not JSON, or without a process identity.
    """
    path = Path(run_dir)
    if path.name != MANIFEST_NAME:
        path = path / MANIFEST_NAME
    data = _load(path)
    notes = []
    schema = data.get("schema")
    if not isinstance(schema, int):
        raise RunDirError(f"{path}: schema is {schema!r}, expected a number; not a run's manifest")
    if schema > SCHEMA:
        notes.append(
            f"{path.name} has schema {schema}; this reader knows {SCHEMA} and takes what it knows"
        )
    try:
        identity_from(data.get("process"))
    except RunDirError as error:
        raise RunDirError(f"{path}: {error.message}") from error
    if not isinstance(data.get("workers", []), list):
        data["workers"] = []
        notes.append(f"{path.name}: workers is no list; left out")
    return Manifest(data, notes)


def _load(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise RunDirError(
            f"{path}: not there",
            hint="give the directory that holds run.json, or --pid or --log for other runs",
        ) from error
    except OSError as error:
        raise RunDirError(f"{path}: {error.strerror or error}") from error
    if len(raw) > _MAX_BYTES:
        raise RunDirError(f"{path}: larger than {_MAX_BYTES} bytes; not a run's manifest")
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RunDirError(f"{path}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise RunDirError(f"{path}: got {type(data).__name__}, expected an object")
    return data


def source_hashes(paths: Iterable[str | Path]) -> dict[str, str]:
    """File -> sha256, for the manifest's `sources`; files that cannot be read are left out.

    Call it right after the imports, while the files are still what was loaded.
    """
    hashes = {}
    for path in paths:
        try:
            hashes[str(path)] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        except OSError:
            continue
    return hashes
