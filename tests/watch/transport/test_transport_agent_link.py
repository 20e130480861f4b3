"""When is an agent silent? A stream of literals and a clock of literals decide."""

from __future__ import annotations

import itertools
import zlib
from collections import deque

import pytest
from dflash_watch.place import Place
from dflash_watch.transport.agent_link import (
    DEAF_S,
    PING_EVERY_S,
    SILENCE_S,
    START_S,
    AgentLink,
    Entering,
)
from dflash_watch.transport.backoff import LEAST_S, SPREAD, STEPS_S, delay_s
from dflash_watch.transport.base import Reason, TransportError


class Script:
    """A stream that hands out what it was given; it takes `room` bytes of input a call."""

    def __init__(self) -> None:
        self.coming: deque[bytes] = deque()
        self.taken = bytearray()
        self.room = 1 << 20
        self.said = ""
        self.code: int | None = 1

    def send(self, data: bytes) -> int:
        self.taken += data[: self.room]
        return min(len(data), self.room)

    def end_input(self) -> None:
        """Nobody asks."""

    def receive(self, timeout_s: float) -> bytes | None:
        return self.coming.popleft() if self.coming else None

    def error_text(self) -> str:
        return self.said

    def status(self) -> int | None:
        return self.code

    def close(self) -> None:
        """Nobody asks."""


def _message(packer: zlib._Compress, seq: int, record: bytes = b"{}") -> bytes:
    body = packer.compress(record) + packer.flush(zlib.Z_SYNC_FLUSH)
    return b"\nDFLASH ab %d %d\n" % (seq, len(body)) + body


def _walk(link: AgentLink, from_s: float, to_s: float) -> list[bytes]:
    """Steps of half a second, as the session makes them; what the last one brought."""
    now_s, found = from_s, []
    while now_s < to_s:
        found = link.step(0.0, now_s)
        now_s = min(now_s + 0.5, to_s)
    return link.step(0.0, to_s) if from_s < to_s else found


def _started(stream: Script) -> tuple[AgentLink, zlib._Compress]:
    """A link whose agent has spoken at second 0."""
    link, packer = AgentLink(stream, Place(host="box"), 0.0), zlib.compressobj()
    link.start(b"zip", {"nonce": "ab"})
    stream.coming.append(_message(packer, 1))
    assert link.step(0.0, 0.0) == [b"{}"]
    return link, packer


def test_an_agent_that_never_speaks_is_given_up_after_its_start_time() -> None:
    stream = Script()
    stream.said = "bash: warning: setlocale\n"
    link = AgentLink(stream, Place(host="box"), 0.0)
    link.start(b"zip", {"nonce": "ab"})
    assert _walk(link, 0.0, START_S - 0.1) == []
    with pytest.raises(TransportError, match="did not speak within 20 s: bash: warning") as caught:
        link.step(0.0, START_S + 0.1)
    assert caught.value.reason is Reason.TIMEOUT


def test_silence_counts_from_the_question_and_not_from_the_last_frame() -> None:
    link, _ = _started(Script())
    _walk(link, 0.0, PING_EVERY_S + SILENCE_S - 0.1)
    with pytest.raises(TransportError, match="no answer from the agent for 10 s"):
        link.step(0.0, PING_EVERY_S + SILENCE_S + 0.1)


def test_any_record_is_a_sign_of_life() -> None:
    stream = Script()
    link, packer = _started(stream)
    _walk(link, 2.0, 8.0)
    stream.coming.append(_message(packer, 2))
    assert link.step(0.0, 9.0) == [b"{}"]
    assert _walk(link, 9.0, 9.0 + SILENCE_S) == []
    with pytest.raises(TransportError, match="no answer from the agent for 8 s"):
        link.step(0.0, 9.0 + SILENCE_S + 0.1)


def test_an_agent_that_sends_on_and_never_answers_is_half_open() -> None:
    """Half-open: its records arrive, our questions do not."""
    stream = Script()
    link, packer = _started(stream)
    second = 0

    def send_on() -> None:
        nonlocal second
        while second < 60:
            stream.coming.append(_message(packer, second + 2))
            _walk(link, float(second), second + 0.9)
            second += 1

    with pytest.raises(TransportError, match="though it goes on sending"):
        send_on()
    assert second == PING_EVERY_S + DEAF_S


def test_a_tool_that_does_not_go_through_while_records_arrive_is_half_open() -> None:
    stream = Script()
    link, packer = _started(stream)
    stream.room = 0
    link.send_tool("py-spy", b"x" * 300)

    def send_on() -> None:
        for second in range(60):
            stream.coming.append(_message(packer, second + 2))
            _walk(link, float(second), second + 0.9)

    with pytest.raises(TransportError, match="though it goes on sending"):
        send_on()


def test_an_answer_closes_the_question_and_the_next_one_is_asked_two_seconds_later() -> None:
    stream = Script()
    link, packer = _started(stream)
    for second in range(60):
        reply = b'{"type":"reply","id":1}' if second % 5 == 0 else b"{}"
        stream.coming.append(_message(packer, second + 2, reply))
        _walk(link, float(second), second + 0.9)
    assert stream.taken.count(b'"ping"') in range(10, 31)


def test_a_watcher_that_slept_blames_nobody() -> None:
    link, _ = _started(Script())
    link.step(0.1, PING_EVERY_S)
    assert link.step(0.1, 600.0) == []
    with pytest.raises(TransportError, match="no answer"):
        _walk(link, 600.0, 600.0 + SILENCE_S + 1.0)


def test_part_of_a_large_record_is_a_sign_of_life() -> None:
    stream = Script()
    link, packer = _started(stream)
    link.step(0.0, PING_EVERY_S)
    whole = _message(packer, 2)
    for at, piece in enumerate([whole[:10], whole[10:-2]]):
        stream.coming.append(piece)
        assert link.step(0.0, 6.0 + 4 * at) == []
    stream.coming.append(whole[-2:])
    assert link.step(0.0, 14.0) == [b"{}"]


def test_a_large_tool_may_take_its_time_as_long_as_it_moves() -> None:
    stream = Script()
    link, _ = _started(stream)
    stream.room = 10
    link.send_tool("py-spy", b"x" * 300)
    for second in range(1, 30):
        link.step(0.0, float(second))
    stream.room = 0
    with pytest.raises(TransportError, match="no answer"):
        [link.step(0.0, 30.0 + second) for second in range(10)]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (137, "killed by signal 9: last words"),
        (1, "ended with status 1: last words"),
        (0, "ended with status 0: last words"),
        (None, "connection cut: last words"),
    ],
)
def test_the_end_of_an_agent_says_how_and_is_never_the_end_of_the_run(
    code: int | None, words: str
) -> None:
    """Finding 4: -1, None and kubectl's 0 all mean that the way is lost."""
    stream = Script()
    link, _ = _started(stream)
    stream.said, stream.code = "first\nlast words\n", code
    stream.coming.append(b"")
    with pytest.raises(TransportError, match=words) as caught:
        link.step(0.0, 1.0)
    assert caught.value.reason is Reason.LOST


def test_the_pause_between_attempts_grows_and_stays_under_ten_seconds() -> None:
    middle = [delay_s(attempt, dice=lambda: 0.5) for attempt in range(6)]
    assert middle == [1.0, 2.0, 4.0, 6.0, 6.0, 6.0]
    assert delay_s(9, dice=lambda: 1.0) == STEPS_S[-1] * (1 + SPREAD) < 8


def test_an_attempt_that_took_long_has_waited_already() -> None:
    assert delay_s(9, 4.0, lambda: 0.5) == 2.0
    assert delay_s(9, 60.0, lambda: 0.5) == LEAST_S


def test_a_silence_that_is_explained_is_no_loss_and_one_question_waits_for_its_end() -> None:
    """A container that is frozen: the agent finds the question when it wakes."""
    stream = Script()
    link, packer = _started(stream)
    now_s = 0.0
    while now_s < 600:
        link.excuse(now_s)
        assert link.step(0.0, now_s) == []
        now_s += 0.5
    assert bytes(stream.taken).count(b'"op":"ping"') == 1
    stream.coming.append(_message(packer, 2))
    assert link.step(0.0, now_s) == [b"{}"]
    with pytest.raises(TransportError) as caught:
        _walk(link, now_s, now_s + PING_EVERY_S + SILENCE_S + 1)
    assert caught.value.reason is Reason.LOST


def test_an_entry_that_hangs_is_waited_for_as_long_as_all_before_it_together():
    silence = TransportError(Reason.TIMEOUT, "entered, but the agent did not speak")
    frozen = TransportError(Reason.CONTAINER_FROZEN, "container 200 is frozen")
    better: list[TransportError] = []
    entering = Entering(lambda _: better[-1] if better else None)

    def waited() -> int:
        bear = entering.begin()
        return next(rounds for rounds in itertools.count(1) if bear(silence) is silence)

    assert [waited() for _ in range(8)] == [1, 1, 2, 4, 8, 16, 30, 30]
    better.append(frozen)
    assert entering.begin()(silence) is frozen
    better.clear()
    entering.spoke()
    assert [waited() for _ in range(3)] == [1, 1, 2]
