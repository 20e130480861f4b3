"""Names that would like to be more than a name: each arrives unchanged or is refused in one line.

Really executed: by sh here, by a login shell behind a real sshd, through `pct` and lxc-attach, and
through stand-ins of the tools that do not run here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from dflash_watch.clock import SystemClock
from dflash_watch.errors import UsageError, WatchError
from dflash_watch.frame import Hello
from dflash_watch.place import Place, TargetChoice
from dflash_watch.session import Program, Session
from dflash_watch.transport import entries, way
from dflash_watch.transport.ask import ask_nobody
from dflash_watch.transport.base import TransportError, run
from dflash_watch.transport.command import PrefixHost
from dflash_watch.transport.local import LocalHost
from dflash_watch.transport.ssh_options import fetch_options
from e2e.places.fixtures import Proxmox
from e2e.places.sshd import Sshd

HOSTILE = [
    " ", "a b", " a", "a ", "'", '"', "a'b\"c", "$(touch bad)", "`touch bad`", "${HOME}", "$HOME",
    ";touch bad", "a&&b", "a|b", ">bad", "<bad", "*", "?", "[a]", "{a,b}", "~root", "-it", "--help",
    "-", "--", "a\nb", "\n", "a\r\nb", "\t", "\\", "a\\", "\\n", "#a", "!1", "a=b", "%h", "%s%n",
    "\x01", "\x1b[2J", "\x7f", "\u00e9\u4e2d", "\U0001f600", "\u202eabc", "../../etc", "/",
    "x" * 300,
]  # fmt: skip
"""Without NUL, which no argument can hold."""
NAMED = ["a;b", "$(id)", "`id`", "a b", "-oProxyCommand=id", "a\nb", "a'b", 'a"b', "a|b", "a\0b"]
"""What neither a host nor a user may be called."""


def test_every_argument_arrives_unchanged_here() -> None:
    assert run(LocalHost(), ["printf", "%s\\0", *HOSTILE], 30).out == "\0".join([*HOSTILE, ""])


@pytest.mark.ssh
@pytest.mark.lxc
def test_every_argument_arrives_unchanged_behind_a_login_shell_and_behind_pct(
    proxmox: Proxmox,
) -> None:
    """Finding 8: what loses its quotes runs on the host."""
    place = proxmox.place()
    host = way.open_host(place)
    command = ["printf", "%s\\0", *HOSTILE]
    try:
        for stream in (host.open(command, 30), way.enter(host, place, command, 30)):
            out = bytearray()
            while data := stream.receive(30):
                out += data
            assert out.decode() == "\0".join([*HOSTILE, ""])
            stream.close()
    finally:
        host.close()


TOOLS = {
    "docker": "running", "podman": "running", "incus": "RUNNING", "kubectl": "Running",
}  # fmt: skip
_TOOL = """#!/bin/sh
case " $* " in *' exec '*) printf '%s\\0' "$@" ;; *) echo '@STATE@' ;; esac
"""


@pytest.fixture
def tools(tmp_path: Path) -> str:
    """A PATH on which each tool says that all runs, and shows what it is to execute."""
    for name, state in TOOLS.items():
        (tmp_path / name).write_text(_TOOL.replace("@STATE@", state))
        (tmp_path / name).chmod(0o755)
    return f"PATH={tmp_path}:/usr/bin:/bin"


@pytest.mark.parametrize("name", TOOLS)
def test_every_argument_arrives_unchanged_behind_each_tool(tools: str, name: str) -> None:
    argv = entries.entry_argv(entries.ENTRIES[name], "box_1.a-b", HOSTILE)
    words = run(LocalHost(), ["env", tools, *argv], 30).out.split("\0")[:-1]
    assert words[-len(HOSTILE) :] == HOSTILE
    assert "box_1.a-b" in words


@pytest.mark.parametrize("name", entries.ENTRIES)
@pytest.mark.parametrize("arg", [*HOSTILE, "a\0b", "200\n", "\u0662\u0660\u0660"])
def test_what_is_no_name_of_a_container_is_refused_in_one_line(name: str, arg: str) -> None:
    if name in TOOLS and arg == "x" * 300:
        return  # long, but a name
    with pytest.raises(UsageError) as caught:
        way.open_host(Place(entry=name, entry_arg=arg))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMED)
def test_what_is_no_name_of_a_host_or_user_is_refused_before_anything_runs(name: str) -> None:
    """ssh_config may hand both to a shell: `ProxyCommand nc %h %p`."""
    for place in (Place(host=name), Place(host="box", user=name)):
        with pytest.raises(TransportError, match=r"not a (host|user) name") as caught:
            fetch_options(place)
        assert "\n" not in str(caught.value)
        assert way.enter_early(place, ("true",)) is None


def test_a_user_of_a_windows_domain_is_a_user() -> None:
    assert fetch_options(Place(host="box", user="LAB\\trainer")).user == "LAB\\trainer"


def test_a_prefix_passes_every_word_on_and_refuses_a_nul(tmp_path: Path) -> None:
    host = PrefixHost(LocalHost(), ["env", f"A={HOSTILE[7]}"])
    assert run(host, ["printf", "%s\\0", *HOSTILE], 30).out == "\0".join([*HOSTILE, ""])
    for broken in (PrefixHost(LocalHost(), ["a\0b"]), PrefixHost(LocalHost(), ["ssh", "box"])):
        with pytest.raises(WatchError, match="NUL"):
            broken.open(["a\0b"], 1)


_SHOWS = r"""
import json, os, sys, zlib
conf = json.loads(config)
pack = zlib.compressobj()
got = json.dumps(conf["target"])
body = json.dumps({"type": "hello", "protocol": conf["protocol"], "agent_version": "0",
    "python": "3", "hostname": "there", "agent_pid": 1, "uid": 0, "tools": {"got": got}})
data = pack.compress(body.encode()) + pack.flush(zlib.Z_SYNC_FLUSH)
os.write(1, b"\nDFLASH %s 1 %d\n" % (conf["nonce"].encode(), len(data)) + data)
sys.stdin.read()
"""


def _program() -> Program:
    from watch.transport.stand_in import stand_in  # noqa: PLC0415  its file names the process

    return Program(script=stand_in().script, code=_SHOWS.encode(), sha256="5" * 64)


@pytest.fixture(params=["here", "ssh", "pct"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Three ways to a run."""
    if request.param == "here":
        yield Place()
    elif request.param == "ssh":
        sshd: Sshd = request.getfixturevalue("sshd")
        yield Place(host="box", ssh_config=sshd.ssh_config)
    else:
        yield request.getfixturevalue("proxmox").place()


@pytest.mark.ssh
@pytest.mark.lxc
def test_paths_and_patterns_of_the_run_arrive_unchanged(place: Place) -> None:
    """They travel as data: no shell ever reads them, whatever bytes a path has."""
    everything = "".join([*HOSTILE, "\0", os.fsdecode(b"\xff\xfe")])
    target = TargetChoice(run_dir=everything, match=everything, log=everything, tmux=everything)
    session = Session(place, target, 1.0, SystemClock(), ask=ask_nobody, program=_program)
    try:
        while not isinstance(record := session.get(90.0), Hello):
            assert record is not None, "it never came"
        got = json.loads(str(record.tools["got"]))
    finally:
        session.close()
    assert got == dict.fromkeys(("run_dir", "match", "log", "tmux"), everything)
