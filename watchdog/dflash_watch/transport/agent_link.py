"""One running agent: what it sends, what it is asked, and whether it still answers."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dflash_watch.frame import PROTOCOL, PROTOCOL_MIN
from dflash_watch.place import Place
from dflash_watch.transport import entries
from dflash_watch.transport.base import STATUS_S, Reason, Stream, TransportError, plain, status_soon
from dflash_watch.transport.way import read_end
from dflash_watch.transport.wire import WireReader, render_request, render_start

PING_EVERY_S = 2.0
WATCHER_PATIENCE_S = 60.0
"""After so long without a word of ours the agent ends."""
MAX_LIFE_S = 7 * 86400.0
SILENCE_S = 8.0
"""Nothing heard for so long, with a question open: the way is lost."""
DEAF_S = 20.0
"""A question open for so long while records arrive: what we say does not, or all comes late."""
SLEPT_S = 2.0
"""Longer between two steps than they take: we did not look, and nobody was silent."""
START_S = 20.0
"""Until the first record: log in, find a Python, load the agent."""
_REPLIES = (b'{"type":"reply"', b'{"type": "reply"')


Bear = Callable[[TransportError], TransportError | None]
"""Asked after each `START_S` without a word: the error to end with, or None to go on waiting."""
ROUNDS = 30
"""The most that one entry is waited for, in `START_S`."""


class Entering:
    """Entries that hang are waited for rather than joined by ever more of them.

    One that hangs (a frozen container that nobody may be asked about) stays there when it is given
    up, and runs when the hold is over. So each is waited for as long as all silent ones before it
    together, while the host answers and sees nothing wrong; it then speaks at once.

    Args:
        explain: a better reason for the silence than the silence, if there is one.
    """

    def __init__(self, explain: Bear) -> None:
        self._explain = explain
        self._silent = self._rounds = 0

    def begin(self) -> Bear:
        """For the next entry."""
        self._rounds = 0
        return self._bear

    def spoke(self) -> None:
        """An agent is there."""
        self._silent = 0

    def _bear(self, error: TransportError) -> TransportError | None:
        self._rounds += 1
        if self._rounds < min(2 ** max(self._silent - 1, 0), ROUNDS):
            better = self._explain(error)
            if better is None:
                return None
            error = better
        self._silent += 1
        return error


def agent_config(every_s: float) -> dict[str, Any]:
    """What the configuration of every agent says (docs/frames.md), with a nonce of its own."""
    return {
        "protocol": PROTOCOL,
        "protocol_min": PROTOCOL_MIN,
        "nonce": secrets.token_hex(8),
        "every_s": every_s,
        "max_life_s": MAX_LIFE_S,
        "watcher_patience_s": WATCHER_PATIENCE_S,
    }


class AgentLink:
    """Drives one stream; every call returns within a moment.

    Args:
        stream: of a command that has been started.
        place: where it is, for words.
        now_s: monotonic.
        bear: asked about an entry that says nothing; without it such a one is given up.
    """

    def __init__(
        self, stream: Stream, place: Place, now_s: float, bear: Bear = lambda error: error
    ) -> None:
        self._stream, self._place, self._where, self._bear = stream, place, place.label(), bear
        self._outbox = bytearray()
        self._numbers = itertools.count(1)
        self._reader = WireReader("")
        self._opened_s = self._heard_s = self._asked_s = self._moved_s = self._stepped_s = now_s
        self._has_spoken = self._question_open = False

    def start(self, program: bytes, config: dict[str, Any]) -> None:
        """Send the agent and its configuration; its answers carry `config["nonce"]`."""
        self._reader = WireReader(str(config["nonce"]))
        self._outbox += render_start(program, config)

    def ask(self, op: str, **keys: Any) -> int:  # noqa: ANN401  JSON values of docs/frames.md
        """Queue a request; its number comes back in the reply."""
        number = next(self._numbers)
        self._outbox += render_request({"id": number, "op": op, **keys})
        return number

    def send_tool(self, name: str, data: bytes) -> int:
        """Queue a program for the agent to keep."""
        digest = hashlib.sha256(data).hexdigest()
        number = self.ask("tool", name=name, bytes=len(data), sha256=digest)
        self._outbox += data
        return number

    def step(self, wait_s: float, now_s: float) -> list[bytes]:
        """Send what goes, then records that arrived; waits at most `wait_s` for the first.

        Raises:
            TransportError: the agent ended, or does not answer in time.
        """
        self._leave_out_sleep(now_s, wait_s)
        self._ask_whether_alive(now_s)
        if self._outbox:
            self._send_some(now_s)
        else:
            self._moved_s = now_s
        data = self._stream.receive(0.0 if self._outbox else wait_s)
        if data == b"":
            raise self._ended()
        records = list(self._reader.feed(data)) if data else []
        if any(record.startswith(_REPLIES) for record in records):
            self._question_open = False
        if data is None:  # judged only after looking: what waited may hold the answer
            self._check_silence(now_s)
        else:
            self._has_spoken, self._heard_s = self._has_spoken or bool(records), now_s
        return records

    def excuse(self, now_s: float) -> None:
        """It is known why nothing comes, and that is no loss: silence counts from now on."""
        self._opened_s = self._heard_s = self._moved_s = now_s
        if self._question_open:  # the one that the agent finds when it wakes
            self._asked_s = now_s

    def wake(self) -> None:
        """Let a `step` that waits in another thread return at once."""
        self._stream.wake()

    def stop(self) -> None:
        """Ask it to end, as far as that goes at once; then close the stream."""
        if not self._outbox:
            self.ask("stop")
            with suppress(TransportError):  # it is gone already: what was wanted
                self._stream.send(bytes(self._outbox))
        self._stream.close()

    def _leave_out_sleep(self, now_s: float, wait_s: float) -> None:
        """Move the marks over a time in which nobody stepped (stopped, suspended, a full queue)."""
        slept_s = now_s - self._stepped_s - wait_s
        self._stepped_s = now_s
        if slept_s > SLEPT_S:
            self._opened_s += slept_s
            self._heard_s += slept_s
            self._asked_s += slept_s
            self._moved_s += slept_s

    def _send_some(self, now_s: float) -> None:
        try:
            sent = self._stream.send(bytes(self._outbox[:65536]))
        except TransportError as error:
            # Nobody reads any more: what it said last is why.
            while data := self._stream.receive(STATUS_S):
                deque(self._reader.feed(data), maxlen=0)
            raise self._ended() from error
        del self._outbox[:sent]
        self._moved_s = now_s if sent else self._moved_s

    def _ask_whether_alive(self, now_s: float) -> None:
        if self._outbox:  # a question behind megabytes is no test
            self._asked_s = now_s
        elif self._has_spoken and not self._question_open and self._is_due(now_s):
            self.ask("ping")
            self._question_open, self._asked_s = True, now_s

    def _is_due(self, now_s: float) -> bool:
        return now_s - self._asked_s >= PING_EVERY_S

    def _check_silence(self, now_s: float) -> None:
        if not self._has_spoken:
            asked_s, since_s, limit_s = now_s, self._opened_s, START_S
        elif self._outbox:
            asked_s, since_s, limit_s = self._moved_s, self._moved_s, SILENCE_S
        elif self._question_open:
            asked_s, since_s, limit_s = self._asked_s, self._asked_s, SILENCE_S
        else:
            return
        if now_s - asked_s > DEAF_S:
            text = f"{self._where}: no answer from the agent for {now_s - asked_s:.0f} s"
            text += ", though it goes on sending: half-open or too slow"
            raise TransportError(Reason.LOST, text)
        if now_s - max(since_s, self._heard_s if self._has_spoken else 0.0) > limit_s:
            silent = self._silent(now_s - self._heard_s)
            given_up = silent if self._has_spoken else self._bear(silent)
            if given_up is not None:
                raise given_up
            self._opened_s = now_s

    def _silent(self, silent_s: float) -> TransportError:
        if self._has_spoken:
            text = f"{self._where}: no answer from the agent for {silent_s:.0f} s"
            return TransportError(Reason.LOST, text)
        stderr = entries.without_look(self._stream.error_text())
        said = stderr.strip().splitlines() or [
            plain(self._reader.noise.decode(errors="replace").strip()[-200:])
        ]
        text = f"{self._where}: entered, but the agent did not speak within {silent_s:.0f} s"
        return TransportError(Reason.TIMEOUT, f"{text}: {said[-1]}" if said[-1] else text)

    def _ended(self) -> TransportError:
        status, stderr = status_soon(self._stream, STATUS_S), self._stream.error_text()
        noise = self._reader.noise.decode(errors="replace")
        if not self._has_spoken:
            return read_end(self._place, stderr, noise, status)
        lines = entries.without_look(stderr).strip().splitlines()
        said = f": {lines[-1][:200]}" if lines else ""
        if status is None:
            return TransportError(Reason.LOST, f"{self._where}: connection cut{said}")
        how = f"killed by signal {status - 128}" if status > 128 else f"ended with status {status}"
        return TransportError(Reason.LOST, f"{self._where}: the agent {how}{said}")
