"""Drawings say what the numbers say: dips survive, gaps stay gaps, 0 is at the bottom."""

import math

import pytest
from dflash_tui.plot import EMPTY, Axes, Sample, bar, braille, nice_top, spark
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.none() | st.floats(allow_nan=True, allow_infinity=True)


def drawn(samples: list[Sample], cells: int = 10, height: int = 2, **more: float) -> list[str]:
    return braille(samples, Axes(0.0, 20.0, 0.0, 10.0), cells, height, **more)


def columns_with_dots(rows: list[str]) -> set[int]:
    return {column for row in rows for column, char in enumerate(row) if char != EMPTY}


def test_a_bar_has_one_length_and_its_filled_part_grows_with_the_ratio() -> None:
    assert bar(0.5, 8) == ("━━━━", "────")
    assert bar(1.7, 4) == ("━━━━", "")
    assert bar(None, 4) == bar(math.nan, 4) == ("", "────")


def test_a_spark_line_never_uses_the_full_block_and_shows_gaps_as_blanks() -> None:
    assert spark([0, 50, None, 100], 4, 100) == "▁▄ ▇"


def test_a_short_dip_survives_in_a_spark_line() -> None:
    values = [100.0] * 100
    values[50] = 1.0
    assert "▁" in spark(values, 10, 100)


def test_newest_values_stand_at_the_right() -> None:
    assert spark([100.0], 5, 100) == "    ▇"


def test_a_gap_in_the_data_is_a_gap_in_the_plot() -> None:
    steady = [Sample(float(t), 5.0, 5.0) for t in range(20)]
    assert columns_with_dots(drawn(steady)) == set(range(10))
    holed = [*steady[:6], Sample(6.0, None, None), *steady[14:]]
    assert columns_with_dots(drawn(holed)) == {0, 1, 2, 7, 8, 9}


def test_points_missing_without_a_word_are_a_gap_too() -> None:
    steady = [Sample(float(t), 5.0, 5.0) for t in range(20)]
    assert columns_with_dots(drawn(steady[:6] + steady[14:])) == {0, 1, 2, 7, 8, 9}


def test_points_further_apart_than_columns_are_joined() -> None:
    sparse = [Sample(float(t), 5.0, 5.0) for t in range(0, 21, 4)]
    assert columns_with_dots(drawn(sparse)) == set(range(10))


def test_a_dip_of_one_sample_reaches_the_bottom_when_many_share_a_column() -> None:
    values = [Sample(t / 50, 9.0, 9.0) for t in range(1000)]
    values[500] = Sample(10.0, 0.0, 9.0)
    bottom = drawn(values)[-1]
    assert columns_with_dots([bottom]) == {5}


def test_a_stall_is_a_line_at_the_bottom() -> None:
    fallen = [Sample(float(t), 8.0 if t < 10 else 0.0, 8.0 if t < 10 else 0.0) for t in range(20)]
    assert drawn(fallen)[-1].endswith("⣀⣀⣀⣀")


def test_the_baseline_is_dashed_where_nothing_else_is() -> None:
    assert drawn([], baseline=9.9) == ["╌" * 10, EMPTY * 10]


def test_old_data_ends_left_of_now() -> None:
    old = [Sample(float(t), 5.0, 5.0) for t in range(11)]
    assert max(columns_with_dots(drawn(old))) == 5


@given(st.lists(st.tuples(st.floats(0, 100), NUMBERS, NUMBERS)), NUMBERS, st.integers(1, 30))
def test_any_numbers_give_a_plot_of_the_size_asked_for(values, baseline, cells) -> None:
    rows = drawn([Sample(*value) for value in values], cells, 3, baseline=baseline)
    assert [len(row) for row in rows] == [cells] * 3


@given(st.lists(NUMBERS), st.integers(0, 30), NUMBERS)
def test_any_numbers_give_a_spark_line_of_the_width_asked_for(values, cells, top) -> None:
    assert len(spark(values, cells, top)) == cells


@pytest.mark.parametrize(("value", "top"), [(14510, 16000), (0, 1), (math.inf, 1), (99, 100)])
def test_the_top_of_the_plot_is_a_round_number(value: float, top: float) -> None:
    assert nice_top(value) == top
