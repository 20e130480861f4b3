"""GPUs seen from the agent: the driver is asked in a child, since a call may never return."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from dflash_watch.agent.child import Child
from dflash_watch.agent.manners import give_memory_back

DEADLINE_S = 4.0


class GpuSource:
    """Asks the sampler (nvml.py) and turns its silence into a gap.

    Args:
        root: `/proc`.
        library: path of another NVML library; None: the normal search, then the usual places.
    """

    def __init__(self, root: str, library: Optional[str] = None) -> None:
        self._root, self._library = root, library
        self.child = Child("nvidia driver", self._serve, DEADLINE_S)
        self._sampler: Any = None
        self._resting_until_s = 0.0
        self._problem: Optional[str] = None
        self._cause: Optional[str] = None

    def ask(self, pids: List[int], now_s: float) -> None:
        """Begin a reading unless one is on its way or the driver is to be left alone."""
        if now_s >= self._resting_until_s:
            self.child.ask({"pids": pids}, now_s)

    def collect(self, now_s: float, wait_s: float, gaps: List[Dict[str, Any]]) -> Dict[str, Any]:
        """`gpus` and `gpu_driver` for the frame; adds to `gaps` why there are none."""
        answer = self.child.collect(now_s, wait_s)
        silence = self.child.gap(now_s)
        if silence is not None:
            gaps.append(dict(silence, source="gpu", cause="no-answer"))
            return {}
        if answer is None:
            gaps.extend(self._gap())
            return {}
        self._problem = answer.get("problem") or answer.get("error")
        self._cause = answer.get("cause")
        gaps.extend(self._gap())
        if self._problem is not None:
            self._rest(answer, now_s)
        return {key: answer[key] for key in ("gpus", "gpu_driver") if answer.get(key) is not None}

    def close(self) -> None:
        """End the child."""
        self.child.close()

    def _gap(self) -> List[Dict[str, Any]]:
        if self._problem is None:
            return []
        return [{"source": "gpu", "reason": self._problem, "cause": self._cause}]

    def _rest(self, answer: Dict[str, Any], now_s: float) -> None:
        """No driver, or one that refuses: let the child go and try again later."""
        rest_s = float(answer.get("retry_in_s") or 0.0)
        if rest_s > 0:
            self._resting_until_s = now_s + rest_s
            self.child.close()

    def _serve(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Runs in the child only: the binding is loaded there and nowhere else."""
        if self._sampler is None:
            from dflash_watch.agent.nvml import Sampler

            self._sampler = Sampler(self._root, self._library)
            give_memory_back()
        answer: Dict[str, Any] = self._sampler.read(request.get("pids") or [])
        return answer
