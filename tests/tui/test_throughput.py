"""The throughput panel: young runs in fine points, a stall as a step to 0, runs without tokens."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from dflash_tui.cells import Ink, row_text
from dflash_tui.panels import workers
from dflash_tui.plot import EMPTY, Axes, Sample, means
from dflash_tui.screen import compose, text_of
from dflash_watch import model

from tui.screens import desk_of, scene


def with_board(snapshot: model.Snapshot, **changes: Any) -> model.Snapshot:
    board = msgspec.structs.replace(snapshot.board, **changes)
    return msgspec.structs.replace(snapshot, board=board)


def drawn(snapshot: model.Snapshot, width: int = 120, height: int = 40) -> list[str]:
    return text_of(compose(desk_of(snapshot).screen(), width, height)).splitlines()


def plot_of(lines: list[str]) -> list[str]:
    """The rows of the plot, without frame and labels."""
    first = next(n for n, line in enumerate(lines) if "─ Throughput" in line) + 1
    last = next(n for n, line in enumerate(lines) if "-30 s" in line or "-1 min" in line)
    return [line[10:-2] for line in lines[first:last]]


def point(t: float, low: float, high: float | None = None) -> model.Point:
    return model.Point(t=t, low=low, high=low if high is None else high)


def young(name: str, *, silent_s: float = 0.0, tokens: float = 8000.0) -> model.Snapshot:
    """A run of eighty seconds that says a figure a second, and nothing since the last step."""
    snapshot = scene(name)
    now = snapshot.t
    said = [now - 80 + n for n in range(81) if 80 - n >= silent_s]
    values = {t: tokens * (0.5 + 0.5 * (int(t) % 2)) for t in said}
    coarse = tuple(
        point(start, tokens * 0.5, tokens)
        if any(start <= t < start + 15 for t in said)
        else model.Point(t=start, low=None, high=None)
        for start in (now - now % 15 - 15.0 * back for back in range(119, -1, -1))
    )
    return with_board(
        snapshot, throughput=coarse, recent=tuple(point(t, one) for t, one in values.items()),
        last_step_age_s=silent_s, baseline_tokens_per_s=None, tokens_per_s=tokens,
    )  # fmt: skip


def test_a_young_run_is_drawn_from_its_fine_points_and_not_as_a_band() -> None:
    snapshot = young("running")
    fine = plot_of(drawn(snapshot))
    band = plot_of(drawn(with_board(snapshot, recent=())))

    def dots(rows: list[str]) -> int:
        return sum((ord(mark) - 0x2800).bit_count() for row in rows for mark in row if mark > EMPTY)

    assert dots(band) > 1.3 * dots(fine)


def test_a_stall_falls_at_the_last_step_and_not_over_a_bucket() -> None:
    rows = plot_of(drawn(young("stalled", silent_s=40.0)))
    top_end = max(n for row in rows[:-1] for n, mark in enumerate(row) if mark > EMPTY)
    cells = len(rows[0])
    assert top_end == pytest.approx(cells * 80 / 120, abs=1)  # 120 s shown, 40 s ago
    assert set(rows[-1][top_end + 1 : cells - 1]) == {"⣀"}
    reaches = [n for row in rows[:-1] for n, mark in enumerate(row) if mark > EMPTY]
    assert min(reaches) < top_end - 10


def test_a_stall_that_is_older_than_the_window_is_a_line_at_the_bottom() -> None:
    snapshot = scene("stalled")
    old = tuple(
        one if one.t < snapshot.t - 1700 else model.Point(t=one.t, low=None, high=None)
        for one in snapshot.board.throughput
    )
    desk = desk_of(with_board(snapshot, throughput=old, last_step_age_s=1690.0))
    desk.choose(lambda choices: choices._replace(window_s=300.0))
    lines = text_of(compose(desk.screen(), 120, 40)).splitlines()
    floor = next(line for line in lines if line.startswith("│      0 "))
    assert floor.count("⣀") > 100


def test_the_spark_line_shows_the_mean_of_a_bucket_and_has_no_hole_in_a_stall() -> None:
    lines = drawn(young("stalled", silent_s=40.0), 80, 24)
    spark = next(line for line in lines if line.startswith(" tok/s"))
    marks = spark.split(" last ")[0].removeprefix(" tok/s 2m ").strip()
    assert " " not in marks
    assert marks.endswith("▁▁▁▁▁")
    axes = Axes(0.0, 4.0, 0.0, 10.0)
    samples = [Sample(float(t), 2.0, 8.0, 2.0 * t) for t in range(4)]
    assert means(samples, axes, 4) == [0.0, 2.0, 4.0, 6.0]
    assert means([sample._replace(mean=None) for sample in samples], axes, 4) == [5.0] * 4
    assert means([samples[0], Sample(1.0, None, None), samples[2]], axes, 4)[1] is None


def test_a_run_without_tokens_shows_its_steps_a_second() -> None:
    snapshot = scene("running")
    steps = tuple(point(one.t, 0.7, 0.84) for one in snapshot.board.throughput)
    snapshot = with_board(
        snapshot, tokens_per_s=None, baseline_tokens_per_s=None, throughput=steps,
        steps_per_s=0.84, throughput_unit="steps/s",
    )  # fmt: skip
    large, small = drawn(snapshot), drawn(snapshot, 80, 24)
    assert "0.84 steps/s" in large[1]
    assert "0.84 steps/s" in small[1]
    assert any("Throughput  steps/s · now 0.84 ·" in line for line in large)
    assert any(line.startswith(" steps/s 30m") and "now 0.84" in line for line in small)
    assert any(line.startswith("│      1 ") for line in large)


def test_points_of_another_unit_are_not_joined() -> None:
    snapshot = scene("running")
    old = tuple(point(one.t - 9000, 1.0) for one in snapshot.board.throughput)
    desk = desk_of(with_board(snapshot, throughput=old, throughput_unit="steps/s"))
    desk.take(snapshot)
    assert len(desk.shown().points) == len(snapshot.board.throughput)


def test_that_main_waits_for_the_others_is_said_quietly() -> None:
    waits = {"wait": "peer", "wait_s": 500.0, "state": "running"}
    rows = [
        model.WorkerRow(name=name, role=role, **waits)
        for name, role in (("main", "main"), ("drafter-0", "drafter"))
    ]
    drafter, main = workers.worker_rows(model.Board(workers=tuple(rows)), 0.0, 120)
    inks = {
        name: next(span.ink for span in row if span.text.startswith("waits"))
        for name, row in (("main", main), ("drafter", drafter))
    }
    assert "waits: peer" in row_text(main)
    assert inks == {"main": Ink.DIM, "drafter": Ink.WARN}
