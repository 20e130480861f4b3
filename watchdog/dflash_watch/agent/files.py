"""Everything of a frame that touches ordinary files: run.json, events, beat page, logs, disks.

On local disks this runs inside the agent; as soon as a path lies on a mount that can hang it runs
in a disposable child (child.py), which takes over where the agent stopped.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional, Tuple

from dflash_watch.agent.child import Child
from dflash_watch.agent.logsources import Source
from dflash_watch.agent.mounts import Mounts
from dflash_watch.agent.probes.beats import BeatsReader
from dflash_watch.agent.probes.events import EventReader
from dflash_watch.agent.probes.host import read_disks
from dflash_watch.agent.probes.logs import LogReader
from dflash_watch.agent.rundir import MANIFEST, read_manifest

DEADLINE_S = 4.0
DISKS_EVERY_S = 10.0


class FileReader:
    """The reads themselves; a request says what, an answer has one key a source and `gaps`."""

    def __init__(self, root: str) -> None:
        self._logs = LogReader(root)
        self._events = EventReader()
        self._beats = BeatsReader()
        self._manifest_key: Optional[Tuple[str, int, int, int]] = None
        self._manifest: Dict[str, Any] = {}
        self._disks: Tuple[float, Any, List[Dict[str, Any]]] = (-DISKS_EVERY_S, None, [])

    def read(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """One look.

        Args:
            request: `sources` (as lists), `watched`, `run_dir`, `events`, `disks`, and
                `state` of a predecessor.
        """
        if request.get("state"):
            self._restore(request["state"])
        answer: Dict[str, Any] = {"gaps": []}
        run_dir = request.get("run_dir")
        if run_dir:
            self._read_run_dir(run_dir, request, answer)
        sources = [Source(*source) for source in request.get("sources", ())]
        answer["logs"] = self._logs.read(
            sources, request.get("watched"), time.time(), asked=bool(request.get("asked"))
        )
        answer["disks"] = self._read_disks(
            [(path, what) for path, what in request.get("disks", ())]
        )
        answer["state"] = {"logs": self._logs.state(), "events": self._events.state()}
        return answer

    def _restore(self, state: Dict[str, Any]) -> None:
        self._logs.restore(state.get("logs", {}))
        self._events.restore(state.get("events", {}))

    def _read_run_dir(self, run_dir: str, request: Dict[str, Any], answer: Dict[str, Any]) -> None:
        problem = self._read_manifest(run_dir, answer)
        if problem:
            answer["gaps"].append({"source": "run", "reason": problem})
        events, note = self._events.read(
            request.get("events") or os.path.join(run_dir, "events.jsonl")
        )
        answer["events"] = events
        if note:
            answer["gaps"].append({"source": "events", "reason": note})
        page, problem = self._beats.read(run_dir, self._manifest)
        answer["beats"] = page
        if problem:
            answer["gaps"].append({"source": "beats", "reason": problem})

    def _read_manifest(self, run_dir: str, answer: Dict[str, Any]) -> Optional[str]:
        """Read run.json again when it has been replaced."""
        try:
            there = os.stat(os.path.join(run_dir, MANIFEST))
        except OSError as error:
            return f"run.json of {run_dir}: {error.strerror}"
        key = (run_dir, there.st_ino, there.st_mtime_ns, there.st_size)
        if key == self._manifest_key:
            return None
        manifest, problem = read_manifest(run_dir)
        if manifest is None:
            return problem
        self._manifest_key, self._manifest = key, manifest
        answer["manifest"] = manifest
        return None

    def _read_disks(self, places: List[Tuple[str, str]]) -> List[Dict[str, Any]]:
        now_s = time.monotonic()
        if now_s - self._disks[0] >= DISKS_EVERY_S or self._disks[1] != places:
            self._disks = (now_s, places, read_disks(places))
        return self._disks[2]


class Files:
    """Chooses where the reads run, and keeps what a new child must know."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._mounts = Mounts(root)
        self._reader: Optional[FileReader] = FileReader(root)
        self._state: Dict[str, Any] = {}
        self.child: Optional[Child] = None

    def ask(self, request: Dict[str, Any], now_s: float) -> Optional[Dict[str, Any]]:
        """The answer at once when nothing can hang, else None: `collect` it later."""
        if self._reader is not None and not self._can_hang(request, now_s):
            answer = self._reader.read(request)
            self._state = answer["state"]
            return answer
        if self.child is None:
            self._reader = None
            reader = FileReader(self._root)
            self.child = Child("files on a network mount", reader.read, DEADLINE_S)
        if self.child.is_fresh:
            request = dict(request, state=self._state)
        self.child.ask(request, now_s)
        return None

    def collect(self, now_s: float, wait_s: float) -> Optional[Dict[str, Any]]:
        """An answer of the child, if there is one."""
        answer = self.child.collect(now_s, wait_s) if self.child else None
        if answer is not None and "error" not in answer:
            self._state = answer["state"]
        return answer

    def gap(self, now_s: float) -> Optional[Dict[str, Any]]:
        """Why the files cannot be read now."""
        return self.child.gap(now_s) if self.child else None

    def close(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.close()

    def _can_hang(self, request: Dict[str, Any], now_s: float) -> bool:
        paths = [request.get("run_dir"), request.get("watched"), request.get("events")]
        paths += [Source(*source).path for source in request.get("sources", ())]
        return any(self._mounts.can_hang(path, now_s) for path in paths if path)
