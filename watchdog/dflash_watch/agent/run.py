"""The run under watch: not there yet, found, gone, or replaced by the next one.

Pure state over find.py and table.py; the caller brings the clock.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from dflash_watch.agent import proc
from dflash_watch.agent.child import Child
from dflash_watch.agent.find import Answer, Found, find_run
from dflash_watch.agent.mounts import Mounts
from dflash_watch.agent.rundir import is_its_process, paths_of, run_dir_of, worker_pids
from dflash_watch.agent.table import RunTree

LOOK_AGAIN_S = 2.0
SEARCH_WAIT_S, SEARCH_DEADLINE_S = 2.0, 4.0
RUN_DIR_EVERY_S = 3.0
SUCCESSOR_AFTER_S = 5.0
"""A run that ended stays on the screen at least so long before a newer one takes its place."""


class RunView:
    """Finds the run, follows its processes, notices its end."""

    def __init__(self, root: str, target: Dict[str, Any], agent_pid: int) -> None:
        self._root, self._target, self._agent_pid = root, target, agent_pid
        self._found: Optional[Found] = None
        self._tree: Optional[RunTree] = None
        self._problem = "not looked yet"
        self._looked_s: Optional[float] = None
        self._gone_since_s: Optional[float] = None
        self._manifest_is_new = False
        self.pids: List[int] = []
        self._mounts = Mounts(root)
        self._search = Child("search for the run", self._find, SEARCH_DEADLINE_S)
        self._run_dir_looked_s = float("-inf")

    @property
    def run_dir(self) -> Optional[str]:
        """The run directory, when it has one."""
        return self._found.run_dir if self._found else None

    @property
    def manifest(self) -> Optional[Dict[str, Any]]:
        """run.json as last read."""
        return self._found.manifest if self._found else None

    @property
    def root_pid(self) -> Optional[int]:
        """The run's first process."""
        return self._found.root_pid if self._found else None

    @property
    def child(self) -> Child:
        """The search's process, while there is one."""
        return self._search

    @property
    def is_gone(self) -> bool:
        """It was there and its root process is not any more."""
        return self._gone_since_s is not None

    @property
    def paths(self) -> Dict[str, Optional[str]]:
        """Where log, events and beat page lie."""
        return paths_of(self.run_dir, self.manifest)

    def update(self, now_s: float) -> Dict[str, Any]:
        """`frame.RunSample` of this moment; `pids` is fresh afterwards.

        Args:
            now_s: CLOCK_BOOTTIME.
        """
        self._search.tend(now_s)
        if self._found is None or self._may_look_for_successor(now_s):
            self._look(now_s)
        if self._found is None:
            self.pids = []
            return {"state": "none", "how": self._how(), "note": self._problem}
        self._follow(now_s)
        return self._sample(now_s)

    @property
    def name(self) -> Optional[str]:
        """What people call it."""
        return self._found.name if self._found else None

    def new_manifest(self) -> Optional[Dict[str, Any]]:
        """run.json when it has changed since this was asked last, else None."""
        if not self._manifest_is_new or self._found is None:
            return None
        self._manifest_is_new = False
        return self._found.manifest

    def take_manifest(self, manifest: Dict[str, Any]) -> None:
        """run.json has changed: keep it, show it once, follow its process if that is another."""
        if self._found is None or manifest == self._found.manifest:
            return
        self._manifest_is_new = True
        stat = is_its_process(self._root, manifest)
        name = str(manifest.get("name") or "") or self._found.name
        self._found = self._found._replace(manifest=manifest, name=name)
        if stat is not None and self.is_gone and stat.pid != self._found.root_pid:
            self._take(self._found._replace(root_pid=stat.pid, start_ticks=stat.start_ticks))

    def _how(self) -> str:
        for key in ("run_dir", "pid", "match", "log", "tmux"):
            if self._target.get(key) not in (None, ""):
                return key.replace("_", "-")
        return "newest"

    def _may_look_for_successor(self, now_s: float) -> bool:
        if self._found is None or self._how() == "pid":
            return False
        if self._found.root_pid is None:
            return True
        return self._gone_since_s is not None and now_s - self._gone_since_s >= SUCCESSOR_AFTER_S

    def _look(self, now_s: float) -> None:
        if self._looked_s is not None and now_s - self._looked_s < LOOK_AGAIN_S:
            return
        answer = self._ask(now_s)
        if answer is None:
            return
        self._looked_s = now_s
        if isinstance(answer, str):
            self._problem = answer + (hidden_note() if proc.hides_others(self._root) else "")
            return
        if self._found is None or self._is_successor(answer):
            self._take(answer)
            self._search.close()

    def _ask(self, now_s: float) -> Optional[Answer]:
        """The search's answer, or None while it is under way.

        It runs in a child: it touches paths that somebody named and reads strangers' memory maps,
        and either can block for ever.
        """
        just_asked = self._search.ask({}, now_s)
        if self._search.cannot_start and not self._touches_files(now_s):
            return answer_of(self._find({}))
        got = self._search.collect(now_s, SEARCH_WAIT_S if just_asked else 0.0)
        silence = self._search.gap(now_s)
        if got is None:
            self._problem = silence["reason"] if silence else self._problem
            return None
        return answer_of(got)

    def _touches_files(self, now_s: float) -> bool:
        """Would the search touch a path that can hang."""
        return any(
            self._mounts.can_hang(self._target.get(key), now_s) for key in ("run_dir", "log")
        )

    def _find(self, _request: Dict[str, Any]) -> Dict[str, Any]:
        """Runs in the child only."""
        answer = find_run(self._root, self._target, self._agent_pid)
        return {"problem": answer} if isinstance(answer, str) else {"found": answer._asdict()}

    def close(self) -> None:
        """End the search."""
        self._search.close()

    def _look_for_run_dir(self, now_s: float) -> None:
        """A run may make its directory long after it was found."""
        if self._found is None or self._found.run_dir or not self.pids:
            return
        if now_s - self._run_dir_looked_s < RUN_DIR_EVERY_S:
            return
        self._run_dir_looked_s = now_s
        run_dir = run_dir_of(self._root, self.pids[:8], self._mounts, now_s)
        if run_dir is not None:
            self._found = self._found._replace(run_dir=run_dir)

    def _is_successor(self, answer: Found) -> bool:
        """Another process, and a younger one: an old neighbour is no successor."""
        known = self._found
        if known is None or answer.root_pid is None or answer.start_ticks is None:
            return False
        return known.start_ticks is None or answer.start_ticks > known.start_ticks

    def _take(self, found: Found) -> None:
        self._found = found
        self._manifest_is_new = found.manifest is not None
        self._gone_since_s = None
        self._tree = None
        if found.root_pid is not None and found.start_ticks is not None:
            self._tree = RunTree(self._root, found.root_pid, found.start_ticks)

    def _follow(self, now_s: float) -> None:
        self.pids = self._tree.update() if self._tree else []
        self._look_for_run_dir(now_s)
        extra = [pid for pid in worker_pids(self.manifest) if pid not in self.pids and self.pids]
        self.pids += [pid for pid in extra if proc.read_stat(self._root, pid) is not None]
        if self._tree is None or not self._tree.root_is_there():
            self._gone_since_s = now_s if self._gone_since_s is None else self._gone_since_s
        else:
            self._gone_since_s = None

    def _sample(self, now_s: float) -> Dict[str, Any]:
        found = self._found
        assert found is not None
        sample: Dict[str, Any] = {
            "state": "gone" if self.is_gone else "found",
            "how": found.how,
            "name": found.name,
            "run_dir": found.run_dir,
            "root_pid": found.root_pid,
            "root_start_ticks": found.start_ticks,
            "note": found.note,
            "gone_s": None if self._gone_since_s is None else round(now_s - self._gone_since_s, 3),
        }
        return {key: value for key, value in sample.items() if value is not None}


def answer_of(got: Dict[str, Any]) -> Answer:
    """The search's answer as it came over the pipe."""
    if "problem" in got or "error" in got:
        return str(got.get("problem") or got["error"])
    return Found(**got["found"])


def hidden_note() -> str:
    """For people: why a process that is there may not be seen."""
    return (
        "; /proc shows only processes of one's own here (hidepid):"
        f" be the run's user (this is uid {os.getuid()}), or root"
    )
