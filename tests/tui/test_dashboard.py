"""The wired dashboard, driven by keys and clicks in the framework's own headless terminal."""

from datetime import UTC

import msgspec
import pytest
from dflash_tui.cells import row_text
from dflash_tui.dashboard import Dashboard, DemoDashboard
from dflash_tui.demo.feed import DemoFeed, FrozenClock
from dflash_tui.state import Panel

from tui.screens import rows_of, scene


class RecordingFeed:
    """A feed that shows one scene and keeps what it is told."""

    def __init__(self, name: str) -> None:
        self.snapshot, self.told, self.closed = scene(name), [], False

    def latest(self):
        return self.snapshot

    def send(self, command) -> None:
        self.told.append(command)

    def close(self) -> None:
        self.closed = True


def dashboard(name: str = "running", **more) -> Dashboard:
    return Dashboard(RecordingFeed(name), clock=FrozenClock(), zone=UTC, **more)


def shown(app: Dashboard) -> list[str]:
    """What the widget really hands to the terminal, line by line."""
    return [app.canvas.render_line(y).text for y in range(app.canvas.size.height)]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("name", ["running", "stalled", "blind", "slow"])
async def test_the_widget_shows_what_was_composed(name: str, size: tuple[int, int]) -> None:
    app = dashboard(name)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert shown(app) == [row_text(row) for row in rows_of(name, *size)]


async def test_the_framework_exports_the_same_banner_as_a_picture() -> None:
    app = dashboard("stalled")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        picture = app.export_screenshot().replace("&#160;", " ")
    assert "■ STALLED 4 m 10 s" in picture
    assert "pipeline-deadlock" in picture
    assert "#e69f00" in picture


async def test_another_size_is_drawn_at_once() -> None:
    app = dashboard()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert shown(app) == [row_text(row) for row in rows_of("running", 80, 24)]


async def test_keys_change_window_scale_zoom_and_theme() -> None:
    app = dashboard()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("w", "y", "tab", "z", "t", "H")
        choices = app.desk.choices
        assert (choices.window_s, choices.auto_scale, choices.theme) == (7200.0, True, "light")
        assert (choices.zoom, choices.header) == (Panel.PIPELINE, False)
        await pilot.press("escape")
        assert app.desk.choices.zoom is None


async def test_stacks_are_asked_for_only_after_a_yes() -> None:
    app = dashboard()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("s", "n")
        assert app.feed.told == []
        await pilot.press("s")
        assert "take stacks" in shown(app)[-1]
        await pilot.press("y")
        assert app.feed.told == [{"op": "stacks"}]
        assert "asked for stacks" in shown(app)[-1]


async def test_the_file_of_stacks_that_were_asked_for_is_named_once_it_is_there() -> None:
    app = dashboard()
    async with app.run_test(size=(120, 40)) as pilot:
        path = "/home/me/incidents/20261129T183000Z-asked-stacks.txt"
        app.feed.snapshot = msgspec.structs.replace(app.feed.snapshot, stacks_path=path)
        app.tick()
        assert f"stacks: {path}" in shown(app)[-1]
        app.desk.say("")
        app.tick()
        assert "stacks: " not in shown(app)[-1]
        await pilot.press("enter")
        assert any(path in line for line in shown(app))


async def test_retry_is_sent_at_once() -> None:
    app = dashboard("blind")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("r")
    assert app.feed.told == [{"op": "retry"}]


async def test_while_a_filter_is_typed_keys_are_text() -> None:
    app = dashboard("crashed")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("slash", *"worker q", "enter")
        assert app.desk.choices.needle == "worker q"
        assert app.is_running
        await pilot.press("slash", *["backspace"] * 2, "enter")
        assert any("worker target-1 failed" in line for line in shown(app))
        assert not any("Traceback" in line for line in shown(app))


async def test_pause_holds_the_panels_while_banner_and_age_go_on() -> None:
    clock = FrozenClock()
    app = DemoDashboard(DemoFeed(clock, UTC, "running"), clock=clock, zone=UTC)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space")
        held = shown(app)
        await pilot.press("right_square_bracket", "right_square_bracket", "right_square_bracket")
        now = shown(app)
        assert "STALLED" in now[1]
        assert "panels paused" in now[1]
        assert "PAUSED 14:13:20" in now[0]
        assert now[5:14] == held[4:13]


async def test_a_click_focuses_a_panel_and_a_click_on_a_key_presses_it() -> None:
    app = dashboard()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.click(offset=(20, 32))
        assert app.desk.choices.focus is Panel.FINDINGS
        await pilot.click(offset=(shown(app)[-1].index("w window"), 39))
        await pilot.pause()
        assert app.desk.choices.window_s == 7200.0


async def test_the_wheel_scrolls_the_panel_under_it() -> None:
    app = dashboard()
    async with app.run_test(size=(120, 40)) as pilot:
        app.canvas.post_message(app.canvas.Wheeled(90, 32, 3))
        await pilot.pause()
        assert app.desk.choices.scroll == 3
        await pilot.press("f")
        assert app.desk.choices.held is None


async def test_help_and_details_open_and_close() -> None:
    app = dashboard("stalled")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("question_mark")
        assert any("never quits" in line for line in shown(app))
        await pilot.press("escape", "enter")
        assert any("against" in line for line in shown(app))
        await pilot.press("enter")
        assert app.desk.choices.zoom is None


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_quit_ends_with_zero(key: str) -> None:
    app = dashboard()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
    assert app.return_value == 0


async def test_a_screenshot_is_saved_as_picture_and_text(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = dashboard()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("S")
        assert "saved" in shown(app)[-1]
    text = (tmp_path / "dflash-watch-141320.txt").read_text("utf-8")
    assert "RUNNING" in text
    assert (tmp_path / "dflash-watch-141320.svg").read_text("utf-8").startswith("<svg")
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("dflash-watch-*")} == {0o600}


async def test_only_changed_cells_are_repainted() -> None:
    app = dashboard()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        regions = []
        app.canvas.refresh = lambda *areas: regions.extend(areas)
        app.tick()
        assert regions == []
        app.desk.clock.now_s += 1.0
        app.tick()
        assert 0 < sum(area.area for area in regions) < 0.1 * 120 * 40


async def test_ascii_mode_draws_no_other_character() -> None:
    app = dashboard("stalled", ascii_only=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert all(line.isascii() and len(line) == 120 for line in shown(app))
        assert app.picture().isascii()


async def test_hostile_text_reaches_the_terminal_harmless() -> None:
    app = dashboard()
    log = app.feed.snapshot.board.log
    lines = (*log.lines, "\x1b[2J\x1b]0;x\x07[bold red]模型\u202e\u05d0 tail")
    board = msgspec.structs.replace(
        app.feed.snapshot.board,
        log=msgspec.structs.replace(log, lines=lines),
        run_name="\x1b[7m[b]",
    )
    app.feed.snapshot = msgspec.structs.replace(app.feed.snapshot, board=board)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        text = "\n".join(shown(app))
        assert "\x1b" not in text
        assert "[bold red]模型· tail" in text
        assert "run [b]" in text


async def test_no_color_chooses_the_palette_without_colour(monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = dashboard()
    assert app.desk.choices.theme == "mono"
