"""Agents and recordings of other versions: what is understood, and the one line when it is not."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from dflash_watch.capture import open_capture
from dflash_watch.engine import Engine
from dflash_watch.frame import PROTOCOL, Frame, Hello
from dflash_watch.place import Place
from dflash_watch.playbooks import load_playbooks
from dflash_watch.transport.program import Program
from watch.transport.stand_in import Watcher, stand_in, watching

RECORDED = Path(__file__).parents[2] / "recorded" / "agents"
PLAIN = b'"protocol": conf["protocol"], "agent_version": "0",'
FRAME = b'say({"type": "frame",'


def _speaking(hello: str, before_frames: bytes = b"") -> Program:
    """The stand-in, with other keys in its hello and more to say before each frame."""
    program = stand_in()
    assert program.code.count(PLAIN) == program.code.count(FRAME) == 1
    code = program.code.replace(PLAIN, hello.encode()).replace(FRAME, before_frames + FRAME)
    return msgspec.structs.replace(program, code=code)


def _hello(watcher: Watcher) -> Hello:
    record = watcher.wait(lambda one: isinstance(one, Hello))
    assert isinstance(record, Hello)
    return record


def test_an_agent_from_before_the_handshake_had_a_range_is_understood() -> None:
    """Its hello had one number, and the first digits of the code in its version."""
    old = _speaking(f'"protocol": 1, "agent_version": "0.1.0+{"5" * 12}",')
    with watching(Place(), lambda: old) as watcher:
        assert _hello(watcher).protocol_min == 1
        assert len(watcher.frames(2)) == 2


def test_a_newer_agent_that_still_speaks_ours_is_understood_and_its_news_are_passed_over() -> None:
    keys = f'"protocol": {PROTOCOL + 2}, "protocol_min": {PROTOCOL}, "moods": [1],'
    keys += '"agent_version": "9",'
    news = b'say({"type": "weather", "t": 1.0, "rain": True}); '
    with watching(Place(), lambda: _speaking(keys, news)) as watcher:
        assert _hello(watcher).protocol == PROTOCOL + 2
        assert [frame.seq for frame in watcher.frames(3)] == [0, 1, 2]
        assert watcher.session.passed_over["weather"] >= 3


def test_an_agent_that_greets_again_and_again_is_heard_once() -> None:
    """Each greeting would be noted, and would start one more agent on a container's host."""
    again = b'say({**HELLO, "agent_pid": 1}); '
    program = _speaking(PLAIN.decode(), again)
    code = program.code.replace(b'say({"type": "hello"', b'HELLO = ({"type": "hello"')
    code = code.replace(b"seq, due, every", b"say(HELLO)\nseq, due, every", 1)
    with watching(Place(), lambda: msgspec.structs.replace(program, code=code)) as watcher:
        watcher.frames(3)
        assert sum(isinstance(one, Hello) for one in watcher.seen) == 1
        assert watcher.noted.count(("agent", "started")) == 1


def test_an_agent_without_a_common_protocol_is_refused_in_one_line_that_says_what_to_do() -> None:
    keys = f'"protocol": {PROTOCOL + 2}, "protocol_min": {PROTOCOL + 1}, "agent_version": "9",'
    with watching(Place(), lambda: _speaking(keys)) as watcher:
        reason = watcher.closed().reason or ""
        assert (
            f"speaks protocol {PROTOCOL + 1} to {PROTOCOL + 2}, this watcher {PROTOCOL}" in reason
        )
        assert "update the older" in reason
        assert "\n" not in reason


def test_other_code_than_was_sent_is_refused() -> None:
    keys = f'"protocol": {PROTOCOL}, "agent_version": "0", "code_sha256": "{"6" * 64}",'
    with watching(Place(), lambda: _speaking(keys)) as watcher:
        reason = watcher.closed().reason or ""
        assert f"other code runs there than was sent: sha256 {'6' * 12}, sent {'5' * 12}" in reason


def test_a_recording_of_the_first_agents_is_played_as_it_was_seen() -> None:
    """Made by an agent and a watcher from before protocol ranges, code hashes and hosts."""
    header, records = open_capture(RECORDED / "2026-11-29-first-light.jsonl.gz")
    engine = Engine(header.options, load_playbooks())
    taken = list(records)
    (hello,) = (one for one in taken if isinstance(one, Hello))
    assert (hello.protocol, hello.protocol_min, hello.code_sha256) == (1, 1, None)
    last = [engine.advance(record) for record in taken][-1]
    assert (last.verdict, last.failure) == ("running", "healthy")
    assert "container-host" not in last.views
    assert records.notes == []


def test_a_recording_of_a_newer_version_is_played_without_what_is_not_known(tmp_path: Path) -> None:
    run = {"state": "none", "how": "newest", "mood": "calm"}
    lines = [
        {"type": "capture", "schema": 1, "t": 0.0, "mood": "calm"},
        {"type": "weather", "t": 1.0},
        {"type": "frame", "seq": 0, "t": 1.0, "boot_s": 1.0, "run": run, "weather": "rain"},
        {"type": "weather", "t": 2.0},
    ]
    path = tmp_path / "newer.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, records = open_capture(path)
    assert [type(record) for record in records] == [Frame]
    assert [note.partition(": ")[2] for note in records.notes] == [
        "2 records of kind 'weather' are of a newer version: passed over"
    ]
