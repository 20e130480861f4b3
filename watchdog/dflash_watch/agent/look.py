"""One look at everything: asks slow sources, reads `/proc` meanwhile, collects, makes a frame."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Callable, Dict, List, Optional

from dflash_watch.agent import proc
from dflash_watch.agent.cost import CostMeter
from dflash_watch.agent.files import Files
from dflash_watch.agent.logsources import SourceFinder, is_unbuffered
from dflash_watch.agent.means import Means, declared_in
from dflash_watch.agent.memory import READS
from dflash_watch.agent.probes.code import CodeSource
from dflash_watch.agent.probes.host import HostSource
from dflash_watch.agent.probes.kernel import KernelReader
from dflash_watch.agent.probes.panes import PaneSource
from dflash_watch.agent.probes.processes import ProcessReader
from dflash_watch.agent.probes.threads import HELD_THREADS, ThreadReader, run_delay_s
from dflash_watch.agent.run import RunView
from dflash_watch.agent.writers import refusal

MANY_THREADS_EVERY_S = 5.0
THREADS_SHARE = 0.015
"""Of one core, for threads that are many: what takes longer is done more rarely."""
MANY_SWITCHES_EVERY_S = 5.0
FEW_THREADS = 128
"""Up to so many threads the dearest file of each is read in every frame too."""
COLLECT_WAIT_S = 0.05
MAX_PROCESSES = 256
TICKER = "dflash-ticker"
"""Kernel name of the thread that only ticks (docs/run-directory.md, "beats")."""
ROOM_WANTED = (("/dev/shm", "shm"), ("/tmp", "tmp"))  # noqa: S108 - their free room, nothing in them


class Look:
    """The probes of one agent and what they remember between frames.

    Args:
        root: `/proc`.
        target: which run (docs/frames.md).
        gpus: the GPU source, or None where none is wanted.
    """

    def __init__(self, root: str, target: Dict[str, Any], gpus: Optional[Any] = None) -> None:
        self._root, self._target = root, target
        self.run = RunView(root, target, os.getpid())
        self.processes = ProcessReader(root)
        self._threads = ThreadReader(root)
        self._sources = SourceFinder(root)
        self._files = Files(root)
        self._panes = PaneSource()
        self._host = HostSource(root)
        self._kernel = KernelReader()
        self._code = CodeSource(root)
        self._gpus = gpus
        self._seq = 0
        self._threads_read_s = self._switches_read_s = float("-inf")
        self._num_threads, self._threads_every_s = 0, MANY_THREADS_EVERY_S
        self._threads_note: Optional[str] = None
        self._cost = CostMeter(time.monotonic())
        self._unbuffered: Dict[int, Optional[bool]] = {}
        self.ops: Dict[str, Callable[[Dict[str, Any]], Optional[str]]] = {}
        """Requests beyond those that every agent answers."""

    def frame(self, left_out: int = 0) -> Dict[str, Any]:
        """The record of this moment.

        Args:
            left_out: looks that were not taken because the reader was slow.
        """
        started_s = time.monotonic()
        now_s, gaps = proc.boot_s(), []  # type: float, List[Dict[str, Any]]
        frame: Dict[str, Any] = {"type": "frame", "seq": self._seq, "t": round(time.time(), 3)}
        frame["boot_s"] = round(now_s, 3)
        run = self._guard(gaps, "run", lambda: self.run.update(now_s))
        self._seq += 1
        pids = self.run.pids[:MAX_PROCESSES]
        if self._gpus is not None and self._seq > 1:
            self._gpus.ask(pids, now_s)
        files = self._guard(gaps, "log", lambda: self._files.ask(self._file_request(now_s), now_s))
        self._guard(gaps, "host", lambda: self._host.ask(self.run.root_pid, now_s))
        samples = self._guard(gaps, "process", lambda: self._read_processes(pids, now_s, gaps))
        if samples is not None and self.run.root_pid is not None:
            frame["processes"] = samples
        threads = self._guard(gaps, "threads", lambda: self._read_threads(pids, now_s, gaps))
        if threads is not None:
            frame["threads"] = threads
            if self._threads.left_out:
                frame["threads_left_out"] = self._threads.left_out
        self._guard(gaps, "process", lambda: self._add_code(frame, pids, now_s))
        self._guard(gaps, "kernel", lambda: self._add_kernel(frame, gaps, now_s))
        if files is None:
            files = self._files.collect(now_s, COLLECT_WAIT_S)
        host = self._guard(gaps, "host", lambda: self._host.collect(now_s, COLLECT_WAIT_S, gaps))
        self._guard(gaps, "log", lambda: self._add_files(frame, files, host, gaps, now_s))
        self._guard(gaps, "beats", lambda: self._add_run_delay(frame))
        self._guard(gaps, "gpu", lambda: self._add_gpus(frame, gaps))
        if host is not None:
            frame["host"] = host
        # After the files: a changed run.json belongs into this very frame.
        frame["run"] = self._with_manifest(run)
        frame["gaps"] = gaps
        frame["cost"] = self._cost.read(started_s, time.monotonic(), self.children(), left_out)
        return frame

    def begin_gpus(self) -> None:
        """Ask the driver for the second frame: its first answer takes longer than all the rest."""
        if self._gpus is not None:
            self._gpus.ask(self.run.pids[:MAX_PROCESSES], proc.boot_s())

    def children(self) -> List[int]:
        """Processes that are asked for what can block."""
        sources = (self._files, self._panes, self._gpus, self.run, self._code, self._host)
        living = [each.child for each in sources if each is not None and each.child is not None]
        return [each.pid for each in [*living, READS] if each.pid is not None]

    def stack_means(self) -> Means:
        """What the run itself offers for a stack sample."""
        return Means(near=tuple(self.run.pids[:4]), declared=declared_in(self.run.manifest))

    def close(self) -> None:
        """End the children; let go of descriptors."""
        self.run.close()
        self._threads.close()
        self._kernel.close()
        self._files.close()
        self._panes.close()
        self._host.close()
        self._code.close()
        READS.close()
        if self._gpus is not None:
            self._gpus.close()

    def _guard(self, gaps: List[Dict[str, Any]], source: str, read: Callable[[], Any]) -> Any:
        """Each source fails alone: an error nobody expected becomes its gap."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - the runner of parsers
            gaps.append({"source": source, "reason": f"agent: {type(error).__name__}: {error}"})
            return None

    def _with_manifest(self, run: Optional[Dict[str, Any]]) -> Dict[str, Any]:
        if run is None:
            return {"state": "none", "how": "newest", "note": "the search for the run failed"}
        manifest = self.run.new_manifest()
        return run if manifest is None else dict(run, manifest=manifest, name=self.run.name)

    def _read_processes(
        self, pids: List[int], now_s: float, gaps: List[Dict[str, Any]]
    ) -> List[Dict[str, Any]]:
        if len(self.run.pids) > len(pids):
            reason = f"{len(self.run.pids)} processes, only {len(pids)} are read"
            gaps.append({"source": "process", "reason": reason})
        samples = [self.processes.read(pid, now_s) for pid in pids]
        held = READS.problem(pids)
        if held is not None:
            gaps.append(dict(held, source="process"))
        return [sample for sample in samples if sample is not None]

    def _read_threads(
        self, pids: List[int], now_s: float, gaps: List[Dict[str, Any]]
    ) -> Optional[Dict[str, Any]]:
        """Every thread, each frame; of more than HELD_THREADS at a slower pace of their own."""
        if self._threads_note is not None:
            gaps.append({"source": "threads", "reason": self._threads_note})
        is_many = self._num_threads > HELD_THREADS
        if not pids or (is_many and now_s - self._threads_read_s < self._threads_every_s - 0.1):
            return None
        self._threads_read_s, begun_s = now_s, time.thread_time()
        due_s = MANY_SWITCHES_EVERY_S if self._num_threads > FEW_THREADS else 0.0
        with_switches = now_s - self._switches_read_s >= due_s - 0.1
        if with_switches:
            self._switches_read_s = now_s
        threads, self._threads_note = self._threads.read(pids, with_switches=with_switches)
        self._num_threads = sum(len(rows) for rows in threads.values())
        spent_s = time.thread_time() - begun_s
        self._threads_every_s = max(MANY_THREADS_EVERY_S, spent_s / THREADS_SHARE)
        return threads

    def _file_request(self, now_s: float) -> Dict[str, Any]:
        sources = self._sources.read(self.run.pids, now_s)
        paths = self.run.paths
        places = [(self.run.run_dir, "run-dir"), *ROOM_WANTED]
        self._panes.ask([source.link for source in sources if source.kind == "tty"], now_s)
        files = [source.path for source in sources if source.kind == "file"]
        if files:
            places.append((os.path.dirname(files[0]), "log"))
        return {
            "sources": [list(source) for source in sources],
            "watched": self._target.get("log") or paths["log"],
            "asked": bool(self._target.get("log")),
            "run_dir": self.run.run_dir,
            "events": paths["events"],
            "disks": [place for place in places if place[0]],
        }

    def _add_files(
        self,
        frame: Dict[str, Any],
        files: Optional[Dict[str, Any]],
        host: Optional[Dict[str, Any]],
        gaps: List[Dict[str, Any]],
        now_s: float,
    ) -> None:
        problem = self._files.gap(now_s) or self._panes.gap(now_s)
        if files is not None and "error" in files:
            problem, files = {"reason": files["error"]}, None
        if problem is not None:
            gaps.extend(dict(problem, source=source) for source in ("log", "events"))
        if files is None:
            return
        gaps.extend(files["gaps"])
        if files.get("manifest"):
            self.run.take_manifest(files["manifest"])
        for key in ("logs", "events", "beats"):
            if files.get(key) is not None:
                frame[key] = files[key]
        panes = self._panes.collect(now_s)
        for sample in frame.get("logs", ()):
            self._add_unbuffered(sample)
            sample.update(panes.get(sample["path"], {}))
        if host is not None:
            host["disks"] = files["disks"]
        reason = None if frame.get("logs") else refusal(self._root, self.run.pids[:8])
        if reason is not None:
            gaps.append({"source": "log", "reason": reason})

    def _add_code(self, frame: Dict[str, Any], pids: List[int], now_s: float) -> None:
        """Whether the files on disk are what was loaded; in the frames that bring an answer."""
        self._code.ask(pids, self.run.manifest, now_s)
        code = self._code.collect(now_s)
        if code is not None:
            frame["code"] = code

    def _add_run_delay(self, frame: Dict[str, Any]) -> None:
        """What of the ticker's lateness is the machine's, not the interpreter lock's."""
        ticker = (frame.get("beats") or {}).get("ticker")
        if ticker is None:
            return
        for pid, rows in (frame.get("threads") or {}).items():
            for row in rows:
                if row[1] == TICKER:
                    ticker["run_delay_s"] = run_delay_s(self._root, int(pid), row[0])

    def _add_gpus(self, frame: Dict[str, Any], gaps: List[Dict[str, Any]]) -> None:
        if self._gpus is not None and self._seq > 1:
            frame.update(self._gpus.collect(proc.boot_s(), COLLECT_WAIT_S, gaps))

    def _add_unbuffered(self, sample: Dict[str, Any]) -> None:
        """Of standard streams alone: files that a program opens itself have their own buffers."""
        pid = self.run.root_pid
        if pid is None or re.match(r"fd ([3-9]|\d\d)", sample["via"]):
            return
        if self._unbuffered.get(pid) is None and len(self._unbuffered) < 64:
            writer = next((each for each in self.run.pids if self.processes.is_python(each)), pid)
            self._unbuffered[pid] = is_unbuffered(self._root, writer)
        if self._unbuffered.get(pid) is not None:
            sample["unbuffered"] = self._unbuffered[pid]

    def _add_kernel(self, frame: Dict[str, Any], gaps: List[Dict[str, Any]], now_s: float) -> None:
        lines, problem = self._kernel.read(now_s)
        if lines:
            frame["kernel"] = lines
        if problem:
            gaps.append({"source": "kernel", "reason": problem})
