"""Whatever is pasted, no reader raises, hangs, runs it, or grows without bound."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]

import dflash_watch.readers
import pytest
from dflash_watch.frame import LogSample
from dflash_watch.playbooks import load_playbooks
from dflash_watch.readers.collectivelog import parse_collective_log
from dflash_watch.readers.flightrecorder import parse_flight_recorder
from dflash_watch.readers.gputext import parse_gpus
from dflash_watch.readers.logtext import LogReader
from dflash_watch.readers.pstext import parse_ps
from dflash_watch.readers.stackparse import StackScanner, parse_dumps
from dflash_watch.readers.stacks import compare, group_threads
from hypothesis import given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
SIGNATURES = [one for book in load_playbooks().values() for one in book.signatures()]


def read_log(text: str) -> None:
    """In two pieces, as it comes from a growing file."""
    reader = LogReader(SIGNATURES)
    for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
        reader.feed(LogSample(path="a.log", via="fd 1", text=piece), 1.0)


def read_stacks(text: str) -> None:
    """And what comes after reading: nothing that was read may break it."""
    dumps = parse_dumps(text)
    for sample in dumps.samples:
        group_threads(sample)
    compare(dumps.samples)


READERS: dict[str, Callable[[str], object]] = {
    "log": read_log,
    "stacks": read_stacks,
    "gpus": parse_gpus,
    "ps": parse_ps,
    "collectives": parse_collective_log,
    "flight-recorder": parse_flight_recorder,
}
RECORDED = [
    path.read_text("utf-8", "replace")
    for folder in ("stacks", "gpus", "ps", "logs", "collectives")
    for path in sorted((HERE / folder).iterdir())
    if path.suffix in (".txt", ".log", ".json")
]
KEPT = {
    "nothing": "",
    "blanks": " \t\r\n\x0b\x0c\n \n",
    "zeros": "\x00" * 5000 + "\nstep 5 loss 1\n",
    "binary": bytes(range(256)).decode("latin-1") * 40,
    "half characters": b"step 5 \xe2\x82 loss \xf0\x9f 1.0\n\xff\xc3".decode("utf-8", "replace"),
    "lone surrogates": "Thread 1 (idle): \"\ud800\"\n    f\udfff (a.py:1)\n",
    "codes": "\x1b[31mThread 1 (idle)\x1b[0m\x1b]0;title\x07\n\x1b[\x1b[\x1b]" + "\x1b" * 999,
    "one long line": "a1 " * 700_000,
    "one long line of digits": "9" * 1_000_000,
    "many short lines": "|\n" * 60_000,
    "deep json": "[" * 200_000,
    "deep json of objects": '[{"pid": 1, "frames": ' * 30_000,
    "json of other things": '[{"pid": "x", "frames": 3}]',
    "json with a bracket alone": "[\n  x\n" * 50,
    "numbers too large": f"Thread {9 * '9'}99999999999 (idle)\nstep {30 * '9'} loss 1e999\n",
    "numbers of other scripts": "step \u0663 loss \u0663.\u0661\nThread \u0663\u0664 (idle)\n",
    "letters longer in small": "\u0130" * 300 + "rank0 step 5rank1 step 6\n",
    "heads without rows": "PID STAT CMD\n# gpu pwr\nindex, name\nProcess 1: x\nThread 1 (idle)\n",
    "a table cut in the middle": "|   0  NVIDIA H200  On | 00000000:1B:00.0 Off |\n| N/A 3",
    "gdb without an end": "Thread 1 (LWP 3):\n#0 f (" + "a<" * 3000 + "\n    at",
    "everything": "\n".join(RECORDED),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", KEPT)
def test_kept_garbage_is_read_without_a_word(reader: str, name: str) -> None:
    READERS[reader](KEPT[name])


def torn(recorded: list[str]) -> st.SearchStrategy[str]:
    """Pieces of real texts, cut anywhere, with anything between them."""
    piece = st.tuples(st.sampled_from(recorded), st.integers(0, 4000), st.integers(0, 1500)).map(
        lambda cut: cut[0][cut[1] : cut[1] + cut[2]]
    )
    return st.lists(st.one_of(piece, st.text(max_size=40)), max_size=6).map("".join)


@settings(deadline=None)
@given(
    text=st.one_of(torn(RECORDED), st.text(), st.binary().map(lambda raw: raw.decode("latin-1")))
)
@pytest.mark.parametrize("reader", READERS)
def test_any_text_is_read_without_a_word(reader: str, text: str) -> None:
    READERS[reader](text)


LINES = st.sampled_from([line for text in RECORDED for line in text.splitlines()] + ["", "["])


@settings(deadline=None)
@given(lines=st.lists(LINES, max_size=60))
def test_lines_of_all_tools_in_any_order_are_read(lines: list[str]) -> None:
    for reader in READERS.values():
        reader("\n".join(lines))


@settings(deadline=None)
@given(text=torn(RECORDED))
def test_what_is_not_said_is_never_a_number(text: str) -> None:
    """No value comes out of a text without a digit."""
    bare = re.sub(r"\d", "", text)
    assert all(
        gpu.memory_used_bytes is None and gpu.utilization_ratio is None and gpu.power_watts is None
        for look in parse_gpus(bare).looks
        for gpu in look.gpus
    )
    assert parse_ps(bare).rows == ()


def test_memory_stays_bounded_however_much_comes() -> None:
    pieces = ["x" * 1_000_000, "Thread 0x12 (most recent call first):\n" * 2000, "[" * 1_000_000]
    pieces += ['  File "a.py", line 3 in f\n' * 4000, "step 5\n" * 3000, "\x1b[31" * 200_000]
    reader, scanner = LogReader(), StackScanner()
    tracemalloc.start()
    try:
        for piece in pieces * 2:
            reader.feed(LogSample(path="a.log", via="fd 1", text=piece), 1.0)
            for line in piece.splitlines():
                scanner.feed(line)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 24_000_000


def modules() -> Iterator[str]:
    for found in pkgutil.iter_modules(dflash_watch.readers.__path__):
        yield f"dflash_watch.readers.{found.name}"


def patterns() -> dict[str, str]:
    """Every regular expression that is held against text of strangers."""
    found = {
        f"{name}.{key}": value.pattern
        for name in modules()
        for key, value in vars(importlib.import_module(name)).items()
        if isinstance(value, re.Pattern)
    }
    return found | {f"playbook {one.failure}: {one.pattern}": one.pattern for one in SIGNATURES}


_INNER = {_constants.SUBPATTERN: 3, _constants.ASSERT: 1, _constants.ASSERT_NOT: 1}


def repeats_within_repeats(parsed: object, *, inside: bool = False) -> bool:
    """A repeat without an end inside another: the shape that takes time beyond all bounds."""
    for op, value in parsed:  # type: ignore[attr-defined]
        if op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            endless = value[1] == _constants.MAXREPEAT
            if (endless and inside) or repeats_within_repeats(value[2], inside=inside or endless):
                return True
        elif op is _constants.BRANCH:
            if any(repeats_within_repeats(one, inside=inside) for one in value[1]):
                return True
        elif op in _INNER and repeats_within_repeats(value[_INNER[op]], inside=inside):
            return True
    return False


def test_the_check_of_patterns_finds_the_dangerous_shape() -> None:
    for bad in (r"(a+)+b", r"(?:\w+\s?)*x", r"(a|b*)+", r"(?=(a*)*)"):
        assert repeats_within_repeats(_parser.parse(bad))
    for good in (r"a+b*", r"(?:ab)+", r"(a{1,9})+", r"(?:a+|b)c"):
        assert not repeats_within_repeats(_parser.parse(good))


def test_no_pattern_can_take_time_beyond_all_bounds() -> None:
    assert len(patterns()) > 60
    bad = [name for name, text in patterns().items() if repeats_within_repeats(_parser.parse(text))]
    assert bad == []


def test_no_reader_can_run_what_it_reads() -> None:
    banned = {"eval", "exec", "compile", "__import__", "open", "input"}
    for name in modules():
        source = Path(str(importlib.import_module(name).__file__)).read_text("utf-8")
        tree = ast.parse(source)
        calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call)
                 and isinstance(node.func, ast.Name)}  # fmt: skip
        imports = {alias.name.split(".")[0] for node in ast.walk(tree)
                   if isinstance(node, ast.Import) for alias in node.names}  # fmt: skip
        assert not calls & banned, name
        assert not imports & {"pickle", "marshal", "subprocess", "os", "shelve", "yaml"}, name
