"""Processes that may be a training run, best first, when nobody said which one."""

from __future__ import annotations

import os
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from dflash_watch.agent import proc
from dflash_watch.agent.mask import command_text
from dflash_watch.agent.memory import read_argv, read_maps
from dflash_watch.agent.rundir import run_dir_of
from dflash_watch.agent.table import ProcessTable, is_ours

NOT_A_RUN = frozenset(
    [
        "ssh",
        "sshd",
        "sshd-session",
        "scp",
        "sftp",
        "pct",
        "lxc-attach",
        "lxc-start",
        "docker",
        "podman",
        "kubectl",
        "tmux",
        "screen",
        "mosh",
        "vim",
        "vi",
        "nvim",
        "nano",
        "emacs",
        "less",
        "more",
        "tail",
        "grep",
        "sudo",
        "su",
        "watch",
        "htop",
        "top",
        "nvtop",
        "nvitop",
        "gdb",
        "strace",
        "py-spy",
        "systemd",
    ]
)
TOOL_MODULES = frozenset(
    [
        "pytest",
        "mypy",
        "ruff",
        "pip",
        "pyright",
        "pylsp",
        "jedi",
        "debugpy",
        "ipython",
        "jupyter",
        "jupyter-lab",
    ]
)
LAUNCHER = re.compile(
    r"torchrun|torch\.distributed|accelerate|deepspeed|colossalai|horovodrun|mpirun|srun"
)
TRAINING = re.compile(
    r"dflash[-_]train|train|finetun|fine_tun|pretrain|\bsft\b|\bdpo\b|\bgrpo\b|\bppo\b|distill|torchrun|deepspeed"
    r"|accelerate|lightning|llamafactory|axolotl|run_(?:clm|mlm|glue|seq2seq)",
    re.IGNORECASE,
)
FRAMEWORK = re.compile(r"libtorch|libc10|jaxlib|libtensorflow|libpaddle|libmindspore")


class Suspect(NamedTuple):
    """A candidate, how good, and why."""

    score: int
    stat: proc.Stat
    why: str


def visible_processes(table: ProcessTable, agent_pid: int) -> Iterator[Tuple[proc.Stat, List[str]]]:
    """Processes that could be a run at all, with their words.

    Left out: the agent, its children and everything above it; watchdogs; the ways people come in
    (ssh, pct, tmux, editors); kernel threads and zombies.
    """
    hidden = set(table.ancestors(agent_pid)) | set(table.descendants(agent_pid)) | {agent_pid}
    for stat in table.stats.values():
        if (
            stat.pid in hidden
            or stat.state in "ZX"
            or stat.comm in NOT_A_RUN
            or stat.comm.startswith("tmux")
        ):
            continue
        argv = read_argv(table.root, stat.pid)
        if argv and not is_ours(argv) and os.path.basename(argv[0]) not in NOT_A_RUN:
            yield stat, argv


def find_newest(
    table: ProcessTable, agent_pid: int
) -> Tuple[Optional[Suspect], List[Tuple[int, str]]]:
    """The best candidate (newest of the best kind) and the other roots: pid and command."""
    suspects: Dict[int, Suspect] = {}
    for stat, argv in visible_processes(table, agent_pid):
        suspect = judge(table.root, stat, argv)
        if suspect is None:
            continue
        top = top_of(table, stat)
        known = suspects.get(top.pid)
        if known is None or known.score < suspect.score:
            suspects[top.pid] = Suspect(*placed(table.root, suspect, top))
    ranked = sorted(
        suspects.values(), key=lambda each: (each.score, each.stat.start_ticks), reverse=True
    )
    if not ranked:
        return None, []
    others = [
        (each.stat.pid, command_text(read_argv(table.root, each.stat.pid), 60))
        for each in ranked[1:]
        if each.score > 1
    ]
    return ranked[0], others


def placed(root: str, suspect: Suspect, top: proc.Stat) -> Tuple[int, proc.Stat, str]:
    """The suspect with its launcher; one in a container seen from outside ranks below all others.

    Its paths and numbers mean something else in there: the way to watch it leads inside.
    """
    ours, theirs = (proc.read_link(f"{root}/{who}/ns/pid") for who in ("self", top.pid))
    if ours is None or theirs is None or ours == theirs:
        return suspect.score, top, suspect.why
    return suspect.score - 10, top, suspect.why + "; inside a container: better watched from there"


def judge(root: str, stat: proc.Stat, argv: List[str]) -> Optional[Suspect]:
    """How much this process looks like training; None: not at all."""
    if not proc.is_python(proc.read_link(f"{root}/{stat.pid}/exe"), stat.comm, argv):
        return None
    if _is_tool(argv):
        return None
    if run_dir_of(root, [stat.pid]):
        return Suspect(5, stat, "has a run directory open")
    links = [
        proc.read_link(f"{root}/{stat.pid}/fd/{fd}") or ""
        for fd in proc.list_fds(root, stat.pid) or []
    ]
    if any(re.match(r"/dev/nvidia\d", link) for link in links):
        return Suspect(4, stat, "has a GPU open")
    maps = read_maps(root, stat.pid)
    if FRAMEWORK.search(maps):
        return Suspect(3, stat, "has a training framework loaded")
    if any(TRAINING.search(os.path.basename(word)) for word in argv[1:6]):
        return Suspect(2, stat, "its command looks like training")
    output = proc.read_link(f"{root}/{stat.pid}/fd/1") or ""
    if output.startswith("/") and not output.startswith(("/dev/", "/proc/")):
        return Suspect(1, stat, f"a Python program that writes {output}")
    return None


def trains(root: str, pid: int) -> bool:
    """Does it have a GPU open, or a framework or Python library loaded, whatever it is called."""
    links = [proc.read_link(f"{root}/{pid}/fd/{fd}") or "" for fd in proc.list_fds(root, pid) or []]
    if any(re.match(r"/dev/nvidia\d", link) for link in links):
        return True
    maps = read_maps(root, pid)
    return bool(FRAMEWORK.search(maps)) or "libpython" in maps


def _is_tool(argv: List[str]) -> bool:
    words = [os.path.basename(word) for word in argv[:4]]
    return any(word in TOOL_MODULES for word in words)


def top_of(table: ProcessTable, stat: proc.Stat) -> proc.Stat:
    """The launcher or first process of what `stat` belongs to: Python parents upward."""
    top = stat
    for pid in table.ancestors(stat.pid):
        parent = table.stats.get(pid)
        if parent is None:
            break
        argv = read_argv(table.root, pid)
        exe = proc.read_link(f"{table.root}/{pid}/exe")
        same = argv[1:3] == read_argv(table.root, stat.pid)[1:3]
        if _is_tool(argv) or is_ours(argv) or not proc.is_python(exe, parent.comm, argv):
            break
        if not same and not LAUNCHER.search(" ".join(argv[:6])):
            break
        top = parent
    return top
