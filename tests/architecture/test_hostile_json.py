"""JSON of others may be nested deeper than a reader can go: that is no record, not a defect."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from dflash_watch.errors import CaptureError
from dflash_watch.frame import kind_not_known, parse_record
from dflash_watch.transport.base import TransportError
from dflash_watch.transport.greeting import read_word

ROOT = Path(__file__).parents[2]
DEEP = b'{"type":"frame","new":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def forgetful(tree: ast.AST) -> list[int]:
    """Lines of handlers that know of wrong JSON and not of deep JSON."""
    return [
        node.lineno for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and node.type is not None
        and ".DecodeError" in ast.unparse(node.type)
        and "RecursionError" not in ast.unparse(node.type)
    ]  # fmt: skip


def test_who_expects_wrong_json_expects_deep_json() -> None:
    bad = ast.parse("try: decode(x)\nexcept msgspec.DecodeError: pass")
    assert forgetful(bad) == [2]
    found = {
        str(path.relative_to(ROOT)): lines
        for part in ("watchdog", "tui") for path in (ROOT / part).rglob("*.py")
        if (lines := forgetful(ast.parse(path.read_text("utf-8"))))
    }  # fmt: skip
    assert found == {}


def test_a_deep_record_is_no_record_whoever_reads_it() -> None:
    with pytest.raises(TransportError, match="no record"):
        read_word(DEEP, "box")
    with pytest.raises(CaptureError, match="not a record"):
        parse_record(DEEP)
    assert kind_not_known(DEEP) is None
