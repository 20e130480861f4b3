"""Whatever a stranger sends, what the guard lets through is harmless, and the rest is as it was."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from dflash_watch.frame import (
    Frame,
    Hello,
    HostFrame,
    LinkChange,
    LogSample,
    Record,
    RunSample,
    StackSample,
    Tick,
    parse_record,
)
from dflash_watch.guard import LARGEST, LATEST_T, PARAGRAPHS, Guard
from dflash_watch.place import Place
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

SECRET = "Zq7xW2pL9vR4tB8n"
TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
HOSTILE = (
    f"a\x1b[31mb\x1b]52;c;aGk=\x07\x9b5A\u202eevil\u200b\rover\x00 --api-key {SECRET} {TOKEN}\nnext"
)
RECORDS = (Frame, Hello, HostFrame, StackSample, LinkChange)


def filled(kind: inspect.Type, text: str) -> Any:
    """Plain data of a type with that text in every place that takes one."""
    match kind:
        case inspect.StructType():
            fields = [(one.encode_name, filled(one.type, text)) for one in kind.fields]
            if kind.array_like:
                return [value for _, value in fields]
            return {**({kind.tag_field: kind.tag} if kind.tag_field else {}), **dict(fields)}
        case inspect.UnionType():
            types = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
            return filled(types[0], text)
        case inspect.VarTupleType():
            return [filled(kind.item_type, text)]
        case inspect.DictType():
            value = {"deep": [{"er": text}]}
            plain = isinstance(kind.value_type, inspect.AnyType)
            return {text: value if plain else filled(kind.value_type, text)}
        case inspect.StrType():
            return text
        case inspect.BoolType():
            return False
        case inspect.FloatType():
            return 1.5
    return 1


def texts(value: Any, key: str = "") -> list[tuple[str, str]]:
    """All texts of plain data with the key that they stand under."""
    if isinstance(value, str):
        return [(key, value)]
    if isinstance(value, dict):
        names = [("a key", name) for name in value]
        return names + [one for name, inner in value.items() for one in texts(inner, name)]
    if isinstance(value, list):
        return [one for inner in value for one in texts(inner, key)]
    return []


@pytest.mark.parametrize("kind", RECORDS)
def test_no_text_of_any_field_keeps_a_secret_or_a_code(kind: type) -> None:
    record = parse_record(msgspec.json.encode(filled(inspect.type_info(kind), HOSTILE)))
    admitted = json.loads(msgspec.json.encode(Guard().admit(record)))
    found = texts(admitted)
    assert len(found) > 3
    for key, text in found:
        assert SECRET not in text, key
        assert TOKEN not in text, key
        if key != "text":  # a log's codes are read later, and taken off there
            lines = text.split("\n") if key in PARAGRAPHS else [text]
            assert all(line.isprintable() for line in lines), key


@pytest.mark.parametrize("kind", [*RECORDS, Tick])
def test_a_harmless_record_comes_through_unchanged(kind: type) -> None:
    record = parse_record(msgspec.json.encode(filled(inspect.type_info(kind), "/runs/a b/x.log")))
    assert Guard().admit(record) == record


def pieces(*parts: str, via: str = "fd 1") -> str:
    """What is left of a log that comes in these pieces, a frame each."""
    guard, out, offset = Guard(), "", 0
    for part in parts:
        log = LogSample(path="/a.log", via=via, text=part, offset=offset)
        run = RunSample(state="found", how="pid")
        frame = guard.admit(Frame(seq=1, t=1.0, boot_s=1.0, run=run, logs=(log,)))
        assert frame.logs
        out += frame.logs[0].text
        offset += len(part)
    return out


CLOTHED = (
    "lr 0.1 --api-key {} --steps 3\nnext",
    "HF_TOKEN={}\n",
    '{{"password": "{}", "lr": 0.1}}\n',
    "https://user:{}@example.com/a.git done\n",
    "Authorization: Bearer {}\n",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n{}\nBBBB\n-----END OPENSSH PRIVATE KEY-----\nnext",
)


@pytest.mark.parametrize("clothes", CLOTHED)
def test_a_secret_that_two_frames_share_is_masked_wherever_it_is_cut(clothes: str) -> None:
    text = f"step 1\nbefore {clothes.format(SECRET)}after\n"
    for cut in range(1, len(text)):
        out = pieces(text[:cut], text[cut:])
        assert not any(SECRET[n : n + 8] in out for n in range(len(SECRET) - 7)), (cut, out)
        assert "after" in out


@pytest.mark.parametrize("step", [1, 3, 7])
def test_a_secret_that_drips_in_is_masked(step: int) -> None:
    text = f"step 1 loss 2.0\nusing {TOKEN} and --password {SECRET} now\nstep 2 loss 1.9\n"
    out = pieces(*(text[at : at + step] for at in range(0, len(text), step)))
    assert not any(TOKEN[n : n + 10] in out for n in range(len(TOKEN) - 9)), out
    assert not any(SECRET[n : n + 8] in out for n in range(len(SECRET) - 7)), out
    assert out.startswith("step 1 loss 2.0\n")
    assert out.endswith("step 2 loss 1.9\n")


@given(st.lists(st.text("step 12:loss=\n\r%|#\x1b[m.", max_size=30), max_size=6))
def test_a_log_without_secrets_comes_through_whole_however_it_is_cut(parts: list[str]) -> None:
    assert pieces(*parts) == "".join(parts)


def test_logs_are_told_apart_and_a_torn_one_begins_anew() -> None:
    guard = Guard()
    run = RunSample(state="found", how="pid")
    first = LogSample(path="/a", via="fd 1", text="api_key=", offset=0)
    other = LogSample(path="/b", via="fd 2", text="value\n", offset=0)
    frame = guard.admit(Frame(seq=1, t=1.0, boot_s=1.0, run=run, logs=(first, other)))
    assert [one.text for one in frame.logs or ()] == ["api_key=", "value\n"]
    torn = LogSample(path="/a", via="fd 1", text="value\n", offset=900, skipped_bytes=800)
    frame = guard.admit(Frame(seq=2, t=2.0, boot_s=2.0, run=run, logs=(torn,)))
    assert [one.text for one in frame.logs or ()] == ["value\n"]


@pytest.mark.parametrize(
    "line", [f"\x1b[32mtoken\x1b[0m: \x1b[35m'{SECRET}'\x1b[0m", f"hf_\x1b[1m{TOKEN[3:]}\x1b[0m"]
)
def test_colours_hide_no_secret_and_stay_where_none_is(line: str) -> None:
    out = pieces(f"\x1b[32mstep 1\x1b[0m\n{line}\n")
    assert out.startswith("\x1b[32mstep 1\x1b[0m\n")
    assert SECRET not in out
    assert TOKEN[3:] not in out


def admitted_frame(**fields: Any) -> Record:
    made = {"type": "frame", "seq": 1, "t": 1.0, "boot_s": 1.0}
    made["run"] = {"state": "found", "how": "pid"}
    return Guard().admit(parse_record(json.dumps({**made, **fields})))


def test_numbers_are_such_that_can_be_reckoned_with() -> None:
    frame = admitted_frame(t=1e300, boot_s=-1e300, events=[{"t": -5.0, "step": 10**30}])
    assert isinstance(frame, Frame)
    assert (frame.t, frame.boot_s) == (LATEST_T, -LARGEST)
    assert frame.events == ({"t": 0, "step": LARGEST},)


def test_values_under_secret_names_are_masked_in_lists_too() -> None:
    frame = admitted_frame(events=[{"api_keys": [SECRET], "deep": {"password": SECRET}}])
    assert SECRET not in str(frame)


def test_data_nested_beyond_all_use_is_cut() -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    assert len(str(admitted_frame(events=[{"a": deep}]))) < 2000


@pytest.mark.parametrize(
    "prefix",
    [
        ("sshpass", "-p", SECRET, "ssh", "box"),
        ("kubectl", "--token", SECRET, "exec", "-i", "pod", "--"),
        ("env", f"API_KEY={SECRET}", "ssh", "box"),
    ],
)
def test_a_secret_that_a_person_typed_into_a_prefix_is_drawn_nowhere(prefix: tuple) -> None:
    label = Place(exec_prefix=prefix).label()
    assert SECRET not in label
    assert "***" in label
