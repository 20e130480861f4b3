"""The way in: runs the dashboard on this terminal until somebody quits or a signal ends it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from dflash_watch.clock import SystemClock
from dflash_watch.errors import UsageError

from dflash_tui import terminal
from dflash_tui.dashboard import Dashboard, DemoDashboard
from dflash_tui.demo.feed import DemoFeed
from dflash_tui.feed import Feed, SocketFeed

__all__ = ["Feed", "SocketFeed", "run", "run_demo"]


def run(
    feed: Feed | None = None,
    *,
    demo: bool = False,
    ascii_only: bool | None = None,
) -> int:
    """Shows the dashboard until somebody quits or a signal ends it; closes the feed.

    Args:
        feed: where snapshots come from; the demo brings its own.
        demo: scenes instead of a run.
        ascii_only: plain ASCII; None decides by the terminal's encoding.

    Returns:
        0, or 128 + the number of the signal.

    Raises:
        UsageError: this is not a terminal, or neither feed nor demo is given.
    """
    if not terminal.is_terminal():
        hint = "run it where you can see it" if demo else "use --plain or --json here"
        raise UsageError("the dashboard needs a terminal", hint=hint)
    clock = SystemClock()
    zone = datetime.fromtimestamp(clock.wall_s(), UTC).astimezone().tzinfo or UTC
    if feed is None:
        if not demo:
            raise UsageError("the dashboard was given nothing to show", hint="--demo shows scenes")
        feed = DemoFeed(clock, zone)
    app = (DemoDashboard if demo else Dashboard)(
        feed,
        clock=clock,
        zone=zone,
        ascii_only=not terminal.speaks_utf8() if ascii_only is None else ascii_only,
    )
    try:
        with terminal.own_size():
            return asyncio.run(_until_left(app))
    finally:
        feed.close()


def run_demo() -> int:
    """Shows every state without any run."""
    return run(demo=True)


async def _until_left(app: Dashboard) -> int:
    """Runs the app; a signal asks it to leave, from whatever state it is in."""
    loop = asyncio.get_running_loop()

    def leave(code: int) -> None:
        loop.call_soon_threadsafe(app.exit, code)

    with terminal.ending_on_signals(leave):
        code = await app.run_async()
    return 0 if code is None else code
