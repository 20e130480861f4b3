"""Everything a reader needs, by the run directory's path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dflash_events.beat_reader import BeatReader
from dflash_events.events import EventTail, TailRead
from dflash_events.identity import Identity, identity_from, is_alive, read_identity
from dflash_events.manifest import Manifest, read_manifest
from dflash_events.schema import BEATS_NAME, EVENTS_NAME, RunDirError

__all__ = [
    "BeatReader",
    "EventTail",
    "Identity",
    "Manifest",
    "RunDirError",
    "TailRead",
    "beats_path",
    "events_path",
    "identity_from",
    "is_alive",
    "open_beats",
    "read_identity",
    "read_manifest",
]


def events_path(run_dir: str | Path, manifest: dict[str, Any]) -> Path:
    """Where the events are: as the manifest says, else beside it."""
    named = manifest.get("events_path")
    beside = Path(run_dir) / EVENTS_NAME
    return Path(named) if isinstance(named, str) and _is_there(Path(named)) else beside


def beats_path(run_dir: str | Path, manifest: dict[str, Any]) -> Path:
    """Where the beat page is: in shared memory while the run lives, beside run.json afterwards.

    Raises:
        RunDirError: the run has none that can be read; says why.
    """
    named, kept = manifest.get("beats_path"), Path(run_dir) / BEATS_NAME
    if isinstance(named, str) and _is_there(Path(named)):
        return Path(named)
    if _is_there(kept):
        return kept
    note = manifest.get("beats_note")
    raise RunDirError(f"beat page: {note or f'{named or kept} is not there'}")


def open_beats(run_dir: str | Path, manifest: dict[str, Any]) -> BeatReader:
    """The run's beat page, checked against the manifest's identity.

    Raises:
        RunDirError: none there, or none that can be read.
    """
    expect = identity_from(manifest.get("process"))
    path, kept = beats_path(run_dir, manifest), Path(run_dir) / BEATS_NAME
    try:
        return BeatReader(path, expect=expect)
    except RunDirError:
        # The name of an anonymous page may mean another file once the run is over.
        if path == kept or not _is_there(kept):
            raise
        return BeatReader(kept, expect=expect)


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError:
        return True  # there, but refused: opening it will say why
    return True
