"""What samplers print, read by the agent: threads, failures, and what would help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dflash_watch.agent import dumps, faultdump, pyspy, pystack
from dflash_watch.agent.frames import FEW, MAX_FRAMES, MAX_THREADS, MAX_TOTAL, Room, frame
from dflash_watch.agent.jsonitems import JsonItems
from dflash_watch.agent.kernelview import CALLS, MACHINES, call_names
from dflash_watch.agent.rights import SYS_PTRACE, Rights, is_hidden, why_refused
from dflash_watch.agent.tids import match, writable_spans
from hypothesis import given
from hypothesis import strategies as st

RECORDED = Path(__file__).parents[1] / "readers" / "stacks"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text(), JSON, max_size=4)


def test_pystacks_threads_come_innermost_frame_first():
    dump = pystack.parse((RECORDED / "pystack.txt").read_text())
    first = dump.threads[0]
    assert first["tid"] == 20735
    assert first["frames"][0] == ["<genexpr>", "/srv/run/waits.py", 19]
    assert first["frames"][-1][0] == "_bootstrap"
    assert [thread["owns_gil"] for thread in dump.threads].count(True) == 1


def test_faulthandlers_threads_carry_their_addresses_and_the_main_one_is_last():
    dump = faultdump.parse((RECORDED / "faulthandler.txt").read_text())
    assert dump.threads[0]["ident"] == 0x7FC99AFFD6C0
    assert dump.threads[0]["frames"][0] == ["<genexpr>", "/srv/run/waits.py", 19]
    assert faultdump.main_of(dump.threads) == dump.threads[-1]["ident"]


def test_the_last_of_two_dumps_in_one_text_counts():
    text = (RECORDED / "faulthandler.txt").read_text()
    once = faultdump.parse(text)
    assert faultdump.parse(text + text).threads == once.threads


def test_a_hundred_threads_of_faulthandler_are_said_to_be_its_limit():
    text = "\n".join(
        f'Thread 0x{number:016x} (most recent call first):\n  File "a.py", line 3 in f'
        for number in range(1, 101)
    )
    dump = faultdump.parse(text)
    assert "the newest 100 threads only" in dump.note
    assert faultdump.main_of(dump.threads) is None


def test_silence_after_the_signal_is_told():
    assert "nothing came" in faultdump.parse("").error


@given(st.lists(OBJECT, max_size=6), st.integers(1, 9), st.sampled_from(["", " ", "\n\n"]))
def test_an_array_in_any_pieces_gives_its_elements_in_order(items, size, blank):
    text = (blank + json.dumps(items, ensure_ascii=False, indent=1) + blank).encode()
    found: list = []
    reader = JsonItems(found.append)
    for place in range(0, len(text), size):
        reader.feed(text[place : place + size])
    reader.finish()
    assert found == items
    assert reader.is_whole


@pytest.mark.parametrize(
    "text",
    [
        '[{"frames": 3, "os_thread_id": "x", "thread_name": 1}, {"frames": [{"line": "z"}]}]',
        '[{"frames": [{"name": null, "line": true}], "active": "yes"}]',
    ],
)
def test_words_of_the_wrong_kind_in_a_threads_record_are_left_out(text):
    last = pyspy.parse(text).threads[-1]
    assert last["frames"] == [["?", "?", 0]]
    assert (last["tid"], last["name"], last["active"]) == (None, None, None)


def test_a_cut_array_gives_its_whole_elements_and_is_not_whole():
    found: list = []
    reader = JsonItems(found.append)
    reader.feed(b'[{"a": 1}, {"b": 2}, {"c": ')
    reader.finish()
    assert found == [{"a": 1}, {"b": 2}]
    assert not reader.is_whole


@pytest.mark.parametrize("text", [b"Error: no", b'{"a": 1}', b"\xff\xfe", b"[1]", b"[[]]"])
def test_what_is_no_array_of_objects_is_refused(text):
    reader = JsonItems(print)
    with pytest.raises(ValueError, match=r"an (?:array|object) expected"):
        reader.feed(text)


@given(st.binary(max_size=200))
def test_no_text_of_a_sampler_breaks_the_readers(data):
    text = data.decode("utf-8", "replace")
    assert pyspy.parse(text).threads or pyspy.parse(text).error
    assert pystack.parse(text).threads or pystack.parse(text).error
    assert faultdump.parse(text).threads or faultdump.parse(text).error
    writable_spans(text)


def test_of_a_deep_stack_both_ends_are_kept_and_the_middle_is_counted():
    room = Room()
    kept = room.fit([frame(f"f{number}", "a.py", number) for number in range(1000)])
    assert len(kept) == MAX_FRAMES + 1
    assert (kept[0][0], kept[-1][0]) == ("f0", "f999")
    assert kept[-6][0] == f"... {1000 - MAX_FRAMES} frames left out ..."
    assert room.note() == f"left out, too many: {1000 - MAX_FRAMES} middle frames of 1 threads"


def test_many_deep_stacks_share_one_bound_and_no_thread_is_without_frames():
    room = Room()
    stack = [frame("f", "a.py", 1)] * 100
    sizes = [len(room.fit(stack)) for _ in range(1000)]
    assert min(sizes) == FEW + 1
    assert sum(sizes) <= MAX_TOTAL + 1000 * (FEW + 1)


def test_threads_beyond_the_bound_are_counted():
    room = Room()
    taken = [room.admit() for _ in range(MAX_THREADS + 3)]
    assert sum(taken) == MAX_THREADS
    assert room.note() == "left out, too many: 3 threads"


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("Permission Denied: Try running again with elevated permissions", "not-allowed", ""),
        (("Failed to get process executable name. Check that the process is running.\n"
         "Reason: Permission denied (os error 13)"), "not-allowed", ""),
        (("Error: Failed to get process executable name. Check that the process is running.\n"
         "Reason: No such file or directory (os error 2)"), "gone", "namespace"),
        ("Error: Failed to find python version from target process", "not-python", "not a Python"),
        ("Error: failed to get gil_thread_id", "unknown-python", "free-threaded"),
        ("Error: Unsupported version of Python: 3.19.0", "unknown-python", "newer one"),
        ("Failed to find a python interpreter in the .data section", "unknown-python", "stripped"),
        ("Error: Failed to suspend process", "traced", "TracerPid"),
        ("No python processes found in process 5 or any of its subprocesses", "not-python", ""),
        ("cannot be started: [Errno 8] Exec format error: 'py-spy'", "other-machine", "machine"),
        ("something new", None, "something new"),
    ],
)  # fmt: skip
def test_each_failure_of_a_sampler_has_a_kind_and_a_next_step(said, kind, words):
    dump = dumps.failed(said)
    assert dump.kind == kind
    assert words in dump.error
    assert "\n" not in dump.error


def test_a_backtrace_of_the_sampler_is_left_out():
    assert dumps.shorten("Error: no\n\nStack backtrace:\n   0: main") == "Error: no"


FREE = Rights(
    own_uid=0, own_caps=SYS_PTRACE, uid=0, caps=0, is_dumpable=True, yama=0,
    same_user_namespace=True, profile=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"yama": 3}, "nobody may"),
        ({"yama": 2, "own_caps": 0}, "only with CAP_SYS_PTRACE"),
        ({"own_uid": 1000, "own_caps": 0, "uid": 1001}, "uid 1001's and the agent uid 1000"),
        ({"own_caps": 0, "uid": 1001}, "add SYS_PTRACE to the container"),
        ({"yama": 1, "own_caps": 0}, "PR_SET_PTRACER"),
        ({"own_caps": 0, "caps": 1}, "has capabilities that the agent lacks"),
        ({"own_caps": 0, "is_dumpable": False}, "not dumpable"),
        ({"same_user_namespace": False}, "another user namespace"),
        ({"profile": "docker-default (enforce)"}, "profile docker-default (enforce)"),
        ({}, "security module or seccomp"),
    ],
)
def test_a_refusal_is_explained_by_what_decides_it(changes, words):
    assert words in why_refused(FREE._replace(**changes))


def test_a_process_that_is_not_there_is_not_hidden():
    assert not is_hidden(4_194_000)
    assert not is_hidden(1 << 40)


def test_no_two_calls_share_a_number_on_either_machine():
    for column, machine in enumerate(MACHINES):
        numbers = [pair[column] for pair in CALLS.values() if pair[column] is not None]
        assert len(set(numbers)) == len(numbers) == len(call_names(machine))
    assert call_names("riscv128") == {}


def test_a_thread_is_found_by_its_stack_pointer_below_its_own_block():
    spans = [(0x1000, 0x2000), (0x3000, 0x4000)]
    places = {11: 0x1800, 12: 0x3800, 13: 0x5000}
    assert match([0x1F00, 0x3F00, 0x6000], places, spans) == {0x1F00: 11, 0x3F00: 12}


def test_of_two_stacks_in_one_mapping_the_nearest_block_above_is_the_threads():
    spans = [(0x1000, 0x5000)]
    assert match([0x2000, 0x4000], {11: 0x1800, 12: 0x3800}, spans) == {0x2000: 11, 0x4000: 12}
