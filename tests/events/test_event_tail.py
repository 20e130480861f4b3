"""The tail gives each whole line once, whatever is done to the file between two looks."""

import itertools
import json
import os

import pytest
from dflash_events.events import MAX_LINE_BYTES, EventTail, encode_event, parse_event
from dflash_events.schema import RunDirError
from hypothesis import given, settings
from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.dictionaries(st.text(min_size=1), VALUES, max_size=4).map(
    lambda keys: {**keys, "kind": "throughput"}
)
GARBAGE = st.sampled_from(
    [b"", b"   ", b"not json", b"[1]", b'{"no": "kind"}', b'{"kind": 3}', b"\x00" * 40, b"\xff{"]
)
LINES = st.lists(
    EVENTS.map(lambda event: encode_event(event)[0]) | GARBAGE.map(lambda g: g + b"\n")
)


NUMBERS = itertools.count()


def fresh(factory):
    """A directory of its own for each example; pytest's own numbering slows down with each."""
    path = factory.getbasetemp() / f"tail-{next(NUMBERS)}"
    path.mkdir()
    return path


def expected(data):
    whole = data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]
    parsed = [parse_event(line) for line in whole]
    garbage = sum(
        1 for line, event in zip(whole, parsed, strict=True) if line.strip() and not event
    )
    return [event for event in parsed if event is not None], garbage


def drain(tail, max_bytes):
    events, garbage, more = [], 0, True
    while more:
        read = tail.read(max_bytes)
        events += read.events
        garbage += read.garbage
        more = read.more
    return events, garbage


@settings(max_examples=150, deadline=None)
@given(
    lines=LINES,
    cuts=st.lists(st.integers(0, 400), max_size=6),
    max_bytes=st.integers(1, 300),
    tail_cut=st.integers(0, 20),
)
def test_any_cutting_of_writes_and_reads_gives_each_line_once(
    tmp_path_factory, lines, cuts, max_bytes, tail_cut
):
    path = fresh(tmp_path_factory) / "events.jsonl"
    data = b"".join(lines)
    data = data[: len(data) - tail_cut] if tail_cut else data
    events, garbage = [], 0
    with path.open("wb", buffering=0) as file, EventTail(path) as tail:
        at = 0
        for cut in [*cuts, len(data)]:
            file.write(data[at : at + cut])
            at += cut
            some, bad = drain(tail, max_bytes)
            events += some
            garbage += bad
    assert (events, garbage) == expected(data)


@settings(max_examples=80, deadline=None)
@given(before=LINES, after=LINES, how=st.sampled_from(["truncate", "replace", "rotate"]))
def test_after_truncation_or_replacement_it_begins_at_the_beginning(
    tmp_path_factory, before, after, how
):
    path = fresh(tmp_path_factory) / "events.jsonl"
    first = b"".join(before) + b'{"kind":"exit","number":1}\n'
    second = b'{"kind":"exit","number":2}\n' + b"".join(after)
    path.write_bytes(first)
    with EventTail(path) as tail:
        assert drain(tail, 2**20) == expected(first)
        if how == "truncate":
            path.write_bytes(second)
        else:
            path.rename(path.with_name("old")) if how == "rotate" else path.unlink()
            path.write_bytes(second)
        assert drain(tail, 2**20) == expected(second)


def test_lines_written_before_a_rotation_are_not_lost(tmp_path):
    path = tmp_path / "events.jsonl"
    with path.open("ab", buffering=0) as file, EventTail(path) as tail:
        file.write(b'{"kind":"a"}\n')
        tail.read()
        file.write(b'{"kind":"b"}\n')
        path.rename(tmp_path / "events.jsonl.1")
        path.write_bytes(b'{"kind":"c"}\n')
        first, second = tail.read(), tail.read()
    assert [event["kind"] for event in first.events] == ["b"]
    assert [event["kind"] for event in second.events] == ["c"]
    assert "replaced" in second.note


def test_a_file_overwritten_with_more_than_before_is_noticed(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"kind":"a"}\n')
    with EventTail(path) as tail:
        tail.read()
        path.write_bytes(b'{"kind":"b"}\n' * 5)
        read = tail.read()
    assert len(read.events) == 5
    assert "truncated or overwritten" in read.note


def test_a_removed_file_gives_what_is_left_and_then_nothing(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"kind":"a"}\n')
    with EventTail(path) as tail:
        path_fd_is_open = tail.read()
        path.unlink()
        assert len(path_fd_is_open.events) == 1
        assert tail.read() == ([], 0, False, None)


def test_an_endless_line_is_skipped_in_bounded_memory_and_counted_once(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"x" * (3 * MAX_LINE_BYTES) + b'\n{"kind":"after"}\n')
    with EventTail(path) as tail:
        events, garbage = drain(tail, 10_000)
    assert [event["kind"] for event in events] == ["after"]
    assert garbage == 1


@pytest.mark.parametrize("last_bytes", [0, 1, 12, 13, 14, 25, 26, 27, 10_000])
def test_a_late_reader_begins_at_the_first_whole_line_of_the_end(tmp_path, last_bytes):
    path = tmp_path / "events.jsonl"
    lines = [b'{"kind":"%d"}\n' % number for number in range(4)]  # 13 bytes each
    path.write_bytes(b"".join(lines))
    with EventTail(path, last_bytes=last_bytes) as tail:
        kinds = [event["kind"] for event in tail.read().events]
    assert kinds == ["0", "1", "2", "3"][max(4 - last_bytes // 13, 0) :]


def test_a_newer_schema_is_taken_and_said_once(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"v":9,"kind":"new-thing","depth":{"a":1}}\n' * 2)
    with EventTail(path) as tail:
        first = tail.read()
        with path.open("ab") as file:
            file.write(b'{"v":9,"kind":"x"}\n')
        second = tail.read()
    assert first.events[0]["depth"] == {"a": 1}
    assert "schema 9" in first.note
    assert second.note is None


def test_a_missing_file_says_so(tmp_path):
    with EventTail(tmp_path / "events.jsonl") as tail, pytest.raises(RunDirError, match="No such"):
        tail.read()


def test_a_pipe_in_the_files_place_is_refused_and_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "events.jsonl")
    with EventTail(tmp_path / "events.jsonl") as tail, pytest.raises(RunDirError):
        tail.read()


@given(EVENTS)
def test_every_event_is_one_line_of_strict_json(event):
    line, nonfinite = encode_event(event)

    def refuse(name):
        raise AssertionError(name)

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    again = json.loads(line, parse_constant=refuse)
    assert again["kind"] == "throughput"
    assert ("null" in line.decode()) or not nonfinite


def test_strange_values_are_named_and_never_asked(tmp_path):
    class OnDevice:
        device = "cuda:0"

        def item(self):
            raise AssertionError("reading this would wait for the device")

    class InHostMemory:
        device = "cpu"

        def item(self):
            return 2.5

    loop = []
    loop.append(loop)
    line, _ = encode_event(
        {
            "kind": "x",
            "loss": OnDevice(),
            "lr": InHostMemory(),
            "path": tmp_path,
            "set": {3},
            "what": object(),
            "surrogate": "\ud800",
            "loop": loop,
            1: "a key that is a number",
        }
    )
    event = parse_event(line)
    assert event["loss"] == "<OnDevice>"
    assert event["lr"] == 2.5
    assert event["path"] == str(tmp_path)
    assert event["set"] == [3]
    assert event["what"] == "<object>"
    assert event["1"] == "a key that is a number"


def test_an_event_too_long_for_a_line_is_cut_and_says_so():
    line, _ = encode_event({"kind": "x", "message": "m" * 10**6, "many": list(range(10**5))})
    event = parse_event(line)
    assert len(line) < 10_000
    assert (event["cut"], len(event["message"])) == (True, 4096)
