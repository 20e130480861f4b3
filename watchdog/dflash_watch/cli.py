"""`dflash-watch`: chooses the command; the only module that reaches the dashboard, lazily.

Owns standard error and the exit codes: 64 for usage errors, 3 when the view failed, otherwise what
the command says. Importing it loads neither torch nor textual, and `--version` loads only argparse.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dflash_events import __version__

from dflash_watch.commands import arguments
from dflash_watch.errors import EXIT_UNKNOWN, UsageError, WatchError, what_lacks
from dflash_watch.standard import finish_output, forget_output, open_standard_streams

if TYPE_CHECKING:
    import socket

    from dflash_watch.commands.context import Context

PARSERS = {
    None: arguments.watch_parser,
    "check": arguments.check_parser,
    "dump": arguments.dump_parser,
    "serve": arguments.serve_parser,
    "attach": arguments.attach_parser,
    "replay": arguments.replay_parser,
    "incidents": arguments.incidents_parser,
    "explain": arguments.explain_parser,
    "diagnose": arguments.diagnose_parser,
    "fleet": arguments.fleet_parser,
    "rights": arguments.rights_parser,
    "drill": arguments.drill_parser,
}
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    open_standard_streams()
    code = guarded(lambda: run_command(words))
    return guarded(finish_output) or code


def guarded(work: Callable[[], int | None]) -> int:
    """Do it; whatever ends it becomes a line for the person and an exit code."""
    try:
        return work() or 0
    except WatchError as error:
        complain(str(error))
        return error.exit_code
    except SystemExit as end:  # argparse has shown its help
        return int(end.code or 0)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        forget_output()  # the reader has seen enough
        return 0
    except Exception as error:  # noqa: BLE001 - the last edge: a defect of ours is "cannot tell"
        if (lacking := what_lacks(error)) is not None:
            complain(f"this machine gives no more {lacking}: {error}; see ulimit -a and free -m")
            return EXIT_UNKNOWN
        tell_defect()
        complain(f"internal error, {type(error).__name__}: {error}; please report the lines above")
        return EXIT_UNKNOWN


def complain(line: str) -> None:
    """One line on standard error, under the program's name; no code or secret of others in it."""
    from dflash_watch.guard import line as harmless  # noqa: PLC0415 - `--version` needs none

    sys.stderr.write(f"{arguments.PROGRAM}: {harmless(line)}\n")


def tell_defect() -> None:
    """The traceback on standard error, with what others wrote in it made harmless."""
    import traceback  # noqa: PLC0415 - 5 ms that a start need not pay

    from dflash_watch.guard import paragraphs  # noqa: PLC0415

    sys.stderr.write(paragraphs(traceback.format_exc()))


def run_command(words: Sequence[str]) -> int:
    """Parse and run.

    Raises:
        WatchError: one line for the person, with the exit code.
    """
    command, rest = arguments.split_command(words)
    given = PARSERS[command]().parse(rest)
    if command is None and given.version:
        sys.stdout.write(f"{arguments.PROGRAM} {__version__}\n")
        return 0
    if command is None and given.demo:
        if given.plain or given.json:
            raise UsageError("--demo: only the dashboard has scenes", hint="write --demo alone")
        return show_demo()
    module = importlib.import_module(f"dflash_watch.commands.{command or 'watch'}")
    return int(module.run(given, context(words)))


def context(words: Sequence[str]) -> Context:
    """What the command gets from this process."""
    from dflash_watch.commands.context import Context  # noqa: PLC0415 - `--version` needs none

    return Context(
        words=tuple(words),
        environment=dict(os.environ),
        is_terminal=sys.stdin.isatty() and sys.stdout.isatty(),
        has_colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"),
        show=show_dashboard,
        show_served=show_served,
    )


def show_demo() -> int:
    """The dashboard on made-up data."""
    from dflash_tui.app import run_demo  # noqa: PLC0415 - textual takes 180 ms to load

    return int(run_demo())


def show_served(link: socket.socket, reopen: Callable[[], socket.socket | None]) -> int:
    """The dashboard on a server's connection; 0 when somebody leaves it."""
    from dflash_tui.app import SocketFeed, run  # noqa: PLC0415 - takes 180 ms

    return int(run(SocketFeed(link, reopen=reopen)))


def show_dashboard(words: Sequence[str]) -> int:
    """The dashboard on an engine process that was started with these words; the engine's code."""
    from dflash_watch.publish import EngineProcess  # noqa: PLC0415 - `--version` needs none

    with EngineProcess(words, os.environ) as engine:  # connects while textual loads
        from dflash_tui.app import SocketFeed, run  # noqa: PLC0415 - takes 180 ms

        with engine.ending_this_process():
            code = int(run(SocketFeed(engine.link)))
    if not engine.ended_first:
        return code
    sys.stderr.write(engine.complaint)
    return engine.code


if __name__ == "__main__":
    sys.exit(main())
