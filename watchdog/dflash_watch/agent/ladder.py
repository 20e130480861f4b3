"""The ways to a process's stacks, the best view first; the first rung that bears is taken.

py-spy without blocking (found in the run's environment, on PATH, in the usual places, or pushed),
pystack without blocking, the run's own faulthandler where the run declared it. None of them stops a
thread: a sampler that does would wait for a thread in state D with all others stopped. Native
frames, for which py-spy must stop them, are a rung of their own that only a person asks for.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional

from dflash_watch.agent import dumps, faultdump, proc, pyspy, pystack, rights, tools
from dflash_watch.agent.aftermath import count_of, set_free, tracer_of
from dflash_watch.agent.dumps import Dump
from dflash_watch.agent.means import Means
from dflash_watch.agent.memory import READS

TRIES = 3
HELD = "its memory gives no answer (a thread in there holds its map): a sampler would hang"


class NeedsTool(Exception):  # noqa: N818 - no error: the watcher is asked, and asks again
    """There is no py-spy here that answers, and the watcher has one."""


class Ladder:
    """The rungs, from the best view to the last one that gives Python frames.

    Args:
        root: `/proc`.
        pid: the process.
        means: what may be used.
        before: the process before anything was done.
        states: of its threads, then.
        end_s: no new attempt begins after this moment (monotonic).
    """

    def __init__(
        self,
        root: str,
        pid: int,
        means: Means,
        before: proc.Stat,
        states: List[str],
        end_s: float,
    ) -> None:
        self._root, self._pid, self._means = root, pid, means
        self._before, self._states, self._end_s = before, states, end_s
        self.rungs: List[Dict[str, Any]] = []
        self.did: List[str] = []
        self.tool, self.mode = "kernel", "non-blocking"
        self._refused: Optional[str] = None

    def climb(self) -> Dump:
        """The first rung that bears; without one, the reason that tells most."""
        if self._before.state in "ZX":
            return Dump(None, "the process has ended (zombie): there is nothing to look into")
        self._directories = self._search_places()
        dumps_tried = []
        for rung in (self._native, self._pyspy, self._pystack, self._faulthandler):
            dump = rung()
            if dump is None:
                continue
            if dump.threads is not None:
                return dump
            dumps_tried.append(dump)
        return dumps_tried[0]._replace(error=self._refused or dumps_tried[0].error)

    def note(self, tool: str, how: Optional[str], outcome: str) -> None:
        """One rung and what became of it."""
        rung = {"tool": tool, "how": how, "outcome": outcome}
        self.rungs.append({key: value for key, value in rung.items() if value is not None})

    def _search_places(self) -> List[str]:
        if self._means.directories is not None:
            return self._means.directories
        pids = dict.fromkeys([self._pid, *self._means.near])
        own = [place for each in pids for place in tools.directories_of(self._root, each)]
        return list(dict.fromkeys([*own, *tools.directories_here()]))

    def _native(self) -> Optional[Dump]:
        """Only on request, and never where stopping the process would hold it for long."""
        if not self._means.native:
            return None
        refused = self._why_not_native()
        if refused is not None:
            self.note("py-spy --native", None, f"refused: {refused}")
            return None
        found = self._samplers()[:1]
        if not found and self._means.can_push:
            raise NeedsTool
        if not found:
            return None
        dump = pyspy.dump(found[0].command[0], self._pid, native=True, user=found[0].user)
        self.did.append("stopped all its threads for the time of a native dump")
        self.did += set_free(self._root, self._pid, self._before.state)
        self._settle("py-spy --native", found[0], dump)
        if dump.threads is not None:
            self.mode = "blocking, native"
        return dump

    def _why_not_native(self) -> Optional[str]:
        if self._is_held():
            return HELD
        blocked = self._states.count("D")
        if blocked:
            return f"{count_of(blocked)} in state D would keep all others stopped"
        if any(state in "Tt" for state in [*self._states, self._before.state]):
            return "it is stopped already"
        tracer = tracer_of(self._root, self._pid)
        return f"process {tracer} traces it" if tracer else None

    def _samplers(self) -> List[tools.Found]:
        """Each py-spy there is, the run's own first."""
        found = []
        path = tools.which(pyspy.NAME, self._directories)
        if path is not None:
            found.append(tools.Found([path], path, tools.guest_user(self._root, self._pid, path)))
        if self._means.pushed is not None:
            found.append(tools.Found([self._means.pushed], "pushed by the watcher"))
        return found

    def _is_held(self) -> bool:
        """Whoever reads its memory now would hang: seen when its places were searched."""
        return READS.problem([self._pid]) is not None

    def _pyspy(self) -> Dump:
        if self._is_held():
            self._refused = HELD
            self.note(pyspy.NAME, None, HELD)
            return Dump(None, HELD)
        found = self._samplers()
        dump = Dump(None, self._no_pyspy())
        if not found:
            self.note(pyspy.NAME, None, str(dump.error))
        for one in found:
            dump = self._try_pyspy(one)
            self._settle(pyspy.NAME, one, dump)
            if dump.threads is not None or dump.kind == dumps.GONE:
                break
        if self._means.can_push and dump.threads is None and not self._is_final(dump):
            raise NeedsTool
        if len(found) == 1 and self._means.not_pushed and dump.threads is None:
            self.note(pyspy.NAME, "pushed by the watcher", self._means.not_pushed)
        return dump

    def _is_final(self, dump: Dump) -> bool:
        """Another py-spy would fare no better."""
        return self._refused is not None or dump.kind in (dumps.GONE, dumps.TRACED, dumps.SLOW)

    def _try_pyspy(self, found: tools.Found) -> Dump:
        """Without blocking a reading can be torn: three tries, while there is time."""
        dump = Dump(None, "no time left for it")
        for _attempt in range(TRIES):
            if time.monotonic() > self._end_s:
                break
            dump = pyspy.dump(found.command[0], self._pid, user=found.user)
            if dump.threads is not None or dump.kind != dumps.TORN:
                break
        return dump

    def _no_pyspy(self) -> str:
        why = self._means.not_pushed or "the watcher has sent none"
        return f"no py-spy here ({why}): pip install py-spy in the run's environment"

    def _pystack(self) -> Dump:
        if self._refused is not None:
            same = "the same" if self._refused == HELD else "needs the same right"
            self.note(pystack.NAME, None, same)
            return Dump(None, same)
        command = tools.find_pystack(self._directories)
        if command is None:
            self.note(pystack.NAME, None, "none in the run's environment")
            return Dump(None, "no pystack here")
        if time.monotonic() > self._end_s:
            self.note(pystack.NAME, command[0], "no time left for it")
            return Dump(None, "no time left for it")
        user = tools.guest_user(self._root, self._pid, command[0])
        dump = pystack.dump(command, self._pid, user)
        self._settle(pystack.NAME, tools.Found(command, command[0], user), dump)
        return dump

    def _faulthandler(self) -> Dump:
        dump = faultdump.dump(self._root, self._pid, self._means.declared, self._before.start_ticks)
        self.did += dump.did
        self._settle(faultdump.NAME, None, dump)
        if dump.threads is not None and self._means.declared is not None:
            self.mode = f"signal {self._means.declared.number}"
        return dump

    def _settle(self, name: str, found: Optional[tools.Found], dump: Dump) -> None:
        """Note the rung; why the kernel refuses is told in words of our own."""
        how = found.how if found else None
        if dump.threads is not None:
            self.tool = name.partition(" ")[0]
            self.note(name, how, "taken")
        elif dump.kind == dumps.NOT_ALLOWED and found is not None and found.user is not None:
            self.note(name, how, f"not allowed as uid {found.user[0]}")
        elif dump.kind == dumps.NOT_ALLOWED:
            why = rights.why_refused(rights.read_rights(self._root, self._pid))
            self._refused = f"not allowed: {why}"
            self.note(name, how, self._refused)
        else:
            self.note(name, how, dump.error or "failed")
