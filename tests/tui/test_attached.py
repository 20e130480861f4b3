"""A dashboard that visits a server, in a real terminal: it sees the server go, and come back."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from tui.terminals import ROOT, Tmux, environment

CLI = [sys.executable, "-m", "dflash_watch.cli"]
LOOP = ROOT / "tests" / "e2e" / "scripts" / "plain_loop.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]


@pytest.fixture
def place(tmp_path):
    """A run with its log, folders of its own, and what ends all that was started there."""
    (tmp_path / "runtime").mkdir(mode=0o700)
    env = environment(XDG_RUNTIME_DIR=str(tmp_path / "runtime"), XDG_STATE_HOME=str(tmp_path))
    started = []

    def start(*words: str, **more) -> subprocess.Popen:
        started.append(
            subprocess.Popen(words, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, **more)
        )
        return started[-1]

    with (tmp_path / "run.log").open("wb") as log:
        run = start(sys.executable, str(LOOP), "--steps", "100000", "--step-s", "0.05", stdout=log)
    yield env, start, run
    for one in started:
        one.kill()
        one.wait(timeout=90)
        if one.stderr is not None:
            one.stderr.close()


def serve(start, run) -> subprocess.Popen:
    server = start(*CLI, "serve", "--pid", str(run.pid), stderr=subprocess.PIPE)
    assert b"serving" in server.stderr.readline()
    return server


def test_it_shows_whose_guest_it_is_loses_the_server_finds_it_again_and_leaves(place, tmp_path):
    env, start, run = place
    server = serve(start, run)
    line = " ".join([*CLI, "attach"]) + "; echo code=$?; sleep 60"
    terminal = Tmux(tmp_path / "s", (120, 40), line, **{
        name: env[name] for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME")
    })  # fmt: skip
    try:
        terminal.shows("RUNNING", " served ", "q quit")
        server.kill()
        server.wait(timeout=90)
        screen = terminal.shows("BLIND", "the watcher process has ended")
        assert "start watcher pid-" in screen
        server = serve(start, run)
        terminal.shows("RUNNING", " served ")
        os.kill(run.pid, signal.SIGSTOP)
        terminal.shows("STALLED", "process-stopped")
        terminal.tell("send-keys", "-t", "s", "a")
        terminal.shows("STALLED", "acknowledged ")
        terminal.tell("send-keys", "-t", "s", "q")
        terminal.shows("goes on watching; come back: dflash-watch attach", "code=0")
        assert server.poll() is None
    finally:
        terminal.close()
