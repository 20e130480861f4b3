"""Process tables in their common shapes, and clocks that lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from dflash_watch.readers.psclock import parse_age
from dflash_watch.readers.pstext import parse_ps

PS = Path(__file__).parent / "ps"


def recorded(name: str) -> str:
    return (PS / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize("name", ["aux", "ef", "eo", "axo", "lstart"])
def test_a_process_is_the_same_in_every_shape(name: str) -> None:
    seen = parse_ps(recorded(name))
    row = seen.rows[0]
    assert (seen.tool, len(seen.rows), seen.lists_threads) == ("ps", 1, False)
    assert (row.pid, row.command) == (31174, "/srv/venv/bin/python waits.py")
    assert row.state in ("Sl", None)
    assert row.rss_bytes in (11148 * 1024, None)
    assert row.cpu_percent in (99.0, 99.1, None)
    assert seen.unread == ()
    assert seen.artefact is None


def test_what_the_kernel_waits_in_and_the_age_are_read() -> None:
    row = parse_ps(recorded("eo")).rows[0]
    assert (row.wchan, row.elapsed_s) == ("hrtimer_nanosleep", 1.0)
    started = parse_ps(recorded("lstart")).rows[0]
    assert (started.started, started.num_threads) == ("Sun Nov 29 20:37:59 2026", 9)


@pytest.mark.parametrize("name", ["T", "L", "eLf"])
def test_threads_are_read_with_their_process(name: str) -> None:
    seen = parse_ps(recorded(name))
    assert seen.lists_threads
    assert {row.pid for row in seen.rows} == {31174}
    assert [row.tid for row in seen.rows][:3] == [31174, 31176, 31177]
    assert len(seen.rows) == 9


def test_threads_of_top_are_threads_and_their_process_is_not_known() -> None:
    seen = parse_ps(recorded("topH"))
    assert (seen.tool, seen.lists_threads, len(seen.rows)) == ("top", True, 9)
    assert {row.pid for row in seen.rows} == {None}
    busy = [row.tid for row in seen.rows if (row.cpu_percent or 0) > 50]
    assert busy == [31174, 31183]
    assert seen.rows[0].rss_bytes == 11148 * 1024
    assert seen.rows[0].cpu_s == 1.18


def test_a_tree_has_plain_commands() -> None:
    assert parse_ps(recorded("auxf")).rows[1].command == "[pool_workqueue_release]"


def test_the_clock_of_a_container_is_recognised_and_left_out() -> None:
    seen = parse_ps(recorded("lxc-debian12"))
    assert seen.artefact is not None
    assert "proves anything" in seen.artefact.text
    assert {row.elapsed_s for row in seen.rows} == {None}
    assert {row.cpu_percent for row in seen.rows} == {None}
    assert [row.state for row in seen.rows] == ["Ss", "Sl", "R+"]
    assert seen.rows[1].memory_percent == 19.5


def test_the_field_line_tells_how_much_older_the_host_was() -> None:
    line = "24294 441077229-16:25:36  0.0 19.5 Sl   python train.py\n"
    for text in (line, "  PID ELAPSED %CPU %MEM STAT CMD\n" + line):
        seen = parse_ps(text)
        assert seen.rows[0].state == "Sl"
        assert seen.artefact is not None
        assert seen.artefact.host_longer_s is not None
        assert round(seen.artefact.host_longer_s / 86400, 2) == 4.33
        assert "4.33 days" in seen.artefact.text
    assert parse_ps(line).guessed


def test_processor_time_without_age_or_share_is_an_artefact_too() -> None:
    text = "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\n"
    hours = text + "root 7 0.0 19.5 99 99 ? Sl 10:05 95:12 python train.py\n"
    assert parse_ps(hours).artefact is not None
    idle = text + "root 7 0.0 19.5 99 99 ? Sl 10:05 0:02 python train.py\n"
    assert parse_ps(idle).artefact is None
    old = text + "root 7 0.0 19.5 99 99 ? Sl Nov28 95:12 python train.py\n"
    assert parse_ps(old).artefact is None
    clamped = "PID ELAPSED TIME CMD\n7 00:00 01:35:12 python\n"
    assert parse_ps(clamped).artefact is not None


def test_lines_cut_out_of_a_table_are_read_without_its_head() -> None:
    aux = recorded("aux").splitlines()[1]
    ef = recorded("ef").splitlines()[1]
    for line in (aux, ef):
        seen = parse_ps(f"$ ps aux | grep python\n{line}\n")
        assert [row.pid for row in seen.rows] == [31174]
        assert seen.guessed


def test_a_process_in_state_d_keeps_the_place_in_the_kernel() -> None:
    text = "PID STAT WCHAN CMD\n9 D rpc_wait_bit_killable python a b\n8 Z - [python] <defunct>\n"
    first, second = parse_ps(text).rows
    assert (first.state, first.wchan, first.command) == ("D", "rpc_wait_bit_killable", "python a b")
    assert (second.state, second.wchan) == ("Z", None)


def test_a_row_that_does_not_fit_its_head_is_told() -> None:
    seen = parse_ps("PID STAT CMD\n12 Sl python\nsomething else here\n")
    assert (len(seen.rows), seen.unread) == (1, ("something else here",))


def test_text_about_something_else_has_no_rows() -> None:
    for text in ("", "step 12 loss 2.1\n", "12 13 14\n", "PID file written\n", "2026 10:00:00 x\n"):
        assert parse_ps(text).rows == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("02:03", 123), ("01:02:03", 3723), ("2-00:00:01", 172801), ("0:01.18", 1.18), ("7", 7),
        ("-", None), ("", None), ("1:2", None), ("99999999999999999999", None),
    ],
)  # fmt: skip
def test_ages(text: str, seconds: float | None) -> None:
    assert parse_age(text) == seconds
