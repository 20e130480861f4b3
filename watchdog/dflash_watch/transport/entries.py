"""Ways into a container, as data: how to enter, how to look from outside, how to read a failure.

A look is one constant shell script that gets the name as its argument and prints lines
`DFLASH-LOOK key value`; nothing else that a login shell says counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from dflash_watch.errors import UsageError
from dflash_watch.model import Record
from dflash_watch.transport.base import Reason, TransportError

_MARK = "DFLASH-LOOK"
_SAY = f"""PATH=$PATH:/usr/local/bin:/usr/sbin:/sbin; LC_ALL=C; export PATH LC_ALL; n=$1
say() {{ printf '{_MARK} %s %s\\n' "$1" "$2"; }}
say uid "$(id -u)"; say host "$(hostname)"
"""

# init's cgroup says where the freezer state is; the path is never built from the name.
_FROZEN = """
frozen() {
  while IFS=: read -r _ kinds path; do
    case ,$kinds, in
    *,freezer,*)
      state=$(cat "/sys/fs/cgroup/freezer$path/freezer.state" 2>/dev/null)
      [ "$state" = FROZEN ] && return 0 ;;
    ,,) for at in /sys/fs/cgroup /sys/fs/cgroup/unified; do
          grep -q '^frozen 1' "$at$path/cgroup.events" 2>/dev/null && return 0
        done ;;
    esac
  done < "/proc/$1/cgroup"
  return 1
}
"""

_PCT_LOOK = f"""{_SAY}{_FROZEN}
s=; [ "$(id -u)" = 0 ] || s='sudo -n'
for t in lxc-attach pct; do command -v "$t" >/dev/null && say tool "$t"; done
for c in /etc/pve/nodes/*/lxc/"$n".conf; do
  [ -e "$c" ] && say node "$(echo "$c" | cut -d/ -f5)"
done
own=/etc/pve/lxc/$n.conf
[ -r "$own" ] && say lock "$(sed -n '/^\\[/q;s/^lock: *//p' "$own")"
if ! info=$($s lxc-info -n "$n" -s -p 2>&1); then
  case $info in *"doesn't exist"*)
    if [ -e "$own" ]; then say state stopped; else say state missing; fi ;;
  esac
  exit 0
fi
init=$(echo "$info" | sed -n 's/^PID: *//p')
if [ -z "$init" ]; then say state stopped
elif frozen "$init"; then say state frozen
else say state running; fi
"""

_DOCKER_LOOK = f"""{_SAY}
command -v @TOOL@ >/dev/null && say tool @TOOL@
state=$(@TOOL@ inspect -f '{{{{.State.Status}}}}' -- "$n" 2>&1) || case $state in
  *[Nn]o\\ such*) state=missing ;; *) exit 0 ;; esac
say state "$state"
"""

_KUBECTL_LOOK = f"""{_SAY}
command -v kubectl >/dev/null && say tool kubectl
pod=${{n#*/}}; set --; [ "$pod" = "$n" ] || set -- -n "${{n%%/*}}"
state=$(kubectl "$@" get pod "${{pod%%/*}}" -o 'jsonpath={{.status.phase}}' 2>&1) || case $state in
  *NotFound*) state=missing ;; *) exit 0 ;; esac
say state "$state"
"""

_INCUS_LOOK = f"""{_SAY}
command -v incus >/dev/null && say tool incus
state=$(incus list "^$n\\$" -c s -f csv 2>/dev/null) || exit 0
say state "${{state:-missing}}"
"""

_NSENTER_LOOK = f"""{_SAY}{_FROZEN}
command -v nsenter >/dev/null && say tool nsenter
if ! [ -e "/proc/$n" ]; then say state missing; elif frozen "$n"; then say state frozen
else say state running; fi
"""

_STATES = {
    "running": "running",
    "restarting": "running",
    "frozen": "frozen",
    "paused": "frozen",
    "missing": "missing",
    "exited": "stopped",
    "created": "stopped",
    "dead": "stopped",
    "succeeded": "stopped",
    "failed": "stopped",
    "pending": "stopped",
    "stopped": "stopped",
}


class Look(Record, frozen=True, kw_only=True):
    """What the host says of a container; a field is None when it did not say."""

    state: str | None = None
    """`running`, `stopped`, `frozen`, `missing`."""
    tool: str | None = None
    lock: str | None = None
    """Proxmox: `backup`, `snapshot`, `migrate`, ..."""
    node: str | None = None
    """Proxmox: the node of the cluster that has its configuration."""
    host: str | None = None
    uid: int | None = None


class Entry(Record, frozen=True, kw_only=True):
    """One way in."""

    name: str
    noun: str
    """What a person calls the thing: `container`, `pod`."""
    look: str
    """Script for `sh -c`; `$1` is the name."""
    enter: Callable[[str, Look], tuple[str, ...]]
    """Argument list before the command."""
    name_pattern: str
    """What a name may be."""


def _pct(name: str, look: Look) -> tuple[str, ...]:
    sudo = ("sudo", "-n") if look.uid not in (None, 0) else ()
    if look.tool == "lxc-attach":
        return (*sudo, "lxc-attach", "-n", name, "--")
    # The PATH of a shell that is no login shell may lack sbin; sudo brings its own.
    path = () if sudo else ("sh", "-c", 'PATH=$PATH:/usr/sbin:/sbin; exec "$@"', "sh")
    return (*sudo, *path, "pct", "exec", name, "--")


def _kubectl(name: str, look: Look) -> tuple[str, ...]:
    del look
    parts = name.split("/")
    space = ("-n", parts[0]) if len(parts) > 1 else ()
    inner = ("-c", parts[2]) if len(parts) > 2 else ()
    return ("kubectl", *space, "exec", "-i", parts[min(1, len(parts) - 1)], *inner, "--")


def _prefix(*words: str) -> Callable[[str, Look], tuple[str, ...]]:
    return lambda name, _: tuple(name if word == "{}" else word for word in words)


_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(name="pct", noun="container", look=_PCT_LOOK, enter=_pct, name_pattern=r"[0-9]+"),
        Entry(
            name="docker",
            noun="container",
            look=_DOCKER_LOOK.replace("@TOOL@", "docker"),
            enter=_prefix("docker", "exec", "-i", "{}"),
            name_pattern=_NAME,
        ),
        Entry(
            name="podman",
            noun="container",
            look=_DOCKER_LOOK.replace("@TOOL@", "podman"),
            enter=_prefix("podman", "exec", "-i", "{}"),
            name_pattern=_NAME,
        ),
        Entry(
            name="incus",
            noun="container",
            look=_INCUS_LOOK,
            enter=_prefix("incus", "exec", "--mode=non-interactive", "{}", "--"),
            name_pattern=_NAME,
        ),
        Entry(
            name="kubectl",
            noun="pod",
            look=_KUBECTL_LOOK,
            enter=_kubectl,
            name_pattern=rf"({_NAME}/)?{_NAME}(/{_NAME})?",
        ),
        Entry(
            name="nsenter",
            noun="process",
            look=_NSENTER_LOOK,
            enter=_prefix("nsenter", "-t", "{}", "-m", "-u", "-i", "-p", "--"),
            name_pattern=r"[0-9]+",
        ),
    )
}


def entry_of(name: str, arg: str) -> Entry:
    """The row of the table, with its name checked.

    Raises:
        UsageError: no such entry, or the name cannot be one.
    """
    entry = ENTRIES.get(name)
    if entry is None:
        raise UsageError(f"{name}: unknown entry, expected one of {', '.join(ENTRIES)}")
    if not re.fullmatch(entry.name_pattern, arg):
        hint = "a Proxmox container has a number, see `pct list`" if name == "pct" else None
        raise UsageError(f"{arg!r}: not a name of a {entry.noun} for {name}", hint=hint)
    return entry


def look_argv(entry: Entry, arg: str) -> tuple[str, ...]:
    """The look as an argument list for the host."""
    return ("sh", "-c", entry.look, "sh", arg)


def parse_look(text: str) -> Look:
    """Facts among whatever else the host printed."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        mark, _, rest = line.partition(" ")
        key, _, value = rest.partition(" ")
        if mark == _MARK and value.strip():
            facts[key] = value.strip()
    uid = facts.get("uid", "")
    return Look(
        state=_STATES.get(facts.get("state", "").lower()),
        tool=facts.get("tool"),
        lock=facts.get("lock"),
        node=facts.get("node"),
        host=facts.get("host"),
        uid=int(uid) if uid.isdigit() else None,
    )


def assess_look(entry: Entry, arg: str, look: Look) -> TransportError | None:
    """Why the container cannot be entered now; None if it can, or if nothing is known."""
    what, where = f"{entry.noun} {arg}", look.host or "this host"
    if look.state == "frozen":
        why = f"locked: {look.lock}" if look.lock else "backup or snapshot?"
        return TransportError(
            Reason.CONTAINER_FROZEN, f"{what} is frozen ({why})", hint="it goes on when thawed"
        )
    if look.state == "stopped":
        start = {"pct": f"pct start {arg}", "kubectl": None}.get(
            entry.name, f"{entry.name} start {arg}"
        )
        return TransportError(
            Reason.CONTAINER_STOPPED, f"{what} is not running on {where}", hint=start
        )
    if look.state == "missing":
        return TransportError(
            Reason.CONTAINER_MISSING,
            f"{what} does not exist on {where}" + (f"; it is on {look.node}" if look.node else ""),
            hint=_LISTS.get(entry.name),
        )
    if look.tool is None and look.uid is not None:
        return TransportError(
            Reason.ENTRY_FAILED,
            f"{entry.name}: not found on {where}",
            hint="is this the host of the container?",
        )
    return None


_LISTS = {
    "pct": "see `pct list` there",
    "docker": "see `docker ps -a` there",
    "podman": "see `podman ps -a` there",
    "incus": "see `incus list` there",
    "kubectl": "see `kubectl get pods` there",
}

# Read from top to bottom; 1, 2, 126, 127 and 255 mean different things to each tool.
_FAILURES: Sequence[tuple[str, Reason, str]] = (
    (r"DFLASH-NO-PYTHON", Reason.NO_PYTHON, "no Python 3.8 or newer there"),
    (
        r"not running|is not running|container state improper",
        Reason.CONTAINER_STOPPED,
        "not running",
    ),
    (r"is paused|frozen", Reason.CONTAINER_FROZEN, "paused"),
    (
        r"(?i)no such container|does not exist|doesn't exist|NotFound|instance not found",
        Reason.CONTAINER_MISSING,
        "does not exist",
    ),
    (r"(?i)a password is required|sudo: .*not allowed", Reason.ENTRY_FAILED, "sudo is not allowed"),
    (
        r"(?i)permission denied|must be root|EACCES",
        Reason.ENTRY_FAILED,
        "no permission (root needed?)",
    ),
    (
        r"Failed to get init pid|Failed to get attach context",
        Reason.CONTAINER_STOPPED,
        "not running",
    ),
    (
        r"Failed to exec|executable file not found|no such file",
        Reason.ENTRY_FAILED,
        "no shell inside",
    ),
    (r"(?i)command not found|: not found", Reason.ENTRY_FAILED, "a program is missing"),
)


def read_failure(where: str, stderr: str, noise: str, status: int | None) -> TransportError:
    """Class and words for a command that ended before the agent spoke."""
    last = next((line for line in reversed((stderr or noise).strip().splitlines()) if line), "")
    said = f": {last.strip()[:200]}" if last else ""
    if status == 97:
        stderr += " DFLASH-NO-PYTHON"
    for pattern, reason, words in _FAILURES:
        if re.search(pattern, stderr):
            text = f"{where}: {words}" + ("" if reason is Reason.NO_PYTHON else said)
            hint = "install python3 there" if reason is Reason.NO_PYTHON else None
            return TransportError(reason, text, hint=hint)
    code = "was cut off" if status is None else f"ended with status {status}"
    reason = Reason.LOST if status is None else Reason.ENTRY_FAILED
    return TransportError(reason, f"{where}: the entry {code} before the agent spoke{said}")
