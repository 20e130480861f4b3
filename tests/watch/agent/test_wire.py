"""The agent's end of the wire against any cut, any garbage, any value."""

from __future__ import annotations

import json
import math
import os
import zlib

import pytest
from dflash_watch.agent.loop import clamp_pace
from dflash_watch.agent.wire import Receiver, Sender, WireError, encode
from hypothesis import given, settings
from hypothesis import strategies as st

REQUESTS = [
    ({"id": 1, "op": "ping"}, b""),
    ({"id": 2, "op": "tool", "name": "py-spy", "bytes": 5}, b"\n1\n{}"),
    ({"id": 3, "op": "pace", "every_s": 2}, b""),
]


class Pipe:
    """A receiver behind a real pipe."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.receiver = Receiver(self.reading)

    def put(self, data: bytes) -> list[tuple[dict, bytes]]:
        os.write(self.writing, data)
        return self.receiver.receive()[0]

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1))
def test_requests_survive_any_cut(sizes):
    whole = b""
    for request, raw in REQUESTS:
        body = json.dumps(request).encode()
        whole += b"%d\n" % len(body) + body + raw
    pipe, got = Pipe(), []
    try:
        place = 0
        for size in sizes:
            got += pipe.put(whole[place : place + size]) if place < len(whole) else []
            place += size
        got += pipe.put(whole[place:]) if place < len(whole) else []
    finally:
        pipe.close()
    assert got == REQUESTS


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=200))
def test_garbage_is_refused_or_waits_and_never_breaks(data):
    pipe, got, refusal = Pipe(), [], "request"
    try:
        got = pipe.put(data)
    except WireError as error:
        refusal = str(error)
    finally:
        pipe.close()
    assert all(isinstance(request, dict) for request, _raw in got)
    assert "request" in refusal or "tool" in refusal


@pytest.mark.parametrize(
    "body", [b"[1]", b"{", b"\xff\xfe", b'{"op": "tool", "bytes": -1}', b'{"op": "tool"}']
)
def test_a_request_that_is_none_is_an_error_of_the_wire(body):
    pipe = Pipe()
    try:
        with pytest.raises(WireError):
            pipe.put(b"%d\n" % len(body) + body)
    finally:
        pipe.close()


def test_numbers_that_are_not_finite_become_null():
    record = {"a": math.nan, "b": [1.5, math.inf, {"c": -math.inf}], "d": "x"}
    assert json.loads(encode(record)) == {"a": None, "b": [1.5, None, {"c": None}], "d": "x"}


def test_a_name_that_is_no_text_still_goes_out():
    assert json.loads(encode({"path": "/data/\udcff.log"})) == {"path": "/data/?.log"}


def test_one_stream_carries_all_records_in_order():
    reading, writing = os.pipe()
    sender = Sender(writing, "abc")
    for number in range(50):
        sender.send({"n": number, "text": "same words again and again"})
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        data = file.read()
    inflate, found = zlib.decompressobj(), []
    while data:
        head, _, rest = data[1:].partition(b"\n")
        mark, nonce, seq, size = head.split()
        found.append((int(seq), json.loads(inflate.decompress(rest[: int(size)]))["n"]))
        data = rest[int(size) :]
        assert (mark, nonce) == (b"DFLASH", b"abc")
    assert found == [(number + 1, number) for number in range(50)]


def flood(sender: Sender) -> None:
    for _ in range(2000):
        sender.send({"text": os.urandom(6000).hex()})


def test_a_reader_that_never_reads_ends_the_agent_at_last():
    reading, writing = os.pipe()
    sender = Sender(writing, "abc")
    try:
        with pytest.raises(WireError, match="taken nothing"):
            flood(sender)
        assert not sender.ready
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("asked", "given"),
    [(0.5, 0.5), (0, 0.1), (1e9, 60.0), ("2", 2.0), (None, 1.0), ("soon", 1.0), ([], 1.0)],
)
def test_the_pace_stays_within_what_is_sensible(asked, given):
    assert clamp_pace(asked) == given
