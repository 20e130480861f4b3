"""The second agent: on the host of the run's container, over one more channel.

It lives in a thread of its own, so the run's frames never wait for it. Whatever goes wrong here is
one `HostFrame` with a gap `container-host`, and no reason to be blind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dflash_watch.clock import Clock
from dflash_watch.errors import WatchError
from dflash_watch.frame import Gap, Hello, HostFrame
from dflash_watch.place import Place
from dflash_watch.transport import entries
from dflash_watch.transport.agent_link import AgentLink, agent_config
from dflash_watch.transport.base import Host, Reason, TransportError
from dflash_watch.transport.greeting import agree, read_word
from dflash_watch.transport.openssh import OpenSshHost
from dflash_watch.transport.program import Program

ENTRIES = frozenset({"pct", "docker", "podman", "incus", "nsenter"})
"""Ways into a container whose processes run on the very host that is entered by."""
EVERY_S = 1.0
STEP_S = 1.0
OPEN_S = 10.0
AGAIN_S = 60.0
"""Pause before another attempt after one that failed."""
SOURCE = "container-host"
LOGIN_EACH = "not looked at: through OpenSSH's own client it would be a second login"
"""With a hardware key somebody would have to touch it, again after each loss."""
Put = Callable[[HostFrame], None]


def is_wanted(place: Place) -> bool:
    """Was a second agent asked for where one makes sense?"""
    return place.host_side and place.entry in ENTRIES


def host_config(place: Place, hello: Hello) -> dict[str, Any]:
    """The second agent's configuration (docs/frames.md).

    Args:
        place: of the run.
        hello: of the run's agent, by which the container is found.
    """
    arg = place.entry_arg or ""
    noun = entries.entry_of(place.entry or "", arg).noun
    container: dict[str, Any] = {
        "name": f"{noun} {arg}",
        "agent_pid": hello.agent_pid,
        "agent_start_ticks": hello.agent_start_ticks,
        "pid_namespace": hello.pid_namespace,
    }
    if place.entry == "pct":
        container["lock_file"] = f"/etc/pve/lxc/{arg}.conf"  # the name is digits: entries.py
    return {**agent_config(EVERY_S), "role": "host", "container": container}


class HostSide:
    """The second agent of one connection, from its start to its end.

    Args:
        host: a connected one; belongs to the caller.
        place: of the run.
        program: what is run: the same that runs in the container.
        config: `host_config`.
        put: where its records go.
        note: called with `started` or `told to end`, and its first word.
        clock: this machine's.
    """

    def __init__(
        self,
        host: Host,
        place: Place,
        program: Program,
        config: dict[str, Any],
        put: Put,
        note: Callable[[str, Hello], None],
        clock: Clock,
    ) -> None:
        self._host, self._place, self._program = host, place, program
        self._config, self._clock = config, clock
        self._put, self._note = put, note
        self._hello: Hello | None = None
        self._where = f"{place.host or 'this machine'}, host side"
        self._closing = threading.Event()
        self._link: AgentLink | None = None
        self._gpus_wanted = self._gpus_asked = False
        self._frozen = False
        self._thread = threading.Thread(target=self._run, name="host-side", daemon=True)
        self._thread.start()

    @property
    def is_frozen(self) -> bool:
        """The host says, now, that nothing in the container runs: its silence is no loss."""
        return self._frozen and self._link is not None

    def want_gpus(self, *, on: bool) -> None:
        """Read the GPUs on the host, or no longer."""
        if on != self._gpus_wanted:
            self._gpus_wanted = on
            self._wake()

    def close(self) -> None:
        """End it; takes a moment at most, whatever the host does."""
        self._closing.set()
        self._wake()
        self._thread.join(0.2)

    def _wake(self) -> None:
        if (link := self._link) is not None:
            link.wake()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._serve()
            except WatchError as error:
                self._frozen = False
                self._tell(error)
            self._closing.wait(AGAIN_S)

    def _serve(self) -> None:
        """One agent from start to end; returns when closing."""
        if isinstance(self._host, OpenSshHost):
            raise TransportError(Reason.ENTRY_FAILED, LOGIN_EACH)
        stream = self._host.open(("sh", "-c", self._program.script), OPEN_S)
        place = Place(host=self._where)
        link = AgentLink(stream, place, self._clock.monotonic_s())
        link.start(self._program.code, self._config)
        self._link, self._gpus_asked = link, False
        try:
            while not self._closing.is_set():
                for data in link.step(STEP_S, self._clock.monotonic_s()):
                    self._take(data)
                if self._gpus_asked != self._gpus_wanted:
                    self._gpus_asked = self._gpus_wanted
                    link.ask("gpus", on=self._gpus_wanted)
        finally:
            self._link = None
            hello, self._hello = self._hello, None
            if hello is not None:
                self._note("told to end", hello)
            link.stop()

    def _take(self, data: bytes) -> None:
        word = read_word(data, self._where)
        if isinstance(word, Hello) and self._hello is None:
            agree(word, self._program.sha256, self._where)
            self._hello = word
            self._note("started", word)
        elif isinstance(word, HostFrame) and self._hello is not None:
            self._frozen = word.container is not None and bool(word.container.frozen)
            if not self._closing.is_set():
                self._put(word)

    def _tell(self, error: WatchError) -> None:
        """Why there is no view of the host, as a look that saw nothing."""
        if self._closing.is_set():
            return
        reason = error.message
        if isinstance(error, TransportError) and error.reason is Reason.SESSION_REFUSED:
            reason = "sshd opens no further session on this connection (MaxSessions)"
        t = self._clock.wall_s()
        gaps = (Gap(source=SOURCE, reason=reason),)
        self._put(HostFrame(seq=0, t=t, boot_s=0.0, gaps=gaps))
