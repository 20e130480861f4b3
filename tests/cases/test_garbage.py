"""Anything in any file: read to its end, told as evidence or as a note, never an exception."""

from __future__ import annotations

import io
import os
import random
from functools import cache
from pathlib import Path

import pytest
from dflash_watch.cli import main
from dflash_watch.model import Verdict
from dflash_watch.pasted.context import parse_context
from dflash_watch.pasted.files import NAMES, read_files, read_folder
from dflash_watch.pasted.judge import judge_pasted
from dflash_watch.pasted.sieve import WHOLE_BYTES, sieve
from dflash_watch.playbooks import load_playbooks
from hypothesis import given, settings
from hypothesis import strategies as st

T0 = 1_790_000_000.0
books = cache(load_playbooks)
NOISE = random.Random(7).randbytes(2 << 20)
GARBAGE = {
    "empty": b"",
    "binary": NOISE,
    "one long line": b"x" * (12 << 20),
    "one long line of numbers": b"step 1 loss 2.0 " * (1 << 19),
    "half a character": "loss 2.0 \u2014".encode()[:-1] + b"\xff\xfe\xfa\n",
    "escape codes": b"\x1b[31m\x1b]0;title\x07\x1b[2J\x9b5A\r\r\r" * 5000,
    "carriage returns": b"\r 10%|#   | 1/10 [00:01<00:09]" * 5000,
    "nulls": b"\x00" * (2 << 20),
    "brackets": b"[" * 200_000,
    "braces": b"{" * 200_000,
    "half a traceback": b"Traceback (most recent call last):\n" * 20_000,
    "threads without frames": b'Thread 1 (idle): "MainThread"\n' * 20_000,
    "wrong order": b'TypeError: x\n  File "a", line 1, in b\nTraceback (most recent call last):\n',
}  # fmt: skip


@pytest.mark.parametrize("what", GARBAGE)
def test_the_same_garbage_in_every_file_is_read_to_its_end(what, tmp_path):
    for names in NAMES.values():
        for name in names:
            (tmp_path / name).write_bytes(GARBAGE[what])
    seen = judge_pasted(read_folder(tmp_path), books(), T0)
    assert seen.verdict in Verdict
    assert all(one.text.isprintable() or "\n" in one.text for one in seen.evidence[:1])


@pytest.mark.parametrize("what", ["binary", "escape codes", "half a character"])
def test_nothing_of_it_reaches_the_terminal_as_a_code(what, tmp_path, capfd):
    (tmp_path / "log.txt").write_bytes(GARBAGE[what])
    assert main(["diagnose", str(tmp_path)]) == 0
    told = capfd.readouterr().out
    assert "\x1b" not in told
    assert "\x9b" not in told
    assert "\x00" not in told


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_any_text_as_context_is_facts_or_notes(text):
    parse_context(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("observed: {silent_s: soon}", "silent_s is 'soon', expected a number"),
        ("observed: {process_alive: maybe}", "process_alive is 'maybe', expected true or false"),
        ("- a\n- b", "holds list, expected keys and values"),
        ("a: [", "not YAML"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_what_cannot_be_a_fact_is_told_and_left_out(text, told):
    assert told in " ".join(parse_context(text)[1])


def test_a_context_nested_without_end_is_told():
    _, notes = parse_context("[" * 20_000)
    assert len(notes) == 1


def test_the_long_middle_of_a_log_keeps_its_trouble_and_loses_the_rest(tmp_path):
    step = b"2026-01-01 00:00:00 INFO step 1234 loss 2.0 tok/s 14000\n"
    trouble = b"NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.\n"
    half = step * (WHOLE_BYTES // len(step) + 1)
    path = tmp_path / "log.txt"
    path.write_bytes(b"first line\n" + half + trouble + half + b"last line\n")
    with path.open("rb") as file:
        left = sieve(file)
    assert left.text.startswith("first line\n")
    assert left.text.endswith("last line\n")
    assert "fallen off the bus" in left.text
    assert len(left.text) < WHOLE_BYTES
    assert left.left_out_bytes > WHOLE_BYTES
    seen = judge_pasted(read_folder(tmp_path), books(), T0)
    assert seen.failure == "gpu-lost"


def test_a_line_that_two_chunks_share_is_found_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("dflash_watch.pasted.sieve.CHUNK_BYTES", 1000)
    filler = b"step 1 loss 2.0\n" * (WHOLE_BYTES // 16)
    path = tmp_path / "log.txt"
    path.write_bytes(filler + b"x" * 1990 + b" CUDA error: an illegal memory access\n" + filler)
    with path.open("rb") as file:
        assert "an illegal memory access" in sieve(file).text


SECRET = "hunter2-" + "a1b2c3d4"


def test_no_secret_of_any_file_is_told_again(tmp_path, capfd):
    (tmp_path / "log.txt").write_text(
        f"Traceback (most recent call last):\nRuntimeError: token={SECRET} refused\n"
    )
    (tmp_path / "ps.txt").write_text(
        "    PID    PPID STAT %CPU WCHAN ELAPSED COMMAND\n"
        f"   4242       1 Dl   0.0  rpc_wait 01:02:03 python train.py --password {SECRET}\n"
    )
    (tmp_path / "context.yaml").write_text(
        f"observed: {{process_alive: 'password={SECRET}'}}\n"
        f"processes: [{{state: D, cmd: 'python t.py --api-key {SECRET}', wchan: rpc_wait}}]\n"
    )
    for words in ([], ["--json"]):
        assert main(["diagnose", str(tmp_path), *words]) == 0
        told = capfd.readouterr().out
        assert SECRET not in told
        assert "***" in told


BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefghijk", "bcdefghijkl", strict=True)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB + "observed: {silent_s: *l}", "an alias"),
        (BOMB + "processes: [{kernel_stack: [*l]}]", "an alias"),
        ("&a {observed: *a}", "an alias"),
        (f"observed: {{silent_s: 0x{'f' * 9000}}}", "a number too long"),
        ("x" * (200 << 10), "too large"),
    ],
)
def test_a_small_context_that_would_unfold_is_told_and_left_out(text, told, tmp_path):
    (tmp_path / "context.yaml").write_text(text)
    assert told in " ".join(read_folder(tmp_path).notes)


def test_numbers_of_any_length_in_a_process_end_nothing(tmp_path):
    wild = "0x" + "f" * 9000
    fields = ", ".join(f"{key}: {wild}" for key in ("pid", "cmd", "wchan", "cpu", "state"))
    (tmp_path / "context.yaml").write_text(
        f"processes: [{{{fields}, kernel_stack: [{wild}]}}]\nroles: {{target: [{wild}]}}\n"
    )
    assert main(["diagnose", str(tmp_path)]) == 0


def test_a_command_can_stand_in_for_each_file(tmp_path):
    """Shells give `<(command)` as a pipe, which cannot be read from its end."""
    given = {"log": "step 1 loss 2.0\n", "context": "observed: {process_alive: true}\n"}
    given |= {"stacks": 'Thread 1 (idle): "MainThread"\n', "ps": "", "gpus": ""}
    ends = {}
    for kind, text in given.items():
        ends[kind], into = os.pipe()
        os.write(into, text.encode())
        os.close(into)
    try:
        seen = read_files({kind: Path(f"/dev/fd/{end}") for kind, end in ends.items()})
    finally:
        for end in ends.values():
            os.close(end)
    assert not [note for note in seen.notes if "cannot be read" in note]
    assert seen.log == given["log"]
    assert seen.stacks
    assert seen.observed.process_alive is True


@pytest.mark.parametrize(
    "words", [["--log", "/dev/zero"], ["--context", "/dev/zero"], ["--ps", "x" * 300], ["x" * 300]]
)
def test_what_is_no_file_is_refused_in_one_line(words, capfd):
    assert main(["diagnose", *words]) == 64
    assert capfd.readouterr().err.count("\n") == 1


def test_a_log_that_grows_while_it_is_read_has_an_end(tmp_path):
    class Growing(io.BytesIO):
        def read(self, size=-1):
            return b"error\n" * (size // 6)

    assert sieve(Growing(), 8 << 20).text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("observe: {silent_s: 600}", "observed"),
        ("observed: {silent: 600}", "silent_s"),
        ("Roles: {target: [0]}", "roles"),
    ],
)
def test_a_key_that_is_spelt_almost_right_is_told(text, meant):
    assert f"did you mean {meant}?" in " ".join(parse_context(text)[1])


def test_keys_of_people_themselves_are_no_mistake():
    assert parse_context("ticket: 12\nobserved: {silent_s: 600, note: slow node}")[1] == []
