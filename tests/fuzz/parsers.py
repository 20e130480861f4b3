"""What reads bytes of strangers, each as a function of bytes: a name, its seeds, what it may raise.

A parser returns, or raises the one error that its docstring promises; that error is caught here, so
whatever leaves a function of this table is a finding. Used by `campaign.py` (long, guided by
coverage) and `test_corpus.py` (everything that was ever kept, in seconds).
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dflash_events import layout
from dflash_events.beat_reader import BeatReader
from dflash_events.events import EventTail
from dflash_events.manifest import read_manifest
from dflash_events.schema import RunDirError
from dflash_events.secrets import mask_arguments, mask_text, mask_tree
from dflash_tui.demo.feed import FrozenClock
from dflash_tui.desk import Desk
from dflash_tui.keys import keys_for
from dflash_tui.screen import compose
from dflash_watch.agent import dumps, faultdump, proc, pyspy, pystack, tids
from dflash_watch.agent.probes import kernel
from dflash_watch.agent.wire import WireError, parse_request
from dflash_watch.capture import open_capture
from dflash_watch.engine import Engine
from dflash_watch.errors import CaptureError, UsageError
from dflash_watch.frame import CaptureHeader, LogSample, parse_record, render_record
from dflash_watch.guard import Guard
from dflash_watch.limits import LearnedLimits
from dflash_watch.model import RunOptions
from dflash_watch.pasted.context import parse_context
from dflash_watch.playbooks import load_playbooks
from dflash_watch.profiles import profile_from_data
from dflash_watch.readers.collectivelog import parse_collective_log
from dflash_watch.readers.encoding import text_of
from dflash_watch.readers.flightrecorder import parse_flight_recorder
from dflash_watch.readers.gputext import parse_gpus
from dflash_watch.readers.lines import printable, printable_lines
from dflash_watch.readers.logtext import LogReader
from dflash_watch.readers.pstext import parse_ps
from dflash_watch.readers.stackparse import parse_dumps
from dflash_watch.readers.stacks import compare, group_threads
from dflash_watch.render.check import render_check
from dflash_watch.render.jsonl import render_json
from dflash_watch.render.plain import PlainLines
from dflash_watch.render.report import render_reading
from dflash_watch.render.stacktext import render_diff, render_sample
from dflash_watch.transport.base import TransportError
from dflash_watch.transport.config_text import expanded_config
from dflash_watch.transport.entries import parse_look
from dflash_watch.transport.greeting import read_word
from dflash_watch.transport.known_hosts import parse_known_hosts
from dflash_watch.transport.ssh_options import build_options, parse_resolved
from dflash_watch.transport.wire import WireReader
from evil_frames import evil_records

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parent / "watch" / "readers"
NONCE = "0badc0de"
T0 = 1_790_000_000.0


class Parser(NamedTuple):
    """One reader of foreign bytes."""

    read: Callable[[bytes], object]
    seeds: tuple[str, ...] = ()
    """Globs below the recorded texts of the readers."""


def read_wire(data: bytes) -> None:
    """Odd first byte: the stream itself; even: one record, packed as the agent packs it."""
    body = data[1:]
    if not data[:1] or data[0] % 2 == 0:
        packer = zlib.compressobj(1)
        packed = packer.compress(body) + packer.flush(zlib.Z_SYNC_FLUSH)
        body = b"noise\nDFLASH %b 1 %d\n%b" % (NONCE.encode(), len(packed), packed)
    reader = WireReader(NONCE)
    with contextlib.suppress(TransportError):
        for start in range(0, len(body), 97):
            for record in reader.feed(body[start : start + 97]):
                read_word(record, "box")


def read_record(data: bytes) -> None:
    """A line of a recording; what decodes is guarded and taken by an engine."""
    with contextlib.suppress(CaptureError):
        record = parse_record(data)
        if not isinstance(record, CaptureHeader):
            Engine(RunOptions(), books()).advance(Guard().admit(record))


def read_frames(data: bytes) -> None:
    """Well-formed frames with wild values, as an agent that lies could send them, to all sinks."""
    engine, guard = Engine(RunOptions(), books()), Guard()
    plain, snapshot = PlainLines(zone=UTC), None
    for record in evil_records(data, T0):
        snapshot = engine.advance(guard.admit(record))
        for line in plain.lines(snapshot):
            assert line.isprintable(), line
    if snapshot is None:
        return
    report = render_reading(snapshot, books().get(snapshot.failure), RunOptions())
    assert render_json(snapshot).isprintable()
    assert render_check(snapshot, 0).isprintable()
    assert all(line.isprintable() for line in report.split("\n"))
    desk = Desk(keys_for(demo=False), FrozenClock(T0), UTC)
    desk.take(snapshot)
    for row in compose(desk.screen(), 120, 40):
        assert all(span.text.isprintable() for span in row), row


def read_log(data: bytes) -> None:
    """In three pieces, as a growing file comes; nothing unprintable may come out."""
    text, reader = data.decode("utf-8", "replace"), LogReader(signatures())
    third = max(len(text) // 3, 1)
    for start in range(0, len(text), third):
        piece = text[start : start + third]
        for fact in reader.feed(LogSample(path="a.log", via="fd 1", text=piece), T0):
            told = getattr(fact, "text", None)
            assert not isinstance(told, str) or printable_lines(told) == told, fact
    assert reader.partial.isprintable()


def read_stacks(data: bytes) -> None:
    """Any tool's dump, and what is made of it."""
    found = parse_dumps(data.decode("utf-8", "replace"))
    for sample in found.samples:
        group_threads(sample)
        render_sample(sample)
    compare(found.samples)
    render_diff(found.samples[:8])


def read_spy_json(data: bytes) -> None:
    """What the agent gets from its samplers, and from a run's faulthandler."""
    text = data.decode("utf-8", "replace")
    for parse in (pyspy.parse, pystack.parse, faultdump.parse):
        dump = parse(text)
        dumps.failed(dump.error or text)
    tids.writable_spans(text)


def read_kernel(data: bytes) -> None:
    """Records of `/dev/kmsg`."""
    for record in data.decode("utf-8", "replace").split("\0"):
        kernel.parse(record)
        kernel.MATTERS.search(record)


def read_proc(data: bytes) -> None:
    """`/proc/PID/stat` and the files of keys and values."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(ValueError):
        proc.parse_stat(text)
    proc.parse_pairs(text)


def read_ssh(data: bytes) -> None:
    """known_hosts, `ssh -G`, ssh_config without OpenSSH, what a host says of a container."""
    text = data.decode("utf-8", "replace")
    parse_known_hosts(text)
    parse_look(text)
    with contextlib.suppress(TransportError, UsageError):
        build_options("box", parse_resolved(text))
    with kept_in_memory(data) as path, contextlib.suppress(TransportError, UsageError):
        expanded_config(Path(path))


def read_secrets(data: bytes) -> None:
    """Masking ends, changes nothing more the second time, and keeps the number of words."""
    text = data.decode("utf-8", "replace")
    once = mask_text(text)
    assert mask_text(once) == once
    words = text.split(" ")
    assert len(mask_arguments(words)) == len(words)
    with contextlib.suppress(ValueError, RecursionError):
        mask_tree(json.loads(text))


def read_lines(data: bytes) -> None:
    """Whatever comes, what leaves moves no cursor and turns no writing direction."""
    for text in (data.decode("utf-8", "replace"), data.decode("latin-1"), text_of(data)):
        assert printable(text).isprintable()
        assert all(line.isprintable() for line in printable_lines(text).split("\n"))


def read_run_directory(data: bytes) -> None:
    """run.json, events.jsonl, beat page."""
    with kept_in_memory(data) as path:
        with contextlib.suppress(RunDirError):
            read_manifest(path)
        tail = EventTail(path)
        for _ in range(3):
            tail.read()
        tail.close()
    page = layout.MAGIC.to_bytes(8, "little") + layout.LAYOUT_SCHEMA.to_bytes(8, "little") + data
    whole = page.ljust(layout.PAGE_BYTES, b"\0")
    with kept_in_memory(whole) as path:
        read_page(path)


def read_page(path: str) -> None:
    """A beat page, whose first words are right."""
    with contextlib.suppress(RunDirError), BeatReader(path) as reader:
        reader.read(1_000_000)


def read_state(data: bytes) -> None:
    """Learned limits and profiles, as anybody may have changed them."""
    with contextlib.suppress(ValueError, RecursionError):
        told = json.loads(data)
        if isinstance(told, dict):
            limits = LearnedLimits.from_data(told)
            limits.limit("training")
            limits.to_data()
        profile_from_data(told)


def read_capture(data: bytes) -> None:
    """A recording that somebody sent."""
    with kept_in_memory(data) as path, contextlib.suppress(CaptureError):
        _, records = open_capture(path)
        for _ in records:
            pass


def read_request(data: bytes) -> None:
    """What the agent gets from the watcher."""
    with contextlib.suppress(WireError):
        parse_request(data)


def read_text(reader: Callable[[str], object]) -> Callable[[bytes], object]:
    """A reader of text as one of bytes."""
    return lambda data: reader(data.decode("utf-8", "replace"))


PARSERS: dict[str, Parser] = {
    "wire": Parser(read_wire),
    "record": Parser(read_record),
    "frames": Parser(read_frames),
    "log": Parser(read_log, ("logs/*",)),
    "stacks": Parser(read_stacks, ("stacks/*",)),
    "spy-json": Parser(read_spy_json, ("stacks/*.json",)),
    "gpus": Parser(read_text(parse_gpus), ("gpus/*",)),
    "ps": Parser(read_text(parse_ps), ("ps/*",)),
    "context": Parser(read_text(parse_context)),
    "collectives": Parser(read_text(parse_collective_log), ("collectives/*", "logs/nccl*")),
    "flights": Parser(read_text(parse_flight_recorder), ("collectives/*.json",)),
    "kernel": Parser(read_kernel),
    "proc": Parser(read_proc),
    "ssh": Parser(read_ssh),
    "secrets": Parser(read_secrets, ("logs/*",)),
    "lines": Parser(read_lines),
    "run-directory": Parser(read_run_directory),
    "state": Parser(read_state),
    "capture": Parser(read_capture),
    "request": Parser(read_request),
}


def seeds(name: str) -> list[bytes]:
    """Recorded texts and made records to begin with, cut to what mutation can work on."""
    found = [one for form in PARSERS[name].seeds for one in sorted(RECORDED.glob(form))]
    texts = [one.read_bytes()[:16384] for one in found if one.suffix != ".md"]
    return texts + made_seeds(name)


def made_seeds(name: str) -> list[bytes]:
    """For readers of what no tool prints: whole inputs, without which mutation finds no way in."""
    chosen = [bytes((at * step) % 251 for at in range(300)) for step in range(1, 9)]
    lines = [render_record(one) for data in chosen for one in evil_records(data, T0)]
    taught = LearnedLimits("a run")
    for number in range(40):
        taught.observe("training", 1.0 + number / 40)
    return {
        "record": lines,
        "wire": [b"\0" + line for line in lines],
        "capture": [b"\n".join([render_record(CaptureHeader(t=T0)), *lines[:4]])],
        "state": [json.dumps(taught.to_data()).encode()],
        "frames": chosen,
        "request": [
            b'{"id": 1, "op": "stacks", "pid": 4242, "label": "A"}',
            b'{"id": 2, "op": "tool", "name": "py-spy", "bytes": 9, "sha256": "00"}',
        ],
        "context": [b"observed: {process_alive: true, silent_s: 9}\nroles: {target: [0]}\n"],
        "kernel": [b"6,1,5000000,-;NVRM: Xid (PCI:0000:4b:00): 79, pid=7, name=python\n"],
        "proc": [b"7 (a b) S 1 7 7 0 -1 0 0 0 0 0 5 6 0 0 20 0 3 0 99 0 55 0 0 0 0"],
        "ssh": [b"host box\nport 22\nuserknownhostsfile ~/.ssh/known_hosts\nproxyjump a,b\n"],
    }.get(name, [])


def kept(name: str) -> list[Path]:
    """Inputs kept in the repository: what once went wrong, and the small set that covers most."""
    return sorted(one for one in (HERE / "corpus" / name).glob("*") if one.is_file())


@cache
def books() -> dict:
    return load_playbooks()


@cache
def signatures() -> tuple:
    return tuple(one for book in books().values() for one in book.signatures())


@contextlib.contextmanager
def kept_in_memory(data: bytes) -> Iterator[str]:
    """A path of a file with that content; no disk is touched."""
    descriptor = os.memfd_create("fuzz")
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
