"""No verdict about now from old data; ages do not follow the wall clock."""

import msgspec
import pytest
from dflash_tui.phrases import reasons
from dflash_tui.theme import State
from dflash_tui.view import build_view, see
from dflash_watch.model import Evidence, EvidenceKind, Link, Source, Verdict

from tui.screens import scene

WALL = 1_790_000_000.0


def seen_at(snapshot, wall_s=WALL, now_s=100.0, before=None):
    return see(before, snapshot, wall_s, now_s)


def test_nothing_yet_is_connecting() -> None:
    assert build_view(None, WALL, 0.0).state is State.CONNECTING


def test_the_age_of_the_data_counts_from_its_arrival_on_this_machine() -> None:
    seen = seen_at(scene("running"))
    assert build_view(seen, WALL, 100.0).data_age_s == pytest.approx(0.4, abs=1e-6)
    assert build_view(seen, WALL, 103.0).data_age_s == pytest.approx(3.4, abs=1e-6)


@pytest.mark.parametrize("step_s", [-86400.0, 86400.0])
def test_a_step_of_the_wall_clock_changes_no_age(step_s: float) -> None:
    seen = seen_at(scene("running"))
    view = build_view(seen, WALL + step_s, 101.0)
    assert view.data_age_s == pytest.approx(1.4, abs=1e-6)
    assert view.state is State.RUNNING


def test_running_is_never_shown_from_old_data() -> None:
    view = build_view(seen_at(scene("running")), WALL + 60, 160.0)
    assert view.state is State.BLIND
    assert view.last_known is Verdict.RUNNING
    assert view.frozen
    assert view.held_s == view.data_age_s


def test_a_slow_rhythm_of_frames_is_not_blindness() -> None:
    first = scene("running")
    seen = seen_at(first)
    for count in range(1, 20):
        later = msgspec.structs.replace(first, received_t=first.received_t + 8.0 * count)
        seen = seen_at(later, WALL + 8.0 * count, 100.0 + 8.0 * count, seen)
    now = 100.0 + 8.0 * 19 + 15
    assert build_view(seen, WALL, now).state is State.RUNNING
    assert build_view(seen, WALL, now + 30).state is State.BLIND


@pytest.mark.parametrize("name", ["finished", "crashed"])
def test_an_end_stays_an_end_when_nothing_more_comes(name: str) -> None:
    assert build_view(seen_at(scene(name)), WALL, 9000.0).state is State(name)


def test_ages_inside_a_snapshot_go_on_while_no_newer_one_comes() -> None:
    view = build_view(seen_at(scene("stalled")), WALL, 107.0)
    assert view.elapsed_s == 7.0
    assert view.held_s == pytest.approx(257.0)


def test_a_new_snapshot_of_the_same_frame_does_not_make_the_data_younger() -> None:
    first = scene("running")
    seen = seen_at(first)
    tick = msgspec.structs.replace(first, t=first.t + 5)
    seen = seen_at(tick, WALL + 5, 105.0, seen)
    assert build_view(seen, WALL + 5, 105.0).data_age_s == pytest.approx(5.4, abs=1e-6)


def test_connected_without_a_run_is_its_own_state() -> None:
    assert build_view(seen_at(scene("no-run")), WALL, 100.0).state is State.NO_RUN


def test_a_frame_without_its_arrival_counts_from_when_it_was_first_seen() -> None:
    replayed = msgspec.structs.replace(scene("running"), received_t=None)
    seen = seen_at(replayed)
    assert build_view(seen, WALL, 102.0).data_age_s == 2.0
    later = msgspec.structs.replace(replayed, data_t=replayed.data_t + 1)
    assert build_view(seen_at(later, WALL, 102.0, seen), WALL, 102.5).data_age_s == 0.5


def test_blind_over_fresh_data_is_not_drawn_as_old() -> None:
    vanished = msgspec.structs.replace(
        scene("running"), verdict=Verdict.BLIND, failure="process-vanished"
    )
    view = build_view(seen_at(vanished), WALL, 100.0)
    assert view.state is State.BLIND
    assert not view.frozen
    assert build_view(seen_at(vanished), WALL, 109.0).frozen


def test_no_run_is_not_claimed_over_a_lost_connection() -> None:
    lost = msgspec.structs.replace(scene("no-run"), link=Link(state="lost"))
    assert build_view(seen_at(lost), WALL, 100.0).state is State.BLIND


def test_a_moment_that_is_none_is_drawn_as_dashes() -> None:
    view = build_view(None, WALL, 0.0)
    assert view.clock(float("nan")) == view.clock(None) == view.clock(-1.0) == "--:--:--"


def test_a_calm_run_is_not_told_of_sources_that_it_never_had() -> None:
    never = Evidence(kind=EvidenceKind.MISSING, text="GPUs: no library", source=Source.GPU)
    lost = Evidence(kind=EvidenceKind.MISSING, text="the log hangs", source=Source.LOG)
    snapshot = msgspec.structs.replace(
        scene("running"), evidence=(*scene("running").evidence, never, lost),
        views={"gpu": "none: no library", "log": "gap: hangs"},
    )  # fmt: skip
    calm = reasons(snapshot, calm=True)
    assert "no library" not in calm
    assert calm.endswith("missing: the log hangs")
    assert "missing: GPUs: no library" in reasons(snapshot)
