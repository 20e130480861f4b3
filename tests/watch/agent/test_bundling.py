"""The blob that travels: the same each time, with byte code once that was kept."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable

import pytest
import pythons
from dflash_watch.agent import bundle
from dflash_watch.agent.bundle import build_agent, keep_compiled
from watch.agent.driving import AgentProcess

Start = Callable[..., AgentProcess]
EMPTY = "dflash_watch/__init__.py"


def test_the_same_sources_give_the_same_bytes():
    first = build_agent()
    build_agent.cache_clear()
    assert build_agent() == first


@pytest.fixture
def kept_apart(tmp_path, monkeypatch):
    """Python's cache of byte code, elsewhere and empty."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    build_agent.cache_clear()
    yield tmp_path
    build_agent.cache_clear()


def names_of(data: bytes) -> set[str]:
    return set(zipfile.ZipFile(io.BytesIO(data)).namelist())


def test_byte_code_travels_once_it_was_kept_and_every_source_with_it(kept_apart):
    plain, _ = build_agent()
    keep_compiled()
    build_agent.cache_clear()
    compiled, _ = build_agent()
    sources = names_of(plain)
    assert all(name.endswith(".py") for name in sources)
    assert names_of(compiled) == sources | {f"{name}c" for name in sources if name != EMPTY}
    assert sorted(path.suffix for path in kept_apart.rglob("agent.*")) == [".zip"]


def test_what_was_kept_of_older_sources_is_not_sent(kept_apart, monkeypatch):
    keep_compiled()
    monkeypatch.setattr(bundle, "_BYTE_CODE", b"another python")
    assert all(name.endswith(".py") for name in names_of(build_agent()[0]))


def test_where_python_keeps_nothing_neither_do_we(kept_apart, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    keep_compiled()
    assert not list(kept_apart.rglob("agent.*"))


@pytest.mark.parametrize("version", pythons.VERSIONS)
def test_a_compiled_agent_runs_on_any_python(kept_apart, agent: Start, trainer, version):
    keep_compiled()
    build_agent.cache_clear()
    run = agent({"pid": trainer.pid}, python=pythons.python(version))
    assert run.frame()["run"]["state"] == "found"
