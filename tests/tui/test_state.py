"""What keys change, by values."""

from dflash_tui import state
from dflash_tui.plot import Sample
from dflash_tui.state import Choices, Panel, Shown
from dflash_tui.view import build_view

LINES = tuple(f"line {n}" for n in range(50))


def test_the_window_key_goes_round() -> None:
    now, seen = Choices(), []
    for _ in range(4):
        now = state.next_window(now)
        seen.append(now.window_s)
    assert seen == [7200.0, None, 300.0, 1800.0]


def test_scrolling_up_holds_the_log_and_scrolling_down_follows_again() -> None:
    held = state.scroll(Choices(), 3, LINES)
    assert (held.scroll, held.held) == (3, LINES)
    assert state.scroll(held, -3, (*LINES, "new")) == Choices()


def test_a_held_log_keeps_the_lines_it_had() -> None:
    held = state.scroll(Choices(), 3, LINES)
    assert state.scroll(held, 1, (*LINES, "new")).held == LINES


def test_scrolling_stops_at_the_oldest_line() -> None:
    assert state.scroll(Choices(), 9999, LINES).scroll == len(LINES) - 1
    assert state.scroll(Choices(), 5, ()) == Choices()


def test_other_panels_scroll_down_from_their_top() -> None:
    now = Choices(focus=Panel.FINDINGS)
    assert state.scroll(now, -2, LINES).scroll == 2
    assert state.scroll(now, 2, LINES).scroll == 0


def test_escape_goes_back_one_level_at_a_time() -> None:
    now = state.scroll(Choices(needle="loss"), 2, LINES)._replace(zoom=Panel.LOG)
    now = now._replace(asking="really?")
    levels = []
    for _ in range(4):
        now = state.back(now)
        levels.append((now.asking, now.zoom, now.held, now.needle))
    assert levels[0] == (None, Panel.LOG, LINES, "loss")
    assert levels[1] == (None, None, None, "loss")
    assert levels[2] == (None, None, None, "")
    assert levels[3] == levels[2]


def test_pausing_keeps_what_was_shown_and_a_second_press_lets_go() -> None:
    shown = Shown(build_view(None, 0.0, 0.0))
    paused = state.toggle_pause(Choices(), shown)
    assert paused.paused is shown
    assert state.toggle_pause(paused, shown).paused is None


def test_a_filter_is_typed_kept_and_left() -> None:
    now = Choices(typing="")
    for char in "loss":
        now = state.typed(now, char, char)
    now = state.typed(now, "backspace", "")
    assert now.typing == "los"
    assert state.typed(now, "escape", "").needle == ""
    assert state.typed(now, "enter", "").needle == "los"


def test_control_characters_do_not_enter_a_filter() -> None:
    assert state.typed(Choices(typing=""), "", "a\x1b[31m\nb").typing == "a[31mb"


def test_focus_goes_round_and_takes_a_zoom_with_it() -> None:
    now = Choices(focus=Panel.LOG, zoom=Panel.LOG)
    assert state.focus_next(now, 1).zoom is Panel.PIPELINE
    assert state.focus_next(now, -1).focus is Panel.FINDINGS


def test_overlapping_log_tails_are_joined_once() -> None:
    kept, new = state.merge_lines(LINES[:30], LINES[20:40])
    assert (kept, new) == (LINES[:40], 10)
    assert state.merge_lines(kept, LINES[20:40]) == (kept, 0)
    assert state.merge_lines(kept, ()) == (kept, 0)


def test_a_progress_bar_that_rewrites_its_line_takes_one_line() -> None:
    kept, _ = state.merge_lines((), ("a", "b", "39 %"))
    kept, new = state.merge_lines(kept, ("a", "b", "40 %"))
    assert (kept, new) == (("a", "b", "40 %"), 0)
    assert state.merge_lines(kept, ("a", "b", "100 %", "c")) == (("a", "b", "100 %", "c"), 1)


def test_log_tails_without_overlap_follow_each_other() -> None:
    assert state.merge_lines(("a",), ("x", "y")) == (("a", "x", "y"), 2)


def test_the_kept_log_is_bounded() -> None:
    kept: tuple[str, ...] = ()
    for n in range(0, 3 * state.LOG_KEPT, 50):
        kept, _ = state.merge_lines(kept, tuple(f"{n + i}" for i in range(50)))
    assert len(kept) == state.LOG_KEPT
    assert kept[-1] == f"{3 * state.LOG_KEPT - 1}"


def test_points_that_leave_the_snapshot_stay_on_the_plot() -> None:
    first = [Sample(float(t), 1.0, 1.0) for t in range(10)]
    second = [Sample(float(t), 2.0, 2.0) for t in range(5, 15)]
    merged = state.merge_points(state.merge_points((), first), second)
    assert [point.t for point in merged] == [float(t) for t in range(15)]
    assert merged[6].low == 2.0


def test_a_long_past_is_thinned_and_its_dips_survive() -> None:
    points = [Sample(float(t), 0.0 if t == 7 else 5.0, 6.0) for t in range(state.POINTS_KEPT)]
    merged = state.merge_points(tuple(points), [Sample(float(state.POINTS_KEPT), 5.0, 6.0)])
    assert len(merged) < state.POINTS_KEPT
    assert min(point.low for point in merged) == 0.0
    assert merged[-1].t == float(state.POINTS_KEPT)
