"""A middlebox on loopback: passes a connection on, or does to it what networks do.

`held` directions take nothing more (packets vanish, TCP waits), `swallowed` ones take everything
and pass nothing on (a middlebox that has lost its state).
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress

UP, DOWN = "up", "down"
BOTH = frozenset({UP, DOWN})
_RESET = struct.pack("ii", 1, 0)
_TICK_S = 0.02


class Relay:
    """Between clients and one port; `up` is from the client to it.

    Args:
        target: the port.
        buffer_bytes: what it takes from a client before it passes it on; None: the system's.
    """

    def __init__(self, target: int, buffer_bytes: int | None = None) -> None:
        self._target = target
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        if buffer_bytes is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.port = int(self._listener.getsockname()[1])
        self.heal()
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    # -- faults ----------------------------------------------------------------------------------

    def heal(self) -> None:
        """Pass everything on from now on; connections that lost bytes are gone."""
        self.held: frozenset[str] = frozenset()
        self.swallowed: frozenset[str] = frozenset()
        self.delay_s, self.is_mute, self.is_rude = 0.0, False, False
        self.cut_after: int | None = None
        self.corrupt_next = False

    def cut(self, *, reset: bool = False) -> None:
        """End every connection, orderly or by a reset."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _end(pair, reset=reset)

    def close(self) -> None:
        """End the relay."""
        self._closed.set()
        self._listener.close()
        self.cut()

    # -- details ---------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            if self.is_rude:
                client.close()
                continue
            pair = (client, socket.socket() if self.is_mute else self._dial())
            with self._lock:
                self._pairs.append(pair)
            if not self.is_mute:
                for way, source, sink in ((UP, *pair), (DOWN, *reversed(pair))):
                    words = (way, source, sink, pair)
                    threading.Thread(target=self._carry, args=words, daemon=True).start()

    def _dial(self) -> socket.socket:
        try:
            return socket.create_connection(("127.0.0.1", self._target), 10)
        except OSError:  # refused: the client sees its connection closed
            return socket.socket()

    def _carry(
        self,
        way: str,
        source: socket.socket,
        sink: socket.socket,
        pair: tuple[socket.socket, socket.socket],
    ) -> None:
        while not self._closed.is_set():
            if way in self.held:
                time.sleep(_TICK_S)
                continue
            try:
                data = source.recv(65536)
                while way in self.held:
                    time.sleep(_TICK_S)
                if not data:
                    break
                if way not in self.swallowed:
                    self._pass(way, data, sink)
            except OSError:  # the other half ended it
                break
        while self.held or self.swallowed:  # an end does not get through either
            time.sleep(_TICK_S)
        _end(pair)

    def _pass(self, way: str, data: bytes, sink: socket.socket) -> None:
        time.sleep(self.delay_s)
        if self.corrupt_next and way == DOWN and len(data) > 8:
            self.corrupt_next = False
            data = data[:-5] + bytes([data[-5] ^ 0xFF]) + data[-4:]
        if self.cut_after is not None and way == DOWN:
            sink.sendall(data[: self.cut_after])
            self.cut_after = None
            raise ConnectionAbortedError
        sink.sendall(data)


def _end(pair: tuple[socket.socket, socket.socket], *, reset: bool = False) -> None:
    for link in pair:
        with suppress(OSError):  # ended already
            if reset:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            # Whoever reads it in another thread wakes; of a reset the other side learns by close.
            link.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
        link.close()
