"""`dflash-watch explain`: a playbook, or the list of failures."""

from __future__ import annotations

from argparse import Namespace

from dflash_watch.commands.context import Context, write_line
from dflash_watch.commands.values import did_you_mean
from dflash_watch.errors import EXIT_OK, UsageError
from dflash_watch.playbooks import load_playbooks
from dflash_watch.render.explain import render_list, render_playbook


def run(given: Namespace, _context: Context) -> int:
    """Print it.

    Raises:
        UsageError: no playbook of that name.
    """
    playbooks = load_playbooks()
    if given.failure is None:
        write_line(render_list(tuple(playbooks.values())))
        return EXIT_OK
    name = given.failure.lower().replace("_", "-").removesuffix(".md")
    if name not in playbooks:
        hint = did_you_mean(name, playbooks) or "see dflash-watch explain for the list"
        raise UsageError(f"no playbook for '{given.failure}'", hint=hint)
    write_line(render_playbook(playbooks[name]))
    return EXIT_OK
