"""The whole screen as text: golden files for every state, and properties for any snapshot.

After a wanted change of the drawing: `python tests/tui/draw_golden.py`, and read the difference.
"""

import math
from datetime import UTC

import msgspec
import pytest
from dflash_tui import state
from dflash_tui.cells import row_text, row_width
from dflash_tui.demo.feed import DemoFeed, FrozenClock
from dflash_tui.demo.scenes import SCENES
from dflash_tui.desk import Desk
from dflash_tui.keys import keys_for
from dflash_tui.screen import Stills, boxes_of, compose, text_of
from dflash_tui.state import Choices, Panel
from dflash_tui.theme import State, to_ascii
from dflash_watch import model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tui.screens import GOLDEN, GOLDEN_SCREENS, desk_of, rows_of, scene

SIZES = [(60, 16), (79, 23), (80, 24), (99, 40), (100, 34), (120, 40), (160, 45), (200, 20)]


@pytest.mark.parametrize(("name", "width", "height"), GOLDEN_SCREENS)
def test_a_scene_looks_as_it_was_last_agreed(name: str, width: int, height: int) -> None:
    wanted = (GOLDEN / f"{name}-{width}x{height}.txt").read_text("utf-8")
    assert text_of(rows_of(name, width, height)) == wanted


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("size", SIZES)
def test_every_scene_fills_every_size_exactly(name: str, size: tuple[int, int]) -> None:
    rows = rows_of(name, *size)
    assert len(rows) == size[1]
    assert {row_width(row) for row in rows} == {size[0]}


@pytest.mark.parametrize("name", SCENES)
def test_state_and_data_age_are_on_the_screen_at_every_size(name: str) -> None:
    for width, height in [*SIZES, (40, 8)]:
        banner = next(
            row_text(row) for row in rows_of(name, width, height) if " data " in row_text(row)
        )
        assert banner.rstrip().endswith(("old", "no data yet"))
        if width >= 60:
            view = desk_of(scene(name)).view()
            assert view.state.word in banner


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_small_and_large_screens_show_all_that_decides(size: tuple[int, int]) -> None:
    text = text_of(rows_of("stalled", *size))
    lines = text.splitlines()
    assert "STALLED" in lines[1]
    assert "pipeline-deadlock" in lines[1]
    assert all(any(line.lstrip("│ ").startswith(f"{gpu}") for line in lines) for gpu in range(8))
    for fact in ("60/60", "FULL", "silent for", "14 200", "SIGTERM"):
        assert fact in text


def test_a_lost_card_keeps_its_row_and_says_why() -> None:
    text = text_of(rows_of("gpu-lost", 80, 24))
    assert "6D lost   GPU is lost (NVML 15)" in text


def test_an_odd_value_is_marked_with_its_direction() -> None:
    assert "▼388W" in text_of(rows_of("gpu-lost", 80, 24))


def test_more_cards_than_rows_become_groups_and_the_odd_one() -> None:
    text = text_of(rows_of("sixteen-gpus", 80, 24))
    assert "x10T" in text
    assert " 12D" in text
    assert "of 16 GPUs" in text


def test_zoom_shows_every_card() -> None:
    choices = Choices(zoom=Panel.PIPELINE, focus=Panel.PIPELINE)
    text = text_of(rows_of("sixteen-gpus", 80, 40, choices))
    assert all(f" {gpu:>2}{'T' if gpu < 10 else 'D'} " in text for gpu in range(16))


def test_a_run_without_cards_shows_its_workers() -> None:
    text = text_of(rows_of("on-cpu", 80, 24))
    assert "target-0" in text
    assert "drafter-1" in text
    assert "waits: queue-put" in text


def test_the_queue_stands_before_the_first_drafter_whatever_else_there_is() -> None:
    snapshot = scene("on-cpu")
    extra = model.WorkerRow(name="main", role="main", wait="peer", wait_s=46.0)
    board = msgspec.structs.replace(snapshot.board, workers=(extra, *snapshot.board.workers))
    lines = text_of(
        compose(desk_of(msgspec.structs.replace(snapshot, board=board)).screen(), 80, 24)
    ).splitlines()
    order = [line[2:].split()[0] for line in lines[4:11]]
    assert order == ["L", "T", "T", "Q", "D", "D", "M"]


def test_blind_paints_values_grey_and_names_the_last_known_state() -> None:
    rows = rows_of("blind", 120, 40)
    assert "last known: RUNNING at 14:12:42" in row_text(rows[1])
    gpu = next(row for row in rows if "T target" in row_text(row))
    assert {span.ink.value for span in gpu} <= {"dim", "rule"}


def test_below_the_least_size_it_says_what_it_needs() -> None:
    text = text_of(rows_of("stalled", 50, 12))
    assert "needs 60x16" in text
    assert "STALLED" in text


def test_a_held_log_stays_and_counts_what_is_new() -> None:
    clock = FrozenClock()
    feed = DemoFeed(clock, UTC, "running")
    desk = Desk(keys_for(demo=False), clock, UTC)
    desk.take(feed.latest())
    desk.scroll(3)
    before = text_of(compose(desk.screen(), 120, 40)).splitlines()
    clock.now_s += 12.0
    desk.take(feed.latest())
    after = text_of(compose(desk.screen(), 120, 40)).splitlines()
    assert [line[60:] for line in before[30:37]] == [line[60:] for line in after[30:37]]
    assert "10 new · f follows again" in after[37]


def test_evidence_is_not_said_twice() -> None:
    snapshot = scene("slow")
    same = model.Evidence(kind="for", text=snapshot.summary, source="log")
    twice = msgspec.structs.replace(snapshot, evidence=(same, same, *snapshot.evidence))
    text = text_of(compose(desk_of(twice).screen(), 250, 40))
    assert text.count(snapshot.summary) == 1
    assert "drafters wait 31 %" in text


def test_a_narrow_log_leaves_out_the_date_and_keeps_the_time() -> None:
    log = model.LogView(lines=("2026-11-29 17:54:12 teaching the target",))
    snapshot = scene("running")
    snapshot = msgspec.structs.replace(
        snapshot, board=msgspec.structs.replace(snapshot.board, log=log)
    )
    assert "│ 17:54:12 teaching" in text_of(compose(desk_of(snapshot).screen(), 120, 40))
    zoomed = desk_of(snapshot, Choices(zoom=Panel.LOG)).screen()
    assert "2026-11-29 17:54:12 teaching" in text_of(compose(zoomed, 120, 40))


def test_a_young_run_fills_the_plot() -> None:
    snapshot = scene("running")
    young = snapshot.board.throughput[-3:]
    board = msgspec.structs.replace(snapshot.board, throughput=young)
    desk = desk_of(msgspec.structs.replace(snapshot, board=board))
    text = text_of(compose(desk.screen(), 120, 40))
    assert "· 1 min ─" in text
    assert "-30 s" in text


def test_silence_in_a_stall_is_a_fall_to_the_floor_and_not_a_gap() -> None:
    snapshot = scene("stalled")
    begun = snapshot.since_t
    points = tuple(
        model.Point(t=one.t, low=None, high=None) if one.t > begun else one
        for one in snapshot.board.throughput
    )
    board = msgspec.structs.replace(snapshot.board, throughput=points, tokens_per_s=14400.0)
    silent = msgspec.structs.replace(snapshot, board=board)
    lines = text_of(compose(desk_of(silent).screen(), 140, 40)).splitlines()
    floor = next(line for line in lines if line.startswith("│      0 "))
    assert floor.rstrip("│ ").endswith("⣀⣀⣀⣀⣀⣀⣀⣀")
    assert "was 14 400 tok/s" in lines[1]
    assert any("· last 14 400 ·" in line for line in lines)
    blind = msgspec.structs.replace(
        silent, verdict=model.Verdict.BLIND, link=model.Link(state="lost")
    )
    lines = text_of(compose(desk_of(blind).screen(), 120, 40)).splitlines()
    floor = next(line for line in lines if line.startswith("│      0 "))
    assert "⣀" not in floor


def test_filter_keeps_or_leaves_out_lines() -> None:
    kept = text_of(rows_of("crashed", 120, 40, Choices(needle="Traceback")))
    left = text_of(rows_of("crashed", 120, 40, Choices(needle="!traceback")))
    assert "Traceback (most" in kept
    assert "failed; stopping" not in kept
    assert "Traceback (most" not in left


def test_details_page_holds_evidence_for_and_against_and_the_playbook() -> None:
    text = text_of(rows_of("stalled", 80, 30, Choices(zoom=Panel.DETAILS)))
    for fact in ("against", "the ticker beats", "8 x the slowest", "explain pipeline-deadlock"):
        assert fact in text


def test_details_page_says_how_the_stacks_were_taken() -> None:
    way = ("sample A of pid 7 by pystack (non-blocking)", "passed over: py-spy: none here")
    snapshot = msgspec.structs.replace(scene("stalled"), stacks_way=way)
    text = text_of(compose(desk_of(snapshot, Choices(zoom=Panel.DETAILS)).screen(), 120, 60))
    assert way[0] in text
    assert way[1] in text


@pytest.mark.parametrize(
    ("name", "has_eta"), [("running", True), ("slow", True), ("stalled", False)]
)
def test_only_a_run_that_gets_on_has_an_estimate_of_its_end(name: str, has_eta: bool) -> None:
    assert scene(name).board.eta_s is not None
    assert ("ETA" in text_of(rows_of(name, 120, 40))) is has_eta


def test_help_is_made_from_the_keys() -> None:
    desk = desk_of(scene("running"), Choices(zoom=Panel.HELP))
    text = text_of(compose(desk.screen(), 120, 60))
    assert all(key.help in text for key in desk.keys)
    assert all(state.word in text for state in State)


def test_boxes_tile_the_screen_without_hole_or_overlap() -> None:
    for width, height in SIZES:
        screen = desk_of(scene("stalled")).screen()
        boxes = boxes_of(screen, width, height)
        cells = [
            (x, y)
            for box in boxes
            for x in range(box.x, box.x + box.width)
            for y in range(box.y, box.y + box.height)
        ]
        assert len(cells) == len(set(cells)) == width * (height - 4 - 1 + (height < 20))


TEXT = st.text(max_size=12) | st.sampled_from(["\x1b[2J", "模型" * 9, "[red]", "a\u202e"])
WORDS = st.none() | TEXT
NUMBER = st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.integers(-5, 10**12)
WHOLE = st.none() | st.integers(-(2**63), 2**63 - 1)
MOMENT = st.floats(0, 4e9) | st.sampled_from([0.0, -1e300, 1e300, math.nan, math.inf])
GPU = st.builds(
    model.GpuRow,
    index=st.integers(0, 999),
    role=WORDS | st.sampled_from(["target", "drafter"]),
    state=st.sampled_from(["ok", "lost", "failed", "stale", "other"]),
    note=WORDS,
    utilization_ratio=NUMBER,
    memory_used_bytes=WHOLE,
    memory_total_bytes=WHOLE,
    power_watts=NUMBER,
    power_limit_watts=NUMBER,
    temperature_celsius=NUMBER,
    power_history=st.lists(NUMBER, max_size=5).map(tuple),
    marks=st.sampled_from([(), ("power_watts",), ("temperature_celsius", "x")]),
)
QUEUE = st.builds(
    model.QueueRow,
    depth=WHOLE,
    capacity=WHOLE,
    in_per_s=NUMBER,
    out_per_s=NUMBER,
    trend=WORDS,
    waiting=WORDS,
)
WORKER = st.builds(
    model.WorkerRow,
    name=TEXT,
    role=TEXT,
    device=WORDS,
    phase=WORDS,
    step=WHOLE,
    items=WHOLE,
    wait=WORDS,
    wait_s=NUMBER,
    waits_for=WORDS,
    progress_age_s=NUMBER,
    state=st.sampled_from(["running", "failed", "ended"]),
)
POINT = st.builds(model.Point, t=MOMENT, low=NUMBER, high=NUMBER)
FINDING = st.builds(
    model.Finding,
    key=TEXT,
    opened_t=MOMENT,
    closed_t=st.none() | MOMENT,
    severity=st.sampled_from(model.Severity),
    failure=TEXT,
    subject=TEXT,
    text=TEXT,
)
BOARD = st.builds(
    model.Board,
    run_name=WORDS,
    where=TEXT,
    phase=WORDS,
    phase_s=NUMBER,
    phase_budget_s=NUMBER,
    step=WHOLE,
    total_steps=WHOLE,
    eta_s=NUMBER,
    tokens_per_s=NUMBER,
    baseline_tokens_per_s=NUMBER,
    last_step_age_s=NUMBER,
    gpus=st.tuples(st.lists(GPU, max_size=2), st.sampled_from([1, 4, 8])).map(
        lambda pair: tuple(pair[0] * pair[1])
    ),
    queue=st.none() | QUEUE,
    workers=st.lists(WORKER, max_size=2).map(tuple),
    throughput=st.lists(POINT, max_size=4).map(tuple),
    window_s=st.floats(),
    findings=st.lists(FINDING, max_size=2).map(tuple),
    log=st.builds(
        model.LogView,
        path=WORDS,
        lines=st.lists(TEXT, max_size=4).map(tuple),
        silent_s=NUMBER,
        note=WORDS,
    ),
    host_line=WORDS,
)
SNAPSHOT = st.builds(
    model.Snapshot,
    t=MOMENT,
    data_t=st.none() | MOMENT,
    received_t=st.none() | st.floats(1.78e9, 1.8e9),
    run=TEXT,
    verdict=st.sampled_from(model.Verdict),
    since_t=MOMENT,
    last_verdict=st.none() | st.sampled_from(model.Verdict),
    failure=TEXT,
    subject=TEXT,
    severity=st.sampled_from(model.Severity),
    summary=TEXT,
    evidence=st.lists(
        st.builds(
            model.Evidence,
            kind=st.sampled_from(model.EvidenceKind),
            text=TEXT,
            source=st.sampled_from(model.Source),
        ),
        max_size=3,
    ).map(tuple),
    limit=st.none() | st.builds(model.Limit, seconds=st.floats(), why=TEXT),
    views=st.dictionaries(st.sampled_from(["run", "gpu"]), TEXT),
    next=st.lists(TEXT, max_size=2).map(tuple),
    link=st.builds(
        model.Link,
        state=st.sampled_from(["connecting", "up", "lost", "closed"]),
        step=WORDS,
        reason=WORDS,
        retry_at_t=st.none() | MOMENT,
    ),
    board=BOARD,
)
CHOICES = st.fixed_dictionaries(
    {
        "focus": st.sampled_from([Panel.LOG, Panel.PIPELINE, Panel.FINDINGS]),
        "zoom": st.none() | st.sampled_from(Panel),
        "window_s": st.sampled_from([300.0, 1800.0, None]),
        "auto_scale": st.booleans(),
        "needle": st.sampled_from(["", "a", "!a"]),
        "held": st.none() | st.lists(TEXT, max_size=3).map(tuple),
        "scroll": st.integers(0, 99),
        "typing": st.none() | TEXT,
    }
).map(lambda chosen: Choices(**chosen))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SNAPSHOT, CHOICES, st.sampled_from([(60, 16), (80, 24), (120, 40), (170, 36), (33, 7)]))
def test_any_snapshot_gives_exact_rows_and_no_exception(snapshot, choices, size) -> None:
    rows = compose(desk_of(snapshot, choices).screen(), *size)
    assert len(rows) == size[1]
    assert {row_width(row) for row in rows} == {size[0]}
    assert all(len(to_ascii(row_text(row))) == size[0] for row in rows)
    assert not any(char < " " or char == "\x7f" for row in rows for char in row_text(row))


@given(st.integers(1, 200), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_any_size_is_filled_exactly(width: int, height: int) -> None:
    for name in ("running", "sixteen-gpus"):
        rows = rows_of(name, width, height)
        assert len(rows) == height
        assert {row_width(row) for row in rows} == {width}


@pytest.mark.parametrize(
    "change",
    [
        lambda choices: choices,
        lambda choices: state.focus_on(choices, Panel.LOG),
        lambda choices: state.open_page(choices, Panel.DETAILS),
        lambda choices: state.toggle_pause(choices, None),
    ],
)
def test_what_is_drawn_once_while_paused_is_what_would_be_drawn_anew(change) -> None:
    clock, stills = FrozenClock(), Stills()
    feed = DemoFeed(clock, UTC, "running")
    desk = Desk(keys_for(demo=False), clock, UTC)
    desk.take(feed.latest())
    desk.pause()
    for size in ((120, 40), (80, 24), (80, 24)):
        clock.now_s += 7.0
        desk.take(feed.latest())
        assert compose(desk.screen(), *size, stills) == compose(desk.screen(), *size)
    desk.choose(change)
    clock.now_s += 7.0
    desk.take(feed.latest())
    assert compose(desk.screen(), 80, 24, stills) == compose(desk.screen(), 80, 24)
