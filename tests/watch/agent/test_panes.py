"""A tmux pane as a log: what is new on the screen, and a real server end to end."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from dflash_watch.agent.probes.panes import Screen, new_lines, parse

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def lines(*numbers: int) -> list[str]:
    return [f"step={number}" for number in numbers]


def screen(*numbers: int, rows: int = 0) -> Screen:
    return Screen(lines(*numbers), "", rows)


def test_everything_is_new_at_first():
    assert new_lines([], screen(1, 2, 3), 3) == lines(1, 2, 3)


def test_only_what_stands_below_the_known_lines_is_new():
    assert new_lines(lines(1, 2, 3), screen(1, 2, 3, 4, 5), 2) == lines(4, 5)


def test_lines_that_scrolled_away_are_not_missed():
    known = lines(*range(1, 20))
    assert new_lines(known, screen(*range(14, 25)), 5) == lines(20, 21, 22, 23, 24)


def test_repeated_lines_are_counted_by_how_far_the_pane_grew():
    known = ["waiting"] * 6
    assert new_lines(known, Screen(["waiting"] * 9, "", 9), 3) == ["waiting"] * 3


def test_a_cleared_pane_begins_anew():
    assert new_lines(lines(1, 2, 3), screen(9), -5) == lines(9)


def test_nothing_new_is_nothing():
    assert new_lines(lines(1, 2), screen(1, 2), 0) == []


def test_a_line_under_the_cursor_is_not_finished():
    assert parse("0 7 1 0\none\n 42%|##\n\n\n") == Screen(["one"], " 42%|##", 1)
    assert parse("3 0 2 0\none\ntwo\n\n") == Screen(["one", "two"], "", 5)


@pytest.mark.parametrize("text", ["", "no server running", "1 2\n"])
def test_an_answer_that_is_none_is_refused(text):
    assert parse(text) is None


@needs_tmux
def test_a_run_in_a_pane_is_read_from_the_pane_and_each_line_once(agent, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, time\n"
        "for step in range(1, 400):\n"
        "    print(f'step={step} loss=1.0', flush=True); time.sleep(0.05)\n"
    )
    env = {
        "TMUX_TMPDIR": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "TERM": "xterm",
        "HOME": str(tmp_path),
    }
    new = [
        "tmux",
        "new-session",
        "-d",
        "-s",
        "dflash",
        "-x",
        "80",
        "-y",
        "12",
        f"{sys.executable} {script}",
    ]
    subprocess.run(new, check=True, env=env, timeout=90)
    try:
        run = agent({"tmux": "dflash"}, env=env, python=sys.executable)
        text = ""
        while "step=100 " not in text:
            for log in run.frame().get("logs", ()):
                text += log.get("text", "")
        steps = [line.split()[0] for line in text.splitlines() if line.startswith("step=")]
        assert steps[:100] == [f"step={step}" for step in range(1, 101)]
        frame = run.frame(lambda frame: frame["logs"][0].get("text"))
        assert frame["logs"][0]["is_tty"]
        assert frame["logs"][0]["via"].startswith("tmux %")
    finally:
        subprocess.run(["tmux", "kill-server"], check=True, env=env, timeout=90)
