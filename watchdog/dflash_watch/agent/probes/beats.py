"""The beat page, read from shared memory (dflash_events does the reading)."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Tuple

from dflash_events import RunDirError
from dflash_events.beat_reader import BeatReader
from dflash_events.identity import identity_from


def page_path(run_dir: str, manifest: Dict[str, Any]) -> str:
    """Where the page is: in shared memory while the run lives, beside run.json afterwards.

    Raises:
        RunDirError: the run has none; says why.
    """
    named, kept = manifest.get("beats_path"), os.path.join(run_dir, "beats")
    for path in (named, kept):
        if isinstance(path, str) and os.path.lexists(path):
            return path
    note = manifest.get("beats_note") or "no page at %s" % (named or kept)
    raise RunDirError(f"beat page: {note}")


class BeatsReader:
    """Keeps the page of the current run open."""

    def __init__(self) -> None:
        self._key: Any = None
        self._reader: Optional[BeatReader] = None

    def read(
        self, run_dir: str, manifest: Dict[str, Any]
    ) -> Tuple[Optional[Dict[str, Any]], Optional[str]]:
        """`frame.BeatPage` of this moment, or None and why."""
        try:
            path = page_path(run_dir, manifest)
            key = (str(path), repr(manifest.get("process")))
            if self._reader is None or key != self._key or not self._reader.is_current():
                self.close()
                expected = identity_from(manifest.get("process"))
                self._reader, self._key = BeatReader(path, expect=expected), key
            return _rounded(self._reader.read()), None
        except RunDirError as error:
            self.close()
            return None, str(error)

    def close(self) -> None:
        """Let go of the page."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None


def _rounded(page: Dict[str, Any]) -> Dict[str, Any]:
    """Ages to the millisecond: more digits are noise and cost bytes on the wire."""
    for worker in page.get("workers", ()):
        for key in ("progress_age_s", "wait_age_s"):
            if isinstance(worker.get(key), float):
                worker[key] = round(worker[key], 3)
    ticker = page.get("ticker")
    if isinstance(ticker, dict):
        for key, value in ticker.items():
            ticker[key] = round(value, 4) if isinstance(value, float) else value
    return {key: value for key, value in page.items() if value is not None}
