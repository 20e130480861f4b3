"""The wire: whatever comes in between, whole records come out, or one clear error."""

from __future__ import annotations

import json
import zlib

import pytest
from dflash_watch.transport.base import TransportError
from dflash_watch.transport.wire import WireReader, render_request, render_start
from hypothesis import given
from hypothesis import strategies as st

NONCE = "c0ffee"


class Sender:
    """The agent's half."""

    def __init__(self) -> None:
        self._pack, self._seq = zlib.compressobj(), 0

    def message(self, record: bytes, nonce: str = NONCE) -> bytes:
        body = self._pack.compress(record) + self._pack.flush(zlib.Z_SYNC_FLUSH)
        self._seq += 1
        return b"\nDFLASH %s %d %d\n" % (nonce.encode(), self._seq, len(body)) + body


@given(st.lists(st.binary(max_size=300), max_size=6), st.integers(1, 50), st.binary(max_size=60))
def test_records_come_out_whole_however_the_bytes_are_cut(
    records: list[bytes], step: int, noise: bytes
) -> None:
    sender, reader = Sender(), WireReader(NONCE)
    data = noise.replace(b"DFLASH", b"") + b"".join(sender.message(r) for r in records)
    out = [
        record for at in range(0, len(data), step) for record in reader.feed(data[at : at + step])
    ]
    assert out == records


def test_noise_before_and_between_is_kept_and_skipped() -> None:
    sender, reader = Sender(), WireReader(NONCE)
    data = b"Welcome!\n" + sender.message(b"1") + b"\nDFLASH 00 1 5\n" + sender.message(b"2")
    assert list(reader.feed(data)) == [b"1", b"2"]
    assert b"Welcome!" in reader.noise
    assert reader.dropped == 0


def test_megabytes_of_noise_keep_four_kilobytes() -> None:
    reader = WireReader(NONCE)
    assert list(reader.feed(b"x" * 5_000_000)) == []
    assert len(reader.noise) == 4096


def test_a_short_word_before_an_end_is_noise_too() -> None:
    reader = WireReader(NONCE)
    assert list(reader.feed(b"backups only\n")) == []
    assert reader.noise.strip() == b"backups only"


def test_another_watchers_agent_is_noise() -> None:
    assert list(WireReader(NONCE).feed(Sender().message(b"1", nonce="beef"))) == []


def test_a_damaged_record_is_an_error_and_not_a_record() -> None:
    message = bytearray(Sender().message(b"a record long enough to be damaged in the middle"))
    message[-20] ^= 0xFF
    with pytest.raises(TransportError, match="damaged"):
        list(WireReader(NONCE).feed(bytes(message) + Sender().message(b"2")[:40] * 9))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\nDFLASH c0ffee 1 999999999\n", "999999999 bytes"),
        (b"\nDFLASH c0ffee " + b"x" * 100, "header"),
        (b"\r\nDFLASH c0ffee 1 5\r\nabcde", "terminal"),
    ],
)
def test_what_no_agent_sends_is_named(data: bytes, words: str) -> None:
    with pytest.raises(TransportError, match=words):
        list(WireReader(NONCE).feed(data))


def test_a_record_that_unpacks_without_end_is_refused() -> None:
    message = Sender().message(b"\0" * (65 << 20))
    with pytest.raises(TransportError, match="64 MiB"):
        list(WireReader(NONCE).feed(message))


def test_a_lost_message_is_counted() -> None:
    sender, reader = Sender(), WireReader(NONCE)
    list(reader.feed(sender.message(b"1")))
    reader.feed(b"")
    sender._seq += 3
    list(reader.feed(sender.message(b"2")))
    assert reader.dropped == 3


def test_requests_and_start_carry_their_sizes() -> None:
    size, _, body = render_request({"id": 1, "op": "ping"}).partition(b"\n")
    assert (int(size), json.loads(body)) == (len(body), {"id": 1, "op": "ping"})
    head, _, rest = render_start(b"\nzip\n", {"protocol": 1}).partition(b"\n")
    program, config = map(int, head.split())
    assert rest[:program] == b"\nzip\n"
    assert json.loads(rest[program:]) == {"protocol": 1}
    assert len(rest) == program + config
