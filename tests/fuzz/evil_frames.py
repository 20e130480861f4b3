"""Records that are well-formed and otherwise anything: what an agent that lies could send.

Made from the types of `frame.py` themselves, so a new field is covered the day it is added. Each
byte of the input chooses one thing, which is what a coverage-guided fuzzer can steer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from dflash_watch.frame import (
    Frame,
    Hello,
    HostFrame,
    LinkChange,
    Record,
    StackSample,
    Tick,
    parse_record,
)
from msgspec import inspect

TEXTS = (
    "", "run", "found", "gone", "none", "ok", "lost", "R", "S", "D", "T", "Z", "python train.py",
    "target-0", "drafter-1", "gpu0", "fd 1", "/runs/a/train.log", "running", "queue-get", "lock",
    "step 5 loss 1.0\n", "CUDA out of memory\n", "Traceback (most recent call last):\n",
    "\x1b[31mred\x1b]52;c;aGk=\x07", "[@click=app.quit]x[/]", "../../etc/passwd", "a\0b", "\u202e",
    "\r\n| 5%|#", "hf_" + "a" * 30, "{pid} {nothing}", "%s %(x)s", "x" * 5000, "\ud7ff\U0010ffff",
    "py-spy", "kernel", "futex_wait_queue", "202", "A", "B", "C", "census", "asked", "training",
)  # fmt: skip
WHOLE = (0, 1, 2, 7, 99, 4000, 4001, -1, 2**31, 2**53, 2**63 - 1, -(2**63), 10**18)
REAL = (0.0, 1.0, 0.5, 12.5, 1e-9, -1.0, 1e9, 1e18, 1e308, -1e308, 1.79e9)
KEYS = ("kind", "worker", "step", "t", "name", "role", "edge", "code", "reason", "exception",
        "traceback", "loss", "process", "pid", "workers", "wait_shares", "message")  # fmt: skip
KINDS = ("phase", "throughput", "heartbeat", "autotune", "worker-failed", "checkpoint", "quality",
         "numeric", "exit")  # fmt: skip
MOST_ITEMS, MOST_RECORDS, DEEPEST = 3, 6, 7


class Chooser:
    """Choices out of bytes; all zero when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def below(self, count: int) -> int:
        byte = self._data[self._at] if self else 0
        self._at += 1
        return byte % count

    def of(self, choices: tuple[Any, ...]) -> Any:
        return choices[self.below(len(choices))]


def evil_records(data: bytes, t: float) -> Iterator[Record]:
    """Records that a stream could carry, one after the other, about a second apart."""
    choose = Chooser(data)
    for number in range(MOST_RECORDS):
        if not choose:
            return
        kind = choose.of((Frame, Frame, Frame, StackSample, HostFrame, LinkChange, Hello, Tick))
        made = value_of(described(kind), choose, 0)
        if kind in (Frame, HostFrame):
            made.update(seq=number + 1, boot_s=1000.0 + number)
        if kind is not Hello and choose.below(4):
            made["t"] = t + number
        line = msgspec.json.encode(made)
        try:
            yield parse_record(line)  # type: ignore[misc] - never a header
        except Exception:  # noqa: BLE001 - the table of kinds may ask for what the wire refuses
            continue


@cache
def described(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def value_of(kind: inspect.Type, choose: Chooser, depth: int) -> Any:
    """Some value of a type, as plain data."""
    match kind:
        case inspect.StructType():
            return struct_of(kind, choose, depth)
        case inspect.UnionType():
            return value_of(choose.of(kind.types), choose, depth)
        case inspect.VarTupleType() | inspect.ListType():
            return [
                value_of(kind.item_type, choose, depth + 1) for _ in range(items(choose, depth))
            ]
        case inspect.TupleType():
            return [value_of(one, choose, depth + 1) for one in kind.item_types]
        case inspect.DictType():
            return told(choose, depth) if isinstance(kind.value_type, inspect.AnyType) else {
                choose.of(("4000", "x", "")): value_of(kind.value_type, choose, depth + 1)
                for _ in range(items(choose, depth))
            }  # fmt: skip
        case inspect.NoneType():
            return None
        case inspect.BoolType():
            return bool(choose.below(2))
        case inspect.IntType():
            return choose.of(WHOLE)
        case inspect.FloatType():
            return choose.of(REAL)
        case inspect.StrType():
            return choose.of(TEXTS)
    return anything(choose, depth)


def struct_of(kind: inspect.StructType, choose: Chooser, depth: int) -> Any:
    fields = [
        (one.encode_name, value_of(one.type, choose, depth + 1))
        for one in kind.fields
        if one.required or kind.array_like or (depth < DEEPEST and choose.below(3))
    ]
    if kind.array_like:
        return [value for _, value in fields]
    tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
    return {**tag, **dict(fields)}


def told(choose: Chooser, depth: int) -> dict[str, Any]:
    """An event or a manifest: known keys, values of any kind."""
    made = {choose.of(KEYS): anything(choose, depth + 1) for _ in range(items(choose, depth) + 2)}
    if choose.below(4):
        made["kind"] = choose.of(KINDS)
    return made


def anything(choose: Chooser, depth: int) -> Any:
    match choose.below(6 if depth < DEEPEST else 4):
        case 0:
            return choose.of(TEXTS)
        case 1:
            return choose.of(WHOLE)
        case 2:
            return choose.of(REAL)
        case 3:
            return None
        case 4:
            return [anything(choose, depth + 1) for _ in range(items(choose, depth))]
    return told(choose, depth + 1)


def items(choose: Chooser, depth: int) -> int:
    return choose.below(MOST_ITEMS + 1) if depth < DEEPEST else 0
