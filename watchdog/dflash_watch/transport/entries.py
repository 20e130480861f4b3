"""Ways into a container, as data: how to look from outside, how to enter, how to read a failure.

Both are shell text in one constant script that gets the name as its first argument. It says what it
sees in lines `DFLASH-LOOK key value` on standard error; nothing else that the host prints counts.
It enters only what runs, or what the host would not tell about: a process that enters a frozen
container hangs until the thaw.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from dflash_watch.errors import UsageError
from dflash_watch.transport.base import Reason, TransportError, plain

EXIT_NOT_ENTERED = 96
_MARK = "DFLASH-LOOK"

# Built-in commands wherever they can do it: on a busy host each process costs more than the rest.
_SAY = f"""PATH=$PATH:/usr/local/bin:/usr/sbin:/sbin; LC_ALL=C; export PATH LC_ALL
n=$1; shift; state=; tool=; s=; u=; h=
say() {{ printf '{_MARK} %s %s\\n' "$1" "$2" >&2; }}
have() {{ command -v "$1" >/dev/null && tool=$1; }}
while read -r k u _; do [ "$k" = Uid: ] && break; done 2>/dev/null </proc/self/status
[ "${{u:-$(id -u)}}" = 0 ] || s='sudo -n'
read -r h 2>/dev/null </proc/sys/kernel/hostname; say host "${{h:-$(hostname)}}"
"""

# init's cgroup says where the freezer state is; the path is never built from the name.
_FROZEN = """
frozen() {
  while IFS=: read -r _ kinds path; do
    case ,$kinds, in
    *,freezer,*)
      now=
      read -r now 2>/dev/null <"/sys/fs/cgroup/freezer$path/freezer.state"
      [ "$now" = FROZEN ] && return 0 ;;
    ,,) for at in /sys/fs/cgroup /sys/fs/cgroup/unified; do
          [ -r "$at$path/cgroup.events" ] || continue
          while read -r key now; do [ "$key $now" = 'frozen 1' ] && return 0
          done <"$at$path/cgroup.events"
        done ;;
    esac
  done < "/proc/$1/cgroup"
  return 1
}
"""

_PCT_LOOK = rf"""{_FROZEN}
have lxc-attach; have pct
for c in /etc/pve/nodes/*/lxc/"$n".conf; do
  [ -e "$c" ] && say node "$(echo "$c" | cut -d/ -f5)"
done
own=/etc/pve/lxc/$n.conf
[ -r "$own" ] && say lock "$(sed -n '/^\[/q;s/^lock: *//p' "$own")"
if info=$($s lxc-info -n "$n" -s -p 2>&1); then
  init=
  case $info in *PID:*) for word in ${{info##*PID:}}; do init=$word; break; done ;; esac
  if [ -z "$init" ]; then state=stopped
  elif frozen "$init"; then state=frozen
  else state=running; fi
else
  case $info in *"doesn't exist"*)
    if [ -e "$own" ]; then state=stopped; else state=missing; fi ;;
  esac
fi
"""
_PCT_ENTER = """
[ "$tool" = pct ] && exec $s pct exec "$n" -- "$@"
exec $s lxc-attach -n "$n" -- "$@"
"""

_DOCKER_LOOK = r"""
have @TOOL@
state=$(@TOOL@ inspect -f '{{.State.Status}}' -- "$n" 2>&1) || case $state in
  *[Nn]o\ such*) state=missing ;; *) state= ;; esac
"""

_KUBECTL_LOOK = """
have kubectl
rest=$n; space=; inner=
case $n in */*) space=${n%%/*}; rest=${n#*/} ;; esac
pod=${rest%%/*}
case $rest in */*) inner=${rest#*/} ;; esac
state=$(kubectl ${space:+-n "$space"} get pod "$pod" -o 'jsonpath={.status.phase}' 2>&1) ||
  case $state in *NotFound*) state=missing ;; *) state= ;; esac
"""
_KUBECTL_ENTER = """
exec kubectl ${space:+-n "$space"} exec -i "$pod" ${inner:+-c "$inner"} -- "$@"
"""

_INCUS_LOOK = r"""
have incus
if state=$(incus list "^$n\$" -c s -f csv 2>/dev/null); then state=${state:-missing}; fi
"""

_NSENTER_LOOK = f"""{_FROZEN}
have nsenter
if ! [ -e "/proc/$n" ]; then state=missing; elif frozen "$n"; then state=frozen
else state=running; fi
"""

_END = f"""
say tool "${{tool:-none}}"; say state "${{state:-unknown}}"
[ $# = 0 ] && exit 0
case $state in [Rr]unning|RUNNING|[Rr]estarting|RESTARTING|'') ;;
*) exit {EXIT_NOT_ENTERED} ;; esac
[ -n "$tool" ] || exit {EXIT_NOT_ENTERED}
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


class Look(NamedTuple):
    """What the host says of a container; a field is None when it did not say."""

    state: str | None = None
    """`running`, `stopped`, `frozen`, `missing`."""
    tool: str | None = None
    lock: str | None = None
    """Proxmox: `backup`, `snapshot`, `migrate`, ..."""
    node: str | None = None
    """Proxmox: the node of the cluster that has its configuration."""
    host: str | None = None


class Entry(NamedTuple):
    """One way in."""

    name: str
    noun: str
    """What a person calls the thing: `container`, `pod`."""
    look: str
    """Shell text that sets `state` and `tool`; `$n` is the name, `$s` sudo where needed."""
    enter: str
    """Shell text that execs the command in `"$@"` inside."""
    name_pattern: str
    """What a name may be."""

    def script(self) -> str:
        """For `sh -c`; arguments: the name, then the command, or nothing for a mere look."""
        return _SAY + self.look + _END + self.enter


_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="pct",
            noun="container",
            look=_PCT_LOOK,
            enter=_PCT_ENTER,
            name_pattern=r"[0-9]+",
        ),
        Entry(
            name="docker",
            noun="container",
            look=_DOCKER_LOOK.replace("@TOOL@", "docker"),
            enter='exec docker exec -i "$n" "$@"',
            name_pattern=_NAME,
        ),
        Entry(
            name="podman",
            noun="container",
            look=_DOCKER_LOOK.replace("@TOOL@", "podman"),
            enter='exec podman exec -i "$n" "$@"',
            name_pattern=_NAME,
        ),
        Entry(
            name="incus",
            noun="container",
            look=_INCUS_LOOK,
            enter='exec incus exec --mode=non-interactive "$n" -- "$@"',
            name_pattern=_NAME,
        ),
        Entry(
            name="kubectl",
            noun="pod",
            look=_KUBECTL_LOOK,
            enter=_KUBECTL_ENTER,
            name_pattern=rf"({_NAME}/)?{_NAME}(/{_NAME})?",
        ),
        Entry(
            name="nsenter",
            noun="process",
            look=_NSENTER_LOOK,
            enter='exec $s nsenter -t "$n" -m -u -i -p -- "$@"',
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


def entry_argv(entry: Entry, arg: str, command: Sequence[str] = ()) -> tuple[str, ...]:
    """For the host: look at the container and, with a command, run it inside."""
    return ("sh", "-c", entry.script(), "sh", arg, *command)


def parse_look(text: str) -> Look:
    """Facts among whatever else the host printed."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        # Whatever a login shell said last may stand before it on the same line.
        _, mark, rest = line.rpartition(_MARK + " ")
        key, _, value = rest.partition(" ")
        if mark and value.strip():
            facts[key] = value.strip()
    return Look(
        state=_STATES.get(facts.get("state", "").lower()),
        tool=facts.get("tool"),
        lock=facts.get("lock"),
        node=facts.get("node"),
        host=facts.get("host"),
    )


def without_look(stderr: str) -> str:
    """What the tools themselves said, a line each, without control characters."""
    said = [line.partition(_MARK)[0].strip() for line in stderr.splitlines()]
    return "".join(f"{plain(line)}\n" for line in said if line)


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
    if look.tool == "none":
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
