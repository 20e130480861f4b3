"""Getting an SSH connection: jumps, proxy command, key exchange, host key, login."""

from __future__ import annotations

import logging
import socket
import subprocess
import threading
import time
from collections.abc import Callable

import paramiko

from dflash_watch.place import Place
from dflash_watch.transport.ask import Ask, ask_nobody
from dflash_watch.transport.base import Reason, TransportError
from dflash_watch.transport.host_key import check_host_key, prefer_known_types
from dflash_watch.transport.ssh import SshHost
from dflash_watch.transport.ssh_auth import authenticate
from dflash_watch.transport.ssh_options import SshOptions, fetch_options

_LOG = "dflash_watch.paramiko"
_AT_ONCE_S = 0.7
"""Less than any limit of ours: the other side closed."""
Say = Callable[[str], None]


def connect(place: Place, ask: Ask = ask_nobody, say: Say = lambda _: None) -> SshHost:
    """Connect to `place.host` through its jumps; at most three connect timeouts a hop.

    Raises:
        TransportError: one clear line with its class.
    """
    say("resolve")
    try:
        options = fetch_options(place)
        say("ssh")
        return _connect(options, place, ask)
    except TransportError:
        raise
    except (OSError, RuntimeError) as error:  # no descriptor, process, thread or room left here
        text = f"{place.host}: this machine cannot connect: {error}"
        raise TransportError(Reason.LOST, text) from error


def _connect(options: SshOptions, place: Place, ask: Ask, before: SshHost | None = None) -> SshHost:
    timeout_s = options.connect_timeout_s or place.connect_timeout_s
    if before is None:
        before = _last_jump(options, place, ask)
    transport = None
    try:
        link = _link(options, before, timeout_s)
        transport = _negotiate(options, link, timeout_s)
        check_host_key(options, transport.get_remote_server_key(), place)
        authenticate(transport, options, ask)
    except (OSError, RuntimeError):
        if transport is not None:
            transport.close()
        if before is not None:
            before.close()
        raise
    return SshHost(options, transport, before)


def _last_jump(options: SshOptions, place: Place, ask: Ask) -> SshHost | None:
    """The connected host before ours: the chain is `hop,hop,...`, each `[user@]host[:port]`."""
    before: SshHost | None = None
    for hop in options.proxy_jump:
        user, at, address = hop.removeprefix("ssh://").rpartition("@")
        host, port = _split_port(address)
        step = Place(
            host=host,
            port=port,
            user=user if at else None,
            ssh_config=place.ssh_config,
            connect_timeout_s=place.connect_timeout_s,
            accept_new_host_keys=place.accept_new_host_keys,
        )
        before = _connect(fetch_options(step), step, ask, before)
    return before


def _split_port(address: str) -> tuple[str, int | None]:
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and (":" not in host or host.endswith("]")):
        return host.strip("[]"), int(port)
    return address.strip("[]"), None


def _link(
    options: SshOptions, before: SshHost | None, timeout_s: float
) -> socket.socket | paramiko.Channel:
    """The bytes below SSH: a jump, a ProxyCommand, or TCP."""
    if before is not None:
        return before.direct(options.hostname, options.port, timeout_s)
    if options.proxy_command:
        return _proxy_command(options.proxy_command)
    where = f"{options.alias} ({options.hostname}:{options.port})"
    try:
        return socket.create_connection((options.hostname, options.port), timeout_s)
    except socket.gaierror as error:
        raise TransportError(
            Reason.UNKNOWN_HOST,
            f"{options.hostname}: unknown host",
            hint="check the spelling, DNS, or HostName in ssh_config",
        ) from error
    except ConnectionRefusedError as error:
        raise TransportError(
            Reason.REFUSED, f"{where}: connection refused", hint="does sshd run, is the port right?"
        ) from error
    except TimeoutError as error:
        raise TransportError(
            Reason.TIMEOUT, f"{where}: no answer to a TCP connection in {timeout_s:.0f} s"
        ) from error
    except OSError as error:
        raise TransportError(Reason.UNREACHABLE, f"{where}: {error.strerror or error}") from error


def _proxy_command(command: str) -> socket.socket:
    """The far end of a program that speaks on its standard input and output."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    # It ends when its socket closes; somebody has to take its status.
    threading.Thread(target=process.wait, name="proxy-command", daemon=True).start()
    return ours


def _negotiate(
    options: SshOptions, link: socket.socket | paramiko.Channel, timeout_s: float
) -> paramiko.Transport:
    """Banner and key exchange, within the timeout."""
    log = logging.getLogger(_LOG)
    log.setLevel(
        logging.CRITICAL + 1
    )  # paramiko would print tracebacks; its errors reach us anyway
    transport = paramiko.Transport(link)
    transport.set_log_channel(_LOG)
    transport.auth_timeout = timeout_s
    transport.banner_timeout = 0.8 * timeout_s  # before the whole, so that it can be told apart
    transport.channel_timeout = timeout_s
    prefer_known_types(options, transport)
    started = time.monotonic()
    try:
        transport.start_client(timeout=timeout_s)
    except paramiko.ssh_exception.IncompatiblePeer as error:
        link.close()
        raise TransportError(
            Reason.NO_COMMON_ALGORITHM,
            f"{options.alias}: no common algorithm: {error}",
            hint="an old sshd? ssh_config can allow its algorithms to OpenSSH's client",
        ) from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        link.close()
        raise _no_negotiation(options, error, time.monotonic() - started) from error
    if not transport.initial_kex_done:
        transport.close()
        raise TransportError(
            Reason.TIMEOUT,
            f"{options.alias}: sshd did not finish the key exchange in {timeout_s:.0f} s",
        )
    return transport


def _no_negotiation(options: SshOptions, error: Exception, took_s: float) -> TransportError:
    where = f"{options.alias} ({options.hostname}:{options.port})"
    if "banner" in str(error) and took_s < _AT_ONCE_S:
        return TransportError(
            Reason.LOST,
            f"{where}: closed before an SSH banner",
            hint="too many logins at once (MaxStartups), or is this address refused there?",
        )
    if "banner" in str(error):
        return TransportError(
            Reason.TIMEOUT,
            f"{where}: connected, but no SSH banner in {took_s:.0f} s",
            hint="sshd frozen or overloaded, or not an SSH port",
        )
    text = str(error) or "the server hung up"
    return TransportError(Reason.LOST, f"{where}: key exchange broke off: {text}")
