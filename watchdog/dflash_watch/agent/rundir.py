"""The run directory as the agent meets it: where it is, whose it is, what run.json says."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterable, List, Optional, Tuple

from dflash_watch.agent import proc
from dflash_watch.agent.mounts import Mounts

MANIFEST = "run.json"
MAX_MANIFEST_BYTES = 4 * 1024 * 1024


def find_run_dir(path: str) -> Optional[str]:
    """`path` itself when it holds run.json, else the newest run in it; None: neither."""
    path = os.path.abspath(path)
    if os.path.isfile(os.path.join(path, MANIFEST)):
        return path
    runs = []
    try:
        names = os.listdir(path)
    except OSError:
        return None
    for name in names:
        try:
            runs.append(
                (os.stat(os.path.join(path, name, MANIFEST)).st_mtime, os.path.join(path, name))
            )
        except OSError:
            continue
    return max(runs)[1] if runs else None


def read_manifest(run_dir: str) -> Tuple[Optional[Dict[str, Any]], Optional[str]]:
    """run.json as an object, or why not."""
    data = proc.read_bytes(os.path.join(run_dir, MANIFEST), MAX_MANIFEST_BYTES)
    if data is None:
        return None, "run.json cannot be read"
    try:
        manifest = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return None, f"run.json is not JSON: {error}"
    if not isinstance(manifest, dict):
        return None, "run.json is not an object"
    if not _names_a_process(manifest.get("process")):
        return None, "run.json names no process (process: pid, start_ticks)"
    return manifest, None


def _names_a_process(identity: Any) -> bool:
    """Numbers that a kernel could have given: of others nobody can say whether they are there."""
    if not isinstance(identity, dict):
        return False
    pid, ticks = identity.get("pid"), identity.get("start_ticks")
    return type(pid) is int and 0 < pid < 2**31 and (ticks is None or _is_count(ticks))


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**64


def boot_id(root: str) -> Optional[str]:
    """The kernel's boot id as seen here (containers have their own)."""
    text = proc.read_text(root + "/sys/kernel/random/boot_id", 64)
    return text.strip() if text else None


def is_its_process(root: str, manifest: Dict[str, Any]) -> Optional[proc.Stat]:
    """The living process that run.json names; None: gone, or another one has its number."""
    identity = manifest.get("process")
    if not isinstance(identity, dict) or not isinstance(identity.get("pid"), int):
        return None
    said, here = identity.get("boot_id"), boot_id(root)
    if said and here and said != here:
        return None
    stat = proc.read_stat(root, identity["pid"])
    if stat is None or identity.get("start_ticks") not in (None, stat.start_ticks):
        return None
    return stat


def run_dir_of(
    root: str, pids: Iterable[int], mounts: Optional[Mounts] = None, now_s: float = 0.0
) -> Optional[str]:
    """The run directory that one of these processes writes: it has events.jsonl open.

    Args:
        root: `/proc`.
        pids: the processes.
        mounts: with it, directories on mounts that can hang are believed without a look.
        now_s: the moment, for `mounts`.
    """
    for pid in pids:
        for fd in proc.list_fds(root, pid) or []:
            link = proc.read_link(f"{root}/{pid}/fd/{fd}") or ""
            if not link.endswith("/events.jsonl"):
                continue
            run_dir = os.path.dirname(link)
            unseen = mounts is not None and mounts.can_hang(run_dir, now_s)
            if unseen or os.path.isfile(os.path.join(run_dir, MANIFEST)):
                return run_dir
    return None


def paths_of(
    run_dir: Optional[str], manifest: Optional[Dict[str, Any]]
) -> Dict[str, Optional[str]]:
    """`log`, `events`, `beats`: from run.json, else where they lie by custom."""
    manifest = manifest or {}
    inside = (lambda name: os.path.join(run_dir, name)) if run_dir else (lambda _name: None)
    return {
        "log": _text(manifest.get("log_path")),
        "events": _text(manifest.get("events_path")) or inside("events.jsonl"),
        "beats": _text(manifest.get("beats_path")) or inside("beats"),
    }


def _text(value: Any) -> Optional[str]:
    """A path, if it can be one."""
    if not isinstance(value, str) or "\0" in value:
        return None
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return None
    return value or None


def worker_pids(manifest: Optional[Dict[str, Any]]) -> List[int]:
    """Processes that run.json lists as workers."""
    workers = (manifest or {}).get("workers")
    pids = (
        [worker.get("pid") for worker in workers if isinstance(worker, dict)]
        if isinstance(workers, list)
        else []
    )
    return sorted({pid for pid in pids if isinstance(pid, int)})
