"""Commands over SSH: one connection, one channel a command, a deadline on every wait."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Sequence

import paramiko

from dflash_watch.transport.base import Reason, TransportError
from dflash_watch.transport.pump import Pump, Tail
from dflash_watch.transport.quoting import shell_line
from dflash_watch.transport.ssh_options import SshOptions

_MOMENT_S = 0.2
_CHUNK = 32768
_PIECE = 8192
"""Sent at once: a socket that takes anything takes so much."""


class SshHost:
    """A connected host; hops before it are closed with it."""

    def __init__(
        self, options: SshOptions, transport: paramiko.Transport, before: SshHost | None
    ) -> None:
        self.options, self._transport, self._before = options, transport, before

    def open(self, argv: Sequence[str], timeout_s: float) -> SshStream:
        """Start a command on a channel of its own, quoted for the login shell, no terminal."""
        try:
            channel = self._transport.open_session(timeout=timeout_s)
            channel.settimeout(timeout_s)
            channel.exec_command(shell_line(argv))
        except paramiko.ChannelException as error:
            raise TransportError(
                Reason.SESSION_REFUSED,
                f"{self.options.alias}: sshd opens no further session on this connection",
                hint="MaxSessions in its sshd_config",
            ) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._lost(error) from error
        return SshStream(channel, self.options.alias)

    def trouble(self, timeout_s: float) -> TransportError | None:
        """Ask the way itself: is the connection alive, else does its port still answer?"""
        is_silent = self._transport.is_active()
        if is_silent and self._echoes(timeout_s / 2):
            return None
        how = "answers no more" if is_silent and self._transport.is_active() else "was cut"
        if self.options.proxy_command or self.options.proxy_jump:
            return TransportError(Reason.LOST, f"{self.options.alias}: the SSH connection {how}")
        return probe_port(self.options, timeout_s / 2, how)

    def close(self) -> None:
        """Close connection and hops; what does not close in time is left to its daemon thread."""
        closer = threading.Thread(target=self._close_all, name="ssh-close", daemon=True)
        closer.start()
        closer.join(0.5)

    def direct(self, hostname: str, port: int, timeout_s: float) -> paramiko.Channel:
        """A connection from there to somewhere else, as ProxyJump needs it."""
        try:
            return self._transport.open_channel(
                "direct-tcpip", (hostname, port), ("127.0.0.1", 0), timeout=timeout_s
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise TransportError(
                Reason.UNREACHABLE,
                f"{self.options.alias}: cannot reach {hostname}:{port} from there: {error}",
                hint="does the jump host allow TCP forwarding?",
            ) from error

    def _echoes(self, timeout_s: float) -> bool:
        """An answer to a request that asks nothing: sshd itself is awake."""
        answered = threading.Event()

        def ask() -> None:
            try:
                self._transport.global_request("keepalive@openssh.com", wait=True)
            except (paramiko.SSHException, EOFError, OSError):
                return
            answered.set() if self._transport.is_active() else None

        threading.Thread(target=ask, name="ssh-echo", daemon=True).start()
        return answered.wait(timeout_s)

    def _lost(self, error: Exception) -> TransportError:
        text = str(error) or type(error).__name__
        if isinstance(error, TimeoutError) or "imeout" in text:
            return TransportError(
                Reason.TIMEOUT, f"{self.options.alias}: sshd does not answer on this connection"
            )
        return TransportError(Reason.LOST, f"{self.options.alias}: connection lost: {text}")

    def _close_all(self) -> None:
        self._transport.close()
        if self._before is not None:
            self._before.close()


class SshStream:
    """One channel."""

    def __init__(self, channel: paramiko.Channel, alias: str) -> None:
        channel.settimeout(_MOMENT_S)
        self._channel, self._alias = channel, alias
        self._out = Pump(_reader(channel.recv), f"ssh-out-{alias}")
        self._err = Tail(_reader(channel.recv_stderr), f"ssh-err-{alias}")

    def send(self, data: bytes) -> int:
        """Bytes taken now."""
        try:
            if not _takes(self._channel.get_transport().sock):
                return 0
            return int(self._channel.send(data[:_PIECE]))
        except TimeoutError:
            return 0
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise TransportError(
                Reason.LOST, f"{self._alias}: the command no longer reads its input"
            ) from error

    def wake(self) -> None:
        """Let `receive` return."""
        self._out.wake()

    def end_input(self) -> None:
        """Send end of file."""
        try:
            self._channel.shutdown_write()
        except (OSError, EOFError, paramiko.SSHException):  # it ended before: the same to us
            return

    def receive(self, timeout_s: float) -> bytes | None:
        """Next bytes of output."""
        return self._out.take(timeout_s)

    def error_text(self) -> str:
        """Newest standard error, all of it if the command ended."""
        return self._err.text(wait_s=_MOMENT_S if self._channel.exit_status_ready() else 0.0)

    def status(self) -> int | None:
        """Exit status; None while unknown, killed, or lost: paramiko's -1 says nothing."""
        if not self._channel.exit_status_ready():
            return None
        code = self._channel.recv_exit_status()
        return None if code < 0 else int(code)

    def close(self) -> None:
        """Close the channel; what reads its input over there sees the end."""
        closer = threading.Thread(target=self._channel.close, name="channel-close", daemon=True)
        closer.start()
        closer.join(0.3)
        self._out.stop()


def _takes(link: object) -> bool:
    """Whether what lies below takes bytes: paramiko writes to a full socket without a limit."""
    if isinstance(link, paramiko.Channel):  # a jump
        return link.out_window_size >= _PIECE and _takes(link.get_transport().sock)
    descriptor = link.fileno() if isinstance(link, socket.socket) else -1
    if descriptor < 0:  # closed: the sender is told why
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(_MOMENT_S * 1000))


def probe_port(options: SshOptions, timeout_s: float, how: str) -> TransportError:
    """Why a host that was there answers no more: refused, silent, or up without an answer.

    Args:
        options: the host.
        timeout_s: for the connection, and for its first word.
        how: what became of the old connection, told where sshd takes new ones.
    """
    where = f"{options.alias} ({options.hostname}:{options.port})"
    try:
        with socket.create_connection((options.hostname, options.port), timeout_s) as link:
            link.settimeout(timeout_s)
            if link.recv(4) == b"SSH-":
                text = f"{options.alias}: the SSH connection {how}; sshd takes new ones"
                return TransportError(Reason.LOST, text)
            return TransportError(Reason.LOST, f"{where}: sshd closes new connections at once")
    except ConnectionRefusedError:
        return TransportError(Reason.REFUSED, f"{where}: connection cut, and sshd refuses new ones")
    except TimeoutError:
        return TransportError(
            Reason.TIMEOUT, f"{where}: no answer: host or sshd is frozen, overloaded or unreachable"
        )
    except OSError as error:
        return TransportError(Reason.UNREACHABLE, f"{where}: {error.strerror or error}")


def _reader(receive: Callable[[int], bytes]) -> Callable[[], bytes | None]:
    """Bytes, None for nothing yet, empty at the end or when the connection is gone."""

    def read() -> bytes | None:
        try:
            return receive(_CHUNK)
        except TimeoutError:
            return None
        except (OSError, EOFError, paramiko.SSHException):
            return b""

    return read
