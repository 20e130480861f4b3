"""`python -m dflash_tui`: the demo, for screenshots and for trying a terminal."""

from __future__ import annotations

import argparse
import contextlib
import sys

from dflash_watch.errors import OutputError, UsageError
from dflash_watch.standard import finish_output, open_standard_streams

from dflash_tui.app import run
from dflash_tui.demo.feed import DemoFeed
from dflash_tui.demo.scenes import SCENES


def main(arguments: list[str] | None = None) -> int:
    """Runs the demo; exit code as `app.run`."""
    open_standard_streams()
    parser = argparse.ArgumentParser(prog="dflash_tui", description=__doc__)
    parser.add_argument("--scene", choices=tuple(SCENES), help="stay at one scene")
    parser.add_argument("--ascii", action="store_true", help="draw with plain ASCII")
    options = parser.parse_args(arguments)
    feed = DemoFeed(name=options.scene)
    try:
        code = run(feed, demo=True, ascii_only=True if options.ascii else None)
    except UsageError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return error.exit_code
    with contextlib.suppress(OutputError):  # the terminal has gone, which is what ended it
        finish_output()
    return code


if __name__ == "__main__":
    sys.exit(main())
