"""From a Place to a running agent's streams, and, when they fall silent, why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dflash_watch.errors import WatchError
from dflash_watch.place import Place
from dflash_watch.transport import entries
from dflash_watch.transport.ask import Ask, ask_nobody
from dflash_watch.transport.base import Host, Reason, Stream, TransportError, run
from dflash_watch.transport.command import PrefixHost
from dflash_watch.transport.failures import read_failure
from dflash_watch.transport.local import LocalHost
from dflash_watch.transport.openssh import OpenSshHost

Say = Callable[[str], None]


def open_host(place: Place, ask: Ask = ask_nobody, say: Say = lambda _: None) -> Host:
    """The machine that commands of this place start on.

    Raises:
        UsageError: the place cannot be one.
        TransportError: it cannot be reached.
    """
    if place.entry:
        entries.entry_of(place.entry, place.entry_arg or "")
    host: Host
    if place.host is None:
        host = LocalHost()
    else:
        # paramiko takes 80 ms to import: only where SSH is used.
        from dflash_watch.transport.instead import openssh_instead  # noqa: PLC0415
        from dflash_watch.transport.ssh_connect import connect  # noqa: PLC0415

        try:
            host = connect(place, ask, say)
        except TransportError as error:
            host = openssh_instead(place, error, say)
    return PrefixHost(host, place.exec_prefix) if place.exec_prefix else host


def enter_early(place: Place, command: Sequence[str]) -> Stream | None:
    """Start a command at the place before the rest of this program is loaded.

    None where that cannot be; `open_host` and `enter` then do it, or say why not.
    """
    host: Host = LocalHost() if place.host is None else OpenSshHost(place)
    if place.exec_prefix:
        host = PrefixHost(host, place.exec_prefix)
    try:
        return enter(host, place, command, place.connect_timeout_s)
    except WatchError:
        return None


def enter(host: Host, place: Place, command: Sequence[str], timeout_s: float) -> Stream:
    """Start a command at the place itself.

    In front of a container one script looks and enters, so that it costs one round trip; if it may
    not enter, it ends with `EXIT_NOT_ENTERED` (`read_end` says why).

    Raises:
        TransportError: the command cannot be started.
    """
    if place.entry is None:
        return host.open(command, timeout_s)
    entry = entries.entry_of(place.entry, place.entry_arg or "")
    return host.open(entries.entry_argv(entry, place.entry_arg or "", command), timeout_s)


def read_end(place: Place, stderr: str, noise: str, status: int | None) -> TransportError:
    """Why a command ended before the agent spoke: what the look saw, else what the tools said."""
    arg = place.entry_arg or ""
    if place.entry and status == entries.EXIT_NOT_ENTERED:
        entry = entries.entry_of(place.entry, arg)
        problem = entries.assess_look(entry, arg, entries.parse_look(stderr))
        if problem is not None:
            return problem
    return read_failure(place.label(), entries.without_look(stderr), noise, status)


def look_at(host: Host, place: Place, timeout_s: float) -> entries.Look:
    """What the host says of the container, bounded; an empty Look where there is none.

    Raises:
        TransportError: the host did not answer in time.
    """
    if place.entry is None:
        return entries.Look()
    entry = entries.entry_of(place.entry, place.entry_arg or "")
    reply = run(host, entries.entry_argv(entry, place.entry_arg or ""), timeout_s)
    look = entries.parse_look(reply.err)
    if reply.status is None and look.state is None:
        raise TransportError(
            Reason.TIMEOUT, f"{place.label()}: the host did not answer in {timeout_s:.0f} s"
        )
    return look


def explain_loss(host: Host, place: Place, timeout_s: float) -> TransportError | None:
    """After the agent fell silent: is it the container, the host, or neither?

    None means that the host answers and sees nothing wrong. Takes about `timeout_s`.
    """
    trouble = host.trouble(timeout_s / 2)
    if trouble is not None or place.entry is None:
        return trouble
    try:
        look = look_at(host, place, timeout_s / 2)
    except TransportError as error:
        return error
    return entries.assess_look(
        entries.entry_of(place.entry, place.entry_arg or ""), place.entry_arg or "", look
    )
