"""Bytes of a file as text: UTF-8 as far as it goes, and what other systems' shells write.

PowerShell's `>` writes UTF-16 with a mark in front; without the mark the zeros give it away.
"""

from __future__ import annotations

MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
SAMPLE = 512
"""Bytes looked at for zeros."""


def text_of(raw: bytes) -> str:
    """The text; bytes that are none become replacement characters."""
    for mark, name in MARKS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(name, errors="replace")
    head = raw[:SAMPLE]
    for at, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        zeros, others = head[at::2].count(0), head[1 - at :: 2].count(0)
        if len(head) > 8 and zeros > len(head) // 3 and not others:
            return raw.decode(name, errors="replace")
    return raw.decode(errors="replace")
