"""The dashboard in real terminals: tmux for what is seen, a pty for signals and stalled readers."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence

import pytest

from tui.terminals import Tmux, environment

COMMAND = [sys.executable, "-m", "dflash_tui", "--scene", "stalled"]
DEMO = [sys.executable, "-m", "dflash_watch.cli", "--demo"]
ALTERNATE_OFF = b"\x1b[?1049l"
CURSOR_ON = b"\x1b[?25h"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]


@pytest.fixture
def tmux(tmp_path):
    opened = []

    def start(size=(120, 40), after="echo code=$?; sleep 60", options="", **env: str) -> Tmux:
        line = " ".join(COMMAND) + f" {options}; {after}"
        opened.append(Tmux(tmp_path / "s", size, line, **env))
        return opened[-1]

    yield start
    for server in opened:
        server.close()


def test_it_starts_shows_the_verdict_and_quits_with_zero(tmux) -> None:
    terminal = tmux()
    screen = terminal.shows("STALLED", "q quit")
    assert "pipeline-deadlock" in screen.splitlines()[1]
    assert "q quit" in screen.splitlines()[39]
    terminal.tell("send-keys", "-t", "s", "q")
    after = terminal.shows("code=0")
    assert "STALLED" not in after


@pytest.mark.parametrize("exported", [{}, {"COLUMNS": "80", "LINES": "24"}], ids=str)
def test_it_fills_the_terminal_and_follows_a_resize_whatever_is_exported(tmux, exported) -> None:
    terminal = tmux(**exported)
    screen = terminal.shows("STALLED", "q quit")
    assert "q quit" in screen.splitlines()[39]
    terminal.tell("resize-window", "-t", "s", "-x", "80", "-y", "24")
    screen = terminal.shows("\n─Log", "q quit")
    assert all(len(line) <= 80 for line in screen.splitlines())
    terminal.tell("resize-window", "-t", "s", "-x", "50", "-y", "12")
    terminal.shows("needs 60x16, has 50x12")


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT"])
def test_a_signal_ends_it_and_leaves_the_terminal_usable(tmux, name: str) -> None:
    terminal = tmux()
    terminal.shows("STALLED")
    shell = terminal.tell("list-panes", "-t", "s", "-F", "#{pane_pid}").strip()
    child = subprocess.check_output(["pgrep", "-P", shell], text=True).split()[0]
    os.kill(int(child), getattr(signal, f"SIG{name}"))
    after = terminal.shows(f"code={128 + getattr(signal, f'SIG{name}')}")
    assert "STALLED" not in after
    assert (
        terminal.tell("display", "-p", "-t", "s", "#{alternate_on}#{cursor_flag}").strip() == "01"
    )
    assert terminal.tell("display", "-p", "-t", "s", "#{mouse_any_flag}").strip() == "0"


def test_without_utf8_it_draws_plain_ascii(tmux) -> None:
    terminal = tmux(
        options="", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii"
    )
    screen = terminal.shows("STALLED", "q quit")
    assert screen.isascii()
    assert "# STALLED" in screen


def test_no_color_sends_no_colour(tmux) -> None:
    terminal = tmux(NO_COLOR="1")
    painted = terminal.painted("\x1b[7m")
    codes = {code for run in re.findall(r"\x1b\[([\d;]*)m", painted) for code in run.split(";")}
    assert not codes & {"38", "48", *map(str, range(31, 38)), *map(str, range(41, 48))}
    assert "7" in codes


@pytest.mark.parametrize(("colorterm", "wanted"), [("truecolor", "48;2;230;159;0"), ("", "48;5;")])
def test_colours_follow_what_the_terminal_says(tmux, colorterm: str, wanted: str) -> None:
    terminal = tmux(COLORTERM=colorterm, TERM="xterm-256color")
    if colorterm:
        terminal.tell("set", "-g", "default-terminal", "tmux-256color")
    assert wanted in terminal.painted(wanted)


class Pty:
    """The dashboard on a pseudo-terminal that this test reads, or does not."""

    def __init__(self, *, ignores_hangup: bool = False, command: Sequence[str] = COMMAND) -> None:
        self.master, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.before = termios.tcgetattr(side)
        self.side = side

        def begin() -> None:
            if ignores_hangup:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
            stdin=side,
            stdout=side,
            stderr=side,
            env=environment(),
            preexec_fn=begin,  # noqa: PLW1509 - no thread runs here; a terminal must be taken over
        )

    def hang_up(self) -> None:
        os.close(self.side)
        os.close(self.master)
        self.side = self.master = -1

    def read_until(self, text: bytes, timeout_s: float = 90.0) -> bytes:
        got, deadline = b"", time.monotonic() + timeout_s
        while text not in got:
            assert time.monotonic() < deadline, got[-300:]
            if select.select([self.master], [], [], 0.2)[0]:
                got += os.read(self.master, 65536)
        return got

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=90)
        for fd in (self.master, self.side):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def on_pty():
    opened = []

    def start(**more) -> Pty:
        opened.append(Pty(**more))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_gets_back_its_mode_its_screen_and_its_cursor(on_pty, number) -> None:
    terminal = on_pty()
    terminal.read_until(b"STALLED")
    assert termios.tcgetattr(terminal.side)[3] != terminal.before[3]
    terminal.process.send_signal(number)
    rest = terminal.read_until(ALTERNATE_OFF)
    assert terminal.process.wait(timeout=90) == 128 + number
    while select.select([terminal.master], [], [], 0.2)[0]:
        rest += os.read(terminal.master, 65536)
    assert CURSOR_ON in rest
    assert termios.tcgetattr(terminal.side)[3] == terminal.before[3]


def test_a_terminal_that_stops_reading_does_not_keep_it_from_ending(on_pty) -> None:
    terminal = on_pty()
    terminal.read_until(b"STALLED")
    fcntl.ioctl(terminal.side, termios.TIOCSWINSZ, struct.pack("HHHH", 400, 500, 0, 0))
    for _ in range(40):  # nobody reads: repaints of a huge screen fill every buffer on the way
        terminal.process.send_signal(signal.SIGWINCH)
        os.write(terminal.master, b"tHtH")
        time.sleep(0.02)
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.process.wait(timeout=90) == 128 + signal.SIGTERM
    assert termios.tcgetattr(terminal.side)[3] == terminal.before[3]


@pytest.mark.parametrize("ignores_hangup", [False, True])
def test_a_terminal_that_is_gone_ends_it(on_pty, ignores_hangup: bool) -> None:
    terminal = on_pty(ignores_hangup=ignores_hangup)
    terminal.read_until(b"STALLED")
    terminal.hang_up()
    assert terminal.process.wait(timeout=90) == 128 + signal.SIGHUP


def test_the_command_says_the_signal_too_though_its_output_went_with_the_terminal(on_pty) -> None:
    terminal = on_pty(command=DEMO)
    terminal.read_until(b"help")
    terminal.hang_up()
    assert terminal.process.wait(timeout=90) == 128 + signal.SIGHUP


def test_without_a_terminal_it_says_so() -> None:
    done = subprocess.run(
        COMMAND, capture_output=True, text=True, env=environment(), timeout=60, check=False
    )
    assert done.returncode == 64
    told = "the dashboard needs a terminal; run it where you can see it"
    assert done.stderr == f"dflash_tui: {told}\n"
