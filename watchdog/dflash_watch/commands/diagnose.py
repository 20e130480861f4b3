"""`dflash-watch diagnose`: what pasted evidence says. Connects to nothing, executes nothing."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from dflash_watch.clock import SystemClock
from dflash_watch.commands.context import Context, write_line
from dflash_watch.errors import EXIT_OK, UsageError
from dflash_watch.pasted.evidence import Evidence
from dflash_watch.pasted.files import NAMES, check_source, read_files, read_folder
from dflash_watch.pasted.judge import judge_pasted
from dflash_watch.pasted.records import build_options
from dflash_watch.playbooks import load_playbooks
from dflash_watch.render.jsonl import render_json
from dflash_watch.render.report import render_reading


def run(given: Namespace, _context: Context) -> int:
    """Read it and say what it means; 0 whatever that is.

    Raises:
        UsageError: nothing to read, or a file that is not there.
    """
    evidence = _read(given)
    playbooks = load_playbooks()
    snapshot = judge_pasted(evidence, playbooks, SystemClock().wall_s())
    if given.json:
        write_line(render_json(snapshot))
    else:
        book = playbooks.get(snapshot.failure)
        write_line(render_reading(snapshot, book, build_options(evidence)).rstrip())
    return EXIT_OK


def _read(given: Namespace) -> Evidence:
    named = {kind: Path(getattr(given, kind)) for kind in NAMES if getattr(given, kind)}
    if given.folder is None and not named:
        raise UsageError(
            "nothing to read", hint="give a folder, or files: --log, --stacks, --gpus, --ps"
        )
    for kind, path in named.items():
        if (trouble := check_source(path)) is not None:
            raise UsageError(f"--{kind}: {path}: {trouble}", hint="give a text file")
    return read_files(named) if given.folder is None else read_folder(Path(given.folder), named)
