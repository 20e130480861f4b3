"""Stacks of one process at one moment, joined with what the kernel says of each thread.

Always py-spy without blocking: its default mode stops every thread of the target and waits for one
in state D. Runs in a disposable child. Where no stacks can be had the kernel's view stands in,
with the reason and the next step.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from dflash_watch.agent import proc
from dflash_watch.agent.probes.threads import ThreadReader

TOOL_S = 5.0
TRIES = 3
MAX_OUTPUT_BYTES = 8 * 1024 * 1024
MAX_FRAMES = 200

# What py-spy says -> what it means and what to do; the first that fits.
MEANINGS: Tuple[Tuple[str, str], ...] = (
    (
        r"Permission denied|Operation not permitted|elevated permissions|os error 13|os error 1\b",
        "not allowed: be the process's user, or root with CAP_SYS_PTRACE, or set ptrace_scope 0",
    ),
    (
        r"No such file|No such process|os error 3\b",
        "the process is gone, or lives in another PID namespace",
    ),
    (
        r"gil_thread_id|Unsupported version|free.?threaded",
        "this Python is free-threaded or too new for this py-spy: use a newer one, or faulthandler",
    ),
    (
        r"Failed to find python version|find a python interpreter",
        "not a Python process, or an unusual build of Python",
    ),
    (r"Failed to suspend", "another tool traces it: see TracerPid"),
    (r"Exec format error|os error 8\b", "this py-spy is for another machine type"),
)
PERMANENT = re.compile("|".join(pattern for pattern, _meaning in MEANINGS[:4]), re.IGNORECASE)


class Dump(NamedTuple):
    """What one run of the tool gave."""

    threads: Optional[List[Dict[str, Any]]]
    error: Optional[str]


def take_stacks(root: str, pid: int, label: str, tool: Optional[str]) -> Dict[str, Any]:
    """`frame.StackSample` of a process; bounded to about three times TOOL_S.

    Args:
        root: `/proc`.
        pid: the process.
        label: handed back.
        tool: path of py-spy; None: there is none.
    """
    started_s, t = time.monotonic(), time.time()
    before = proc.read_stat(root, pid)
    sample: Dict[str, Any] = {"type": "stacks", "t": round(t, 3), "pid": pid, "label": label}
    if before is None:
        return dict(sample, tool="kernel", error=f"no process {pid} here")
    dump = _dump(pid, tool)
    rows = ThreadReader(root).read([pid], with_switches=False)[0].get(str(pid), [])
    sample["duration_s"] = round(time.monotonic() - started_s, 3)
    notes = notes_on_states(rows, before, proc.read_stat(root, pid))
    if dump.threads is None:
        sample.update(kernel_view(rows))
        sample["error"] = dump.error
    else:
        threads = [join(thread, rows) for thread in dump.threads]
        sample.update(tool="py-spy", threads=threads, raw=render(pid, threads))
    if notes:
        sample["note"] = "; ".join(notes)
    return sample


def kernel_view(rows: List[List[Any]]) -> Dict[str, Any]:
    """Threads without frames: what the kernel alone tells."""
    threads = [
        {
            "tid": row[0],
            "name": row[1],
            "state": row[2],
            "cpu_ticks": row[3],
            "wchan": row[6],
            "syscall": row[7],
        }
        for row in rows
    ]
    lines = [
        "thread {tid} {name}: state {state}, in {wchan}, system call {syscall}".format(**each)
        for each in threads
    ]
    kept = [
        {key: value for key, value in each.items() if value is not None or key == "tid"}
        for each in threads
    ]
    return {"tool": "kernel", "threads": kept, "raw": "\n".join(lines)}


def _dump(pid: int, tool: Optional[str]) -> Dump:
    if tool is None:
        return Dump(
            None,
            "no py-spy here: pip install py-spy in the run's environment, or let the watcher push"
            " its own",
        )
    error = None
    for _attempt in range(TRIES):
        dump = run_tool(tool, pid)
        if dump.threads is not None:
            return dump
        error = dump.error
        if error is not None and PERMANENT.search(error):
            break
    return Dump(None, explain(error or "py-spy gave nothing"))


def run_tool(tool: str, pid: int) -> Dump:
    """One non-blocking dump under a kill timer."""
    command = [tool, "dump", "--json", "--nonblocking", "--full-filenames", "--pid", str(pid)]
    import subprocess  # late: this runs in a child only

    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TOOL_S,
            check=False,
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        )
    except subprocess.TimeoutExpired:
        return Dump(None, f"py-spy: no answer in {TOOL_S:.0f} s, ended")
    except OSError as error:
        return Dump(None, f"py-spy cannot be started: {error}")
    if done.returncode != 0:
        text = done.stderr.decode("utf-8", "replace").strip()
        return Dump(None, text[:1000] or f"py-spy ended with {done.returncode} and said nothing")
    return parse(done.stdout[:MAX_OUTPUT_BYTES].decode("utf-8", "replace"))


def parse(text: str) -> Dump:
    """Threads out of `py-spy dump --json`; a torn reading is an error to retry."""
    try:
        threads = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Dump(None, f"py-spy: its answer is no JSON: {error}")
    if not isinstance(threads, list) or not all(isinstance(each, dict) for each in threads):
        return Dump(None, "py-spy: its answer is no list of threads")
    parsed = [_thread(each) for each in threads]
    if not any(thread["frames"] for thread in parsed):
        return Dump(None, f"py-spy: torn reading, no frames in any of {len(parsed)} threads")
    return Dump(parsed, None)


def _thread(record: Dict[str, Any]) -> Dict[str, Any]:
    told = record.get("frames")
    frames = [
        [
            str(frame.get("name") or "?"),
            str(frame.get("filename") or "?"),
            _number(frame.get("line")),
        ]
        for frame in (told if isinstance(told, list) else ())
        if isinstance(frame, dict)
    ]
    name = record.get("thread_name")
    return {
        "tid": record.get("os_thread_id"),
        "name": name if isinstance(name, str) else None,
        "frames": frames[:MAX_FRAMES],
        "active": record.get("active"),
        "owns_gil": record.get("owns_gil"),
    }


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int) else 0


def join(thread: Dict[str, Any], rows: List[List[Any]]) -> Dict[str, Any]:
    """A thread with its state, ticks, wchan and system call, where its number is known."""
    joined = dict(thread)
    for row in rows:
        if row[0] == thread["tid"]:
            joined["name"] = thread["name"] or row[1]
            joined.update(state=row[2], cpu_ticks=row[3], wchan=row[6], syscall=row[7])
            break
    return {key: value for key, value in joined.items() if value is not None or key == "tid"}


def render(pid: int, threads: List[Dict[str, Any]]) -> str:
    """The text that people know: a head line a thread, frames below, innermost first."""
    lines = [f"Process {pid}"]
    for thread in threads:
        marks = [
            thread.get("state") or "",
            "gil" if thread.get("owns_gil") else "",
            thread.get("wchan") or "",
        ]
        head = "+".join(mark for mark in marks if mark)
        lines.append(
            'Thread {} ({}): "{}"'.format(thread.get("tid"), head, thread.get("name") or "?")
        )
        lines += [f"    {name} ({file}:{line})" for name, file, line in thread.get("frames", ())]
    return "\n".join(lines)


def explain(error: str) -> str:
    """The tool's words in short, and what to do about them."""
    said = re.sub(r"\s+", " ", error).strip()[:300]
    for pattern, meaning in MEANINGS:
        if re.search(pattern, error, re.IGNORECASE):
            return f"{meaning} (py-spy: {said})"
    return said


def notes_on_states(
    rows: List[List[Any]], before: proc.Stat, after: Optional[proc.Stat]
) -> List[str]:
    """What a reader must know: threads in D, a stopped target, and whether it was so before."""
    notes = []
    blocked = sum(1 for row in rows if row[2] == "D")
    if blocked:
        notes.append(f"{blocked} threads in state D (uninterruptible)")
    if before.state in "Tt":
        notes.append(f"the process was stopped (state {before.state}) before the sample")
    elif after is not None and after.state in "Tt":
        notes.append(
            f"the process is stopped (state {after.state}) since the sample: continue it with"
            " kill -CONT"
        )
    if after is None:
        notes.append("the process ended during the sample")
    return notes
