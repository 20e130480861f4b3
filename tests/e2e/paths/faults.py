"""The list of faults (docs/transports.md shows it): pure data over `Ground`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from e2e.paths.ground import Fault, Ground
from e2e.paths.relay import BOTH, DOWN, UP
from e2e.watched import until

CUT = "cut|key exchange|hung up|closes new|refuse|broke off"


def _signal_sessions(number: int, ground: Ground) -> None:
    for process in ground.sshd.sessions():
        process.send_signal(number)


def _signal_agent(number: int, ground: Ground) -> None:
    agents = ground.agents()
    ground.kept["agent"] = agents[0].host_pid
    os.kill(agents[-1].host_pid, number)


def _continue_agent(ground: Ground) -> None:
    os.kill(ground.kept["agent"], signal.SIGCONT)


def _relay(ground: Ground, *, cut: bool = False, reset: bool = False, **state: object) -> None:
    for name, value in state.items():
        setattr(ground.relay, name, value)
    if cut:
        ground.relay.cut(reset=reset)


def _heal(ground: Ground) -> None:
    ground.relay.heal()


def _heal_cut(ground: Ground) -> None:
    """Bytes were lost: TCP below would have ended by now."""
    ground.relay.heal()
    ground.relay.cut()


def _reconfigure(ground: Ground, **words: object) -> None:
    ground.sshd.configure(**words)  # type: ignore[arg-type]  # keywords of configure


def _login(script: str, ground: Ground) -> None:
    ground.sshd.noisy(script)
    ground.sshd.cut()


def _quiet(ground: Ground) -> None:
    ground.sshd.noisy("")


def _keys_gone(ground: Ground) -> None:
    keys = ground.sshd.work / "authorized_keys"
    keys.rename(keys.with_suffix(".off"))
    ground.sshd.cut()


def _keys_back(ground: Ground) -> None:
    keys = ground.sshd.work / "authorized_keys"
    keys.with_suffix(".off").rename(keys)


def _throttle(ground: Ground) -> None:
    ground.relay.is_rude = True  # until both places are taken
    ground.sshd.configure(max_startups="2:100:2")
    port = ground.sshd.port
    taken = ground.kept["strangers"] = []
    while len(taken) < 2:  # a look at the port may still count
        stranger = socket.create_connection(("127.0.0.1", port), 30)
        if stranger.recv(4) == b"SSH-":
            taken.append(stranger)
    ground.relay.is_rude = False
    ground.relay.cut()


def _unthrottle(ground: Ground) -> None:
    for stranger in ground.kept.pop("strangers"):
        stranger.close()


def _restart_sshd(ground: Ground) -> None:
    ground.sshd.down()
    ground.sshd.up()


def _stop_container(ground: Ground) -> None:
    ground.run.kill()
    ground.container.stop()


def _start_container(ground: Ground) -> None:
    ground.container.start()
    ground.start_run()


def _migrate(ground: Ground) -> None:
    _stop_container(ground)
    home = ground.container.lxcpath / ground.container.id
    home.rename(home.with_name("away"))


def _recreate(ground: Ground) -> None:
    home = ground.container.lxcpath / ground.container.id
    home.with_name("away").rename(home)
    _start_container(ground)


_HIDE_PYTHON = "for p in /usr/bin/python3*; do mv $p /usr/bin/off.${p##*/}; done"
_SHOW_PYTHON = "for p in /usr/bin/off.*; do mv $p /usr/bin/${p##*/off.}; done"
_FILL = """for d in /tmp /root /var/tmp; do mount -t tmpfs -o size=8k none $d
cat /dev/zero > $d/full 2>/dev/null; done"""
_EMPTY = "umount /tmp /root /var/tmp"


def _inside(script: str, ground: Ground, *, cut: bool = False) -> None:
    ground.in_container(script)
    if cut:
        ground.sshd.cut()


def _limit_processes(ground: Ground) -> None:
    """No room is left once the old agent has gone."""
    ground.relay.is_rude = True
    ground.sshd.cut()
    until(lambda: not ground.agents(), "the agent's end")
    now = ground.container._lxc("cgroup", "pids.current").strip()
    ground.container._lxc("cgroup", "pids.max", now)
    ground.relay.is_rude = False
    ground.relay.cut()


def _free_processes(ground: Ground) -> None:
    ground.container._lxc("cgroup", "pids.max", "max")


def _pause_watcher(ground: Ground) -> None:
    watch = ground.watched._watches[-1]
    watch.process.send_signal(signal.SIGSTOP)
    time.sleep(30)
    watch.process.send_signal(signal.SIGCONT)


def _without_pct(ground: Ground) -> None:
    pct = ground.sshd.bin / "pct"
    pct.rename(pct.with_name("no-pct"))
    ground.sshd.cut()


def _with_pct(ground: Ground) -> None:
    with suppress(FileNotFoundError):
        pct = ground.sshd.bin / "pct"
        pct.with_name("no-pct").rename(pct)


_NOISE = "head -c 1000000 /dev/urandom; head -c 1000000 /dev/urandom >&2\n"
_TICKER = "(i=0; while [ $i -lt 400 ]; do echo tick $i; i=$((i+1)); sleep 0.05; done) &\n"

FAULTS: tuple[Fault, ...] = (
    # -- the connection
    Fault("session cut", "SIGKILL to the connection's sshd", lambda g: g.sshd.cut(), says=CUT),
    Fault("connection reset", "RST from a middlebox",
          partial(_relay, cut=True, reset=True), says=CUT),
    Fault("cut in mid-frame", "middlebox ends the connection after 7 bytes of a packet",
          partial(_relay, cut_after=7), says=CUT),
    Fault("bytes corrupted", "one byte of a packet flipped", partial(_relay, corrupt_next=True),
          says=CUT),
    Fault("session frozen", "SIGSTOP to the connection's sshd",
          partial(_signal_sessions, signal.SIGSTOP), says="no answer",
          afterwards=partial(_signal_sessions, signal.SIGCONT)),
    Fault("sshd frozen", "SIGSTOP to listener and sessions",
          lambda g: g.sshd.freeze(), lambda g: g.sshd.thaw(), "host or sshd is frozen"),
    Fault("sshd stopped", "listener and sessions killed",
          lambda g: g.sshd.down(), lambda g: g.sshd.up(), CUT, 18.0),
    Fault("sshd restarted", "killed and started at once", _restart_sshd, says=CUT),
    Fault("black hole", "packets vanish both ways",
          partial(_relay, held=BOTH), _heal, "no answer", 20.0),
    Fault("half-open, nothing arrives there", "packets to the host vanish",
          partial(_relay, held=frozenset({UP})), _heal, "goes on sending"),
    Fault("half-open, nothing comes back", "packets from the host vanish",
          partial(_relay, held=frozenset({DOWN})), _heal, "no answer"),
    Fault("middlebox lost its state", "takes everything, passes nothing on",
          partial(_relay, swallowed=BOTH), _heal_cut, "no answer"),
    Fault("port silent", "connections are taken, no banner",
          partial(_relay, cut=True, is_mute=True), _heal_cut, "banner|no answer"),
    Fault("port closes at once", "connections are taken and closed",
          partial(_relay, cut=True, is_rude=True), _heal, "closes|hung up|cut"),
    Fault("slow way", "3 s each way", partial(_relay, delay_s=3.0), _heal, None, 20.0),
    # -- login
    Fault("host key swapped", "sshd comes back with another key",
          lambda g: g.sshd.swap_host_key(), lambda g: g.sshd.configure(),
          r"host key changed \(was SHA256"),
    Fault("key withdrawn", "authorized_keys gone, connection cut",
          _keys_gone, _keys_back, "login as root refused"),
    Fault("sessions used up", "MaxSessions 0, sshd restarted",
          partial(_reconfigure, max_sessions=0), lambda g: g.sshd.configure(),
          "no further session"),
    Fault("logins throttled", "MaxStartups full, connection cut",
          _throttle, _unthrottle, "MaxStartups"),
    Fault("no common algorithm", "sshd comes back with a key exchange of long ago",
          partial(_reconfigure, extra="KexAlgorithms diffie-hellman-group1-sha1\n"),
          lambda g: g.sshd.configure(), "no common algorithm"),
    Fault("forced command", "ForceCommand of another program",
          partial(_reconfigure, extra="ForceCommand echo backups only\n"),
          lambda g: g.sshd.configure(), "backups only"),
    # -- login shell
    Fault("noisy login shell", "1 MB of bytes on each output, connection cut",
          partial(_login, _NOISE), says=CUT,
          afterwards=_quiet),
    Fault("login shell goes on talking", "a line each 50 ms into the stream, connection cut",
          partial(_login, _TICKER), says=CUT,
          afterwards=_quiet),
    Fault("slow login shell", "6 s, connection cut", partial(_login, "sleep 6\n"), says=CUT,
          afterwards=_quiet),
    Fault("login shell ends", "exit 1 in its start-up file, connection cut",
          partial(_login, "echo go away >&2; exit 1\n"), _quiet, "go away"),
    Fault("descriptors used up", "ulimit -n 4 in the login shell, connection cut",
          partial(_login, "ulimit -n 4\n"), _quiet, "ended with status"),
    Fault("no memory for an agent", "ulimit -v 20000 in the login shell, connection cut",
          partial(_login, "ulimit -v 20000\n"), _quiet,
          "[Mm]emory|no Python"),
    # -- agent and container
    Fault("agent killed", "SIGKILL", partial(_signal_agent, signal.SIGKILL), says="signal 9"),
    Fault("agent stopped", "SIGSTOP", partial(_signal_agent, signal.SIGSTOP), _continue_agent,
          "no answer from the agent"),
    Fault("container frozen", "lxc-freeze, as a backup does",
          lambda g: g.container.freeze(), lambda g: g.container.thaw(), "frozen"),
    Fault("container stopped", "lxc-stop; started again with a new run",
          _stop_container, _start_container, "is not running"),
    Fault("container gone", "its configuration moved away, as a migration does",
          _migrate, _recreate, "does not exist"),
    Fault("no process more", "pids.max reached, connection cut",
          _limit_processes, _free_processes, "[Ff]ork|[Rr]esource|entry"),
    Fault("Python gone", "moved away, connection cut: the run's own is used",
          partial(_inside, _HIDE_PYTHON, cut=True), says=CUT,
          afterwards=partial(_inside, _SHOW_PYTHON)),
    Fault("disk full there", "/tmp, /root, /var/tmp full, connection cut",
          partial(_inside, _FILL, cut=True), says=CUT,
          afterwards=partial(_inside, _EMPTY)),
    Fault("no pct", "pct gone from the host, connection cut: lxc-attach is used", _without_pct,
          says=CUT,
          afterwards=_with_pct),
    # -- the watcher's side
    Fault("watcher stopped", "SIGSTOP for 30 s, SIGCONT", _pause_watcher, hold_s=0.0),
)  # fmt: skip
"""In one watch, one after another."""

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
_OWN_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'
_FULL_HERE = """for d in state incidents; do mkdir -p $d; mount -t tmpfs -o size=8k none $d
cat /dev/zero > $d/full 2>/dev/null; done; exec "$@\""""


def _unname(ground: Ground) -> None:
    ground.hosts.write_text("127.0.0.1 localhost\n")
    ground.relay.cut()


def _name(ground: Ground) -> None:
    ground.hosts.write_text("127.0.0.1 localhost\n127.0.0.1 relayed.invalid\n")


def _clock(ground: Ground) -> dict[str, str]:
    """Environment of a program whose wall clock is set by a file."""
    library = Path(shutil.copy(FAKETIME, ground.container.share))
    clock = ground.container.share / "clock"
    clock.write_text("+0")
    return {
        "LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip


def _step_clock(by: str, ground: Ground) -> None:
    (ground.container.share / "clock").write_text(by)


def _step_there(ground: Ground) -> None:
    words = [f"export {name}={value}\n" for name, value in _clock(ground).items()]
    _login("".join(words), ground)
    time.sleep(8)
    _step_clock("+3600", ground)


APART: tuple[Fault, ...] = (
    Fault("name gone", "host no longer in /etc/hosts, connection cut", _unname, _name,
          "unknown host", host="named",
          prefix=lambda g: ("unshare", "-m", "sh", "-c", _OWN_HOSTS, str(g.hosts))),
    Fault("jump host gone", "the way to the jump host cut and closed",
          partial(_relay, cut=True, is_rude=True), _heal, "gone|closes|cut", host="jumped"),
    Fault("disk full here", "no room for what the watcher keeps, connection cut",
          lambda g: g.sshd.cut(), says=CUT,
          prefix=lambda g: ("unshare", "-m", "sh", "-c", _FULL_HERE, "sh")),
    Fault("clock stepped here", "watcher's wall clock an hour ahead, then back",
          partial(_step_clock, "+3600"), partial(_step_clock, "+0"), hold_s=8.0,
          prefix=lambda g: ("env", *(f"{k}={v}" for k, v in _clock(g).items()))),
    Fault("clock stepped there", "agent's wall clock an hour ahead, after a cut", _step_there,
          says=CUT, afterwards=_quiet, prefix=lambda g: ()),
)  # fmt: skip
"""Each in a watch of its own."""
