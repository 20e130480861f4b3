"""Entry of the zipapp: `main` is called by the stub (stub.py)."""

from __future__ import annotations

import gc
import json
import os
import signal
from typing import Any, Dict

from dflash_watch.agent import proc
from dflash_watch.agent.hostlook import HostLook
from dflash_watch.agent.look import Look
from dflash_watch.agent.loop import Looks, Loop, life_s, say
from dflash_watch.agent.manners import give_memory_back, limit_oneself
from dflash_watch.agent.probes.gpus import GpuSource
from dflash_watch.agent.probes.kernel import KERNEL_LOG, KernelReader


def main(config_bytes: bytes, code_sha256: str = "") -> int:
    """Run the agent over standard input and output until its watcher goes.

    Args:
        config_bytes: the JSON of docs/frames.md, "Start".
        code_sha256: of the code that the stub received, hex.

    Returns:
        Exit code: 0 after an orderly end.
    """
    config: Dict[str, Any] = json.loads(config_bytes.decode("utf-8"))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    limit_oneself(life_s(config))
    look = build_look(config)
    os.chdir("/")
    # Children are forked from here: what is frozen stays shared with them.
    give_memory_back()
    gc.freeze()
    reason = Loop(config, look, code_sha256, 0, 1).run()
    say("ends: " + reason)
    return 0


def build_look(config: Dict[str, Any]) -> Looks:
    """What this agent looks at: the run, or, as `host`, the machine around its container."""
    gpus = None if config.get("gpus") is False else GpuSource("/proc", config.get("gpu_library"))
    if config.get("role") == "host":
        kernel = KernelReader(config.get("kernel_log") or KERNEL_LOG)
        return HostLook("/proc", config.get("container") or {}, gpus, kernel)
    return Look("/proc", absolute(config.get("target") or {}), gpus)


def absolute(target: Dict[str, Any]) -> Dict[str, Any]:
    """Relative paths count from where the agent was started; it leaves that directory."""
    # Not getcwd: that fails where the directory has been deleted, and nobody may need it.
    here = proc.read_link("/proc/self/cwd") or "/"
    return {
        key: os.path.normpath(os.path.join(here, value))
        if key in ("run_dir", "log") and isinstance(value, str)
        else value
        for key, value in target.items()
    }
