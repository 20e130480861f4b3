"""Binary layout of the beat page, schema 1.

The page is an array of little-endian signed 64-bit words, so that every field is one aligned store:

    words 0..63       header: magic, schema, sizes, identity, counters, run-wide phase
    words 64..79      ticker slot
    words 80..        texts: TEXTS entries of 32 bytes, UTF-8, padded with NUL; entry 0 is "unknown"
    then              slots: SLOTS worker slots of 32 words

A text is written before its number is used and never changes. Words of a slot that change carry the
slot's sequence number at both ends: the writer stores BEGIN, the fields, END; the reader takes END,
the fields, BEGIN and believes them when both are equal. END lies first and BEGIN last, so that one
ascending copy of the slot reads them in that order.
"""

from __future__ import annotations

import sys

MAGIC = int.from_bytes(b"DFBEATS\x00", "little")
LAYOUT_SCHEMA = 1
NOTHING = -1
"""In a word: not known."""

HEADER_WORDS = 64
(
    H_MAGIC,
    H_SCHEMA,
    H_PAGE_BYTES,
    H_TEXTS,
    H_TEXTS_USED,
    H_SLOTS,
    H_SLOTS_USED,
    H_PID,
    H_START_TICKS,
    H_PID_NAMESPACE,
    H_PHASE,
    H_PHASE_NS,
    H_DROPPED,
    H_WRITE_ERRORS,
    H_LAST_ERRNO,
    H_LAST_ERROR_NS,
    H_WORKERS_LEFT_OUT,
    H_ENDED,
) = range(18)
H_BOOT_ID = 24
"""Five words: the 36 ASCII characters of the boot id."""

TICKER = HEADER_WORDS
T_END, T_BEATS, T_NS, T_LATE_NS, T_MAX_LATE_NS, T_BEGIN = range(6)
TICKER_WORDS = 16

TEXTS = 256
TEXT_BYTES = 32
TEXT_WORDS = TEXT_BYTES // 8
TEXTS_AT = TICKER + TICKER_WORDS

SLOTS = 128
SLOT_WORDS = 32
SLOTS_AT = TEXTS_AT + TEXTS * TEXT_WORDS
(
    S_END,
    S_STEP,
    S_ITEMS,
    S_PROGRESS_NS,
    S_PHASE,
    S_WAIT,
    S_WAIT_NS,
    S_WAIT_OBJECT,
    S_WAITS_FOR,
    S_DEPTH,
    S_CAPACITY,
    S_STATE,
    S_BEGIN,
) = range(13)
# Set once, before the slot is counted as used; TID again when a worker of that name starts anew.
S_NAME, S_ROLE, S_DEVICE, S_TID = range(16, 20)

PAGE_WORDS = SLOTS_AT + SLOTS * SLOT_WORDS
PAGE_BYTES = PAGE_WORDS * 8

READABLE = sys.byteorder == "little"


def encode_text(text: str) -> bytes:
    """UTF-8, at most 32 bytes, cut between characters."""
    return text.encode("utf-8", "replace")[:TEXT_BYTES].decode("utf-8", "ignore").encode("utf-8")


def decode_text(raw: bytes) -> str:
    """The text of an entry."""
    return raw.rstrip(b"\x00").decode("utf-8", "replace")
