"""Why looking into a process is refused, and what would allow it, from what the kernel shows."""

from __future__ import annotations

import os
from typing import Callable, Dict, NamedTuple, Optional, Tuple

from dflash_watch.agent import proc

SYS_PTRACE = 1 << 19


class Rights(NamedTuple):
    """What decides whether one process may read another's memory."""

    own_uid: int
    own_caps: int
    uid: Optional[int]
    caps: int
    """Permitted ones of the target."""
    is_dumpable: bool
    yama: Optional[int]
    same_user_namespace: Optional[bool]
    profile: Optional[str]
    """Security profile of the target (AppArmor, SELinux), if it has one."""


def read_rights(root: str, pid: int) -> Rights:
    """Ours and the target's."""
    own = proc.parse_pairs(proc.read_text(f"{root}/self/status", 8192) or "")
    its = proc.parse_pairs(proc.read_text(f"{root}/{pid}/status", 8192) or "")
    yama = (proc.read_text(f"{root}/sys/kernel/yama/ptrace_scope", 16) or "").strip()
    uid = _first(its, "Uid")
    profile = (proc.read_text(f"{root}/{pid}/attr/current", 256) or "").strip("\0\n ")
    return Rights(
        own_uid=os.geteuid(),
        own_caps=int(own.get("CapEff", "0"), 16),
        uid=uid,
        caps=int(its.get("CapPrm", "0"), 16),
        is_dumpable=_owner(f"{root}/{pid}/io") in (uid, None),
        yama=int(yama) if yama.isdigit() else None,
        same_user_namespace=_same(f"{root}/self/ns/user", f"{root}/{pid}/ns/user"),
        profile=profile if profile not in ("", "unconfined") else None,
    )


_Rule = Tuple[Callable[[Rights], bool], str]
_ALWAYS: Tuple[_Rule, ...] = (
    (
        lambda one: one.yama == 3,
        "ptrace_scope is 3: nobody may look into a process until the next boot",
    ),
)
_WITHOUT_CAPABILITY: Tuple[_Rule, ...] = (
    (lambda one: one.yama == 2, "ptrace_scope is 2: only with CAP_SYS_PTRACE; watch as root"),
    (
        lambda one: one.uid not in (None, one.own_uid) and one.own_uid == 0,
        (
            "root without CAP_SYS_PTRACE and the process is uid {one.uid}'s: add SYS_PTRACE to the"
            " container, or watch as that user"
        ),
    ),
    (
        lambda one: one.uid not in (None, one.own_uid),
        (
            "the process is uid {one.uid}'s and the agent uid {one.own_uid}: watch as that user"
            " or as root"
        ),
    ),
    (
        lambda one: one.yama == 1,
        (
            "ptrace_scope is 1: watch as root, or let the run allow it (PR_SET_PTRACER, as"
            " dflash-train does), or set kernel.yama.ptrace_scope to 0"
        ),
    ),
    (
        lambda one: bool(one.caps & ~one.own_caps),
        "the process has capabilities that the agent lacks: give it CAP_SYS_PTRACE too",
    ),
    (
        lambda one: not one.is_dumpable,
        "the process has made itself unreadable (not dumpable): only with CAP_SYS_PTRACE",
    ),
)
_ELSE: Tuple[_Rule, ...] = (
    (
        lambda one: one.same_user_namespace is False,
        "the process is in another user namespace: watch from inside its container",
    ),
    (
        lambda one: one.profile is not None,
        "its security profile {one.profile} may forbid it: watch from inside its container",
    ),
    (
        lambda _one: True,
        "a security module or seccomp filter forbids it: watch from inside its container, as root",
    ),
)


def why_refused(rights: Rights) -> str:
    """One line: what stands in the way and what would allow it."""
    may_trace = bool(rights.own_caps & SYS_PTRACE)
    rules = [*_ALWAYS, *(() if may_trace else _WITHOUT_CAPABILITY), *_ELSE]
    return next(text for holds, text in rules if holds(rights)).format(one=rights)


def is_hidden(pid: int) -> bool:
    """It lives, though `/proc` does not show it (hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _first(pairs: Dict[str, str], key: str) -> Optional[int]:
    words = pairs.get(key, "").split()
    return int(words[0]) if words and words[0].isdigit() else None


def _owner(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def _same(one: str, other: str) -> Optional[bool]:
    try:
        return os.stat(one).st_ino == os.stat(other).st_ino
    except OSError:
        return None
