"""Secrets are masked in every record that arrives, before anything else sees it.

So that neither a screen, a line, a recording nor an incident can hold what a run happened to say.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from dflash_events.secrets import mask_tree

from dflash_watch.frame import Frame, HostFrame, LinkChange, Record, StackSample, render_record

AnyRecord = TypeVar("AnyRecord", bound=Record)


def mask_record(record: AnyRecord) -> AnyRecord:
    """The record with secrets masked in every text it carries; half a millisecond a frame."""
    if not isinstance(record, Frame | HostFrame | StackSample | LinkChange):
        return record
    tree = mask_tree(msgspec.json.decode(render_record(record)))
    return msgspec.convert(tree, type(record))
