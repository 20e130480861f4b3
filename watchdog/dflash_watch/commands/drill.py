"""`dflash-watch drill`: break a small run on purpose and see that this installation names it."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from dflash_watch.clock import SystemClock
from dflash_watch.commands.context import Context, stop_on_signals, tell, write_line
from dflash_watch.commands.values import did_you_mean
from dflash_watch.drills import ground, report
from dflash_watch.drills.catalog import DRILLS, Drill
from dflash_watch.drills.trial import Result, run_drill
from dflash_watch.errors import EXIT_OK, UsageError

ALL = "all"


def run(given: Namespace, context: Context) -> int:
    """Run the drills named; 0 all caught, 2 one was missed, 3 none could be tried.

    Raises:
        UsageError: no such fault, or none was named.
        KeyboardInterrupt: asked to stop; everything is undone, what was found is shown.
    """
    if given.list:
        write_line(report.catalog())
        return EXIT_OK
    drills, stop, results = choose(given.fault), stop_on_signals(), []
    ground.sweep(SystemClock().wall_s())
    try:
        for number, drill in enumerate(drills, 1):
            tell(f"{number}/{len(drills)} {drill.name}: {drill.breaks}")
            results.append(in_folder(drill, given.keep, context, stop))
            tell(f"    {report.line(results[-1])}")
            if given.json:
                write_line(json.dumps(report.as_object(results[-1])))
    finally:
        if results and not given.json:
            write_line(f"{report.table(results)}\n{report.summary(results)}")
    return report.exit_code(results)


def choose(names: Sequence[str]) -> list[Drill]:
    """The drills of these names, in the catalogue's order.

    Raises:
        UsageError: a name is unknown, or there is none.
    """
    known = {drill.name: drill for drill in DRILLS}
    if not names:
        hint = f"write {ALL}, or some of {', '.join(known)}"
        raise UsageError("drill: which fault?", hint=hint)
    for name in names:
        if name != ALL and name not in known:
            hint = did_you_mean(name, known) or "see dflash-watch drill --list"
            raise UsageError(f"drill: unknown fault '{name}'", hint=hint)
    return [one for one in DRILLS if ALL in names or one.name in names]


def in_folder(drill: Drill, keep: str | None, context: Context, stop: threading.Event) -> Result:
    """The drill in a folder of its own, which is kept when that was asked for.

    Raises:
        UsageError: the folder to keep it in cannot be made.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{ground.PREFIX}{drill.name}-"))
    try:
        with ground.claimed(folder):
            result = run_drill(drill, folder, context.environment, stop)
            if keep is not None:
                keep_folder(folder, Path(keep).expanduser() / drill.name)
            return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep_folder(folder: Path, to: Path) -> None:
    """Copy what a drill wrote.

    Raises:
        UsageError: it cannot be written there.
    """
    try:
        shutil.copytree(folder, to)
    except (OSError, shutil.Error) as error:
        hint = "name a folder that does not have it yet, on a disk with room"
        raise UsageError(f"--keep: cannot write {to}: {error}", hint=hint) from error
