"""Which process is the run: chosen by what the person said, else the newest that trains.

Answers `Found` or a sentence saying what was looked for and not found. Reads `/proc` and
run.json; changes nothing.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from dflash_watch.agent import proc
from dflash_watch.agent.mask import command_text
from dflash_watch.agent.memory import read_argv
from dflash_watch.agent.rundir import find_run_dir, is_its_process, read_manifest, run_dir_of
from dflash_watch.agent.suspects import find_newest, top_of, trains, visible_processes
from dflash_watch.agent.table import ProcessTable
from dflash_watch.agent.tmux import pane_of
from dflash_watch.agent.writers import upstream_of, writers_of


class Found(NamedTuple):
    """The run's root process and where the run lies."""

    how: str
    root_pid: Optional[int]
    """None: only the directory or the log is there, the process is not."""
    start_ticks: Optional[int]
    name: Optional[str] = None
    run_dir: Optional[str] = None
    manifest: Optional[Dict[str, Any]] = None
    note: Optional[str] = None


Answer = Union[Found, str]
NO_PYTHON = "is not a Python process, and no Python runs below it"
SEVERAL = "is not the run, and several Python programs run below it"
NAMED_AT_MOST = 8


def find_run(root: str, target: Dict[str, Any], agent_pid: int) -> Answer:
    """The run that `target` names, or why there is none.

    Args:
        root: `/proc`.
        target: at most one of `run_dir`, `pid`, `match`, `log`, `tmux`; empty: the newest.
        agent_pid: the agent's own process; it and those above it are never the run.
    """
    finders: Dict[str, Callable[[str, Any, int], Answer]] = {
        "run_dir": _by_run_dir,
        "pid": _by_pid,
        "match": _by_match,
        "log": _by_log,
        "tmux": _by_tmux,
    }
    for key, finder in finders.items():
        if target.get(key) not in (None, ""):
            return finder(root, target[key], agent_pid)
    return _newest(root, agent_pid)


def _by_run_dir(root: str, path: str, _agent_pid: int) -> Answer:
    run_dir = find_run_dir(path)
    if run_dir is None:
        there = (
            "holds no run.json, nor does a directory in it"
            if os.path.isdir(path)
            else "is no directory here"
        )
        return f"not a run directory: {path} {there}"
    manifest, problem = read_manifest(run_dir)
    if manifest is None:
        return f"run directory {run_dir}: {problem}"
    note = None if os.path.abspath(path) == run_dir else f"newest run in {path}"
    stat = is_its_process(root, manifest)
    if stat is None:
        dead = "the process that run.json names is not there"
        note = dead if note is None else f"{note}; {dead}"
    return _with(root, "run-dir", stat, note, run_dir, manifest)


def _with(
    root: str,
    how: str,
    stat: Optional[proc.Stat],
    note: Optional[str],
    run_dir: Optional[str] = None,
    manifest: Optional[Dict[str, Any]] = None,
) -> Found:
    name = None
    if run_dir is None and stat is not None:
        run_dir = run_dir_of(root, ProcessTable(root).descendants(stat.pid))
        manifest = read_manifest(run_dir)[0] if run_dir else None
    if manifest is not None:
        name = str(manifest.get("name") or "") or None
    if name is None and stat is not None:
        name = _script_name(read_argv(root, stat.pid)) or stat.comm
    return Found(
        how=how,
        root_pid=stat.pid if stat else None,
        start_ticks=stat.start_ticks if stat else None,
        name=name,
        run_dir=run_dir,
        manifest=manifest,
        note=note,
    )


def _script_name(argv: List[str]) -> Optional[str]:
    for position, word in enumerate(argv[1:], start=1):
        if word == "-m" and position + 1 < len(argv):
            return argv[position + 1]
        if word == "-c":
            return None
        if not word.startswith("-"):
            return os.path.basename(word)
    return None


def _by_pid(root: str, pid: Any, agent_pid: int) -> Answer:
    stat = proc.read_stat(root, int(pid))
    if stat is None:
        return f"no process {pid} here"
    note = waiting_note(root, stat)
    if note is not None and not trains(root, stat.pid):
        below = programs_below(root, stat.pid, agent_pid)
        if note.endswith(NO_PYTHON):
            return note
        if len(below) > 1:
            named = ", ".join(f"{pid} ({text})" for pid, text in below[:NAMED_AT_MOST])
            more = f" and {len(below) - NAMED_AT_MOST} more" if len(below) > NAMED_AT_MOST else ""
            return f"pid {stat.pid} ({stat.comm}) {SEVERAL}: {named}{more}"
    return _with(root, "pid", stat, note)


def programs_below(root: str, pid: int, agent_pid: int) -> List[Tuple[int, str]]:
    """Python programs below a process: the topmost of each tree, pid and command.

    Several with the same command (workers of one launcher) are one program.
    """
    table = ProcessTable(root)
    below = set(table.descendants(pid)) - {pid}
    pythons = {
        stat.pid: argv
        for stat, argv in visible_processes(table, agent_pid)
        if stat.pid in below
        and proc.is_python(proc.read_link(f"{root}/{stat.pid}/exe"), stat.comm, argv)
    }
    programs: Dict[Tuple[str, ...], int] = {}
    for one in sorted(pythons):
        if not any(up in pythons for up in table.ancestors(one)):
            programs.setdefault(tuple(pythons[one]), one)
    return [(one, command_text(pythons[one], 60)) for one in programs.values()]


def waiting_note(root: str, stat: proc.Stat) -> Optional[str]:
    """Says so when the process given is no Python and only waits for one below it."""
    argv = read_argv(root, stat.pid)
    if proc.is_python(proc.read_link(f"{root}/{stat.pid}/exe"), stat.comm, argv):
        return None
    for pid in ProcessTable(root).descendants(stat.pid)[1:]:
        child = proc.read_stat(root, pid)
        if child is None:
            continue
        words = read_argv(root, pid)
        if proc.is_python(proc.read_link(f"{root}/{pid}/exe"), child.comm, words):
            text = command_text(words, 80)
            return f"pid {stat.pid} ({stat.comm}) only waits; the work is in pid {pid} ({text})"
    return f"pid {stat.pid} ({stat.comm}) {NO_PYTHON}"


def _by_match(root: str, pattern: str, agent_pid: int) -> Answer:
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        return f"--match {pattern}: not a regular expression: {error}"
    table = ProcessTable(root)
    hits = {
        stat.pid: stat
        for stat, argv in visible_processes(table, agent_pid)
        if wanted.search(" ".join(argv))
    }
    tops = [
        stat for stat in hits.values() if not any(up in hits for up in table.ancestors(stat.pid))
    ]
    if not tops:
        return f"no process whose command line matches {pattern}"
    # Prefer Python over the shell or terminal that carries the same words.
    newest = max(tops, key=lambda stat: stat.start_ticks)
    note = (
        f"{len(tops)} match; the newest is taken" if len(tops) > 1 else waiting_note(root, newest)
    )
    return _with(root, "match", newest, note)


def _by_log(root: str, path: str, agent_pid: int) -> Answer:
    table = ProcessTable(root)
    allowed = {stat.pid for stat, _argv in visible_processes(table, agent_pid)}
    writers = [pid for pid in writers_of(root, path) if pid in allowed]
    if not writers:
        if os.path.exists(path):
            return Found(
                "log",
                None,
                None,
                os.path.basename(path),
                note=f"no process has {path} open for writing",
            )
        return f"no file {path}, and no process that has it open"
    source = upstream_of(root, writers[0])
    stat = table.stats.get(source)
    if stat is None:
        return f"the process that writes {path} has just gone"
    top = top_of(table, stat)
    note = None if source == writers[0] else f"pid {writers[0]} writes it for pid {source}"
    return _with(root, "log", top, note)


def _by_tmux(root: str, session: str, _agent_pid: int) -> Answer:
    pane, problem = pane_of(session)
    if pane is None:
        return problem
    table = ProcessTable(root)
    shell = table.stats.get(pane.pid)
    if shell is None:
        return f"tmux {session}: the process of pane {pane.name} ({pane.pid}) is not there"
    below = [table.stats[pid] for pid in table.descendants(pane.pid)[1:]]
    front = [stat for stat in below if stat.pgrp == shell.tpgid]
    chosen = (front or below or [shell])[0]
    return _with(root, "tmux", chosen, f"pane {pane.name}")


def _newest(root: str, agent_pid: int) -> Answer:
    table = ProcessTable(root)
    best, others = find_newest(table, agent_pid)
    if best is None:
        return (
            "no training run found: no process has a run directory, a GPU or torch,"
            " or looks like training"
        )
    return _with(root, "newest", best.stat, _others_note(best.why, others))


def _others_note(why: str, others: List[Tuple[int, str]]) -> str:
    if not others:
        return why
    named = ", ".join(f"{pid} ({command})" for pid, command in others[:3])
    return f"{why}; also there: {named}"
