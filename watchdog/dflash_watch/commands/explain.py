"""`dflash-watch explain`: a failure, a verdict or a symptom in words, or the list of failures."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from dflash_watch.commands.context import Context, write_line
from dflash_watch.commands.values import did_you_mean
from dflash_watch.detectors import catalogue
from dflash_watch.errors import EXIT_OK, UsageError
from dflash_watch.model import Verdict
from dflash_watch.playbooks import Playbook, load_playbooks
from dflash_watch.render.explain import (
    render_list,
    render_playbook,
    render_symptom,
    render_verdict,
)

NAMED_AT_MOST = 3


def run(given: Namespace, _context: Context) -> int:
    """Print it.

    Raises:
        UsageError: no failure, verdict or symptom of that name.
    """
    playbooks = load_playbooks()
    if given.word is None:
        write_line(render_list(tuple(playbooks.values())))
    else:
        write_line(meaning_of(given.word, playbooks))
    return EXIT_OK


def meaning_of(word: str, playbooks: Mapping[str, Playbook]) -> str:
    """The text of a failure, a verdict or a symptom.

    Raises:
        UsageError: none is called so; with the nearest that are.
    """
    name = word.lower().replace("_", "-").removesuffix(".md")
    books, symptoms = tuple(playbooks.values()), catalogue()
    verdicts = {one.value: one for one in Verdict}
    if name in playbooks:
        return render_playbook(playbooks[name])
    if name in verdicts:
        return render_verdict(verdicts[name], books)
    if name in symptoms:
        return render_symptom(name, symptoms[name].text(), books)
    hint = did_you_mean(name, [*playbooks, *verdicts, *symptoms])
    parts = [one for one in playbooks if name in one][:NAMED_AT_MOST]
    if hint is None and parts:
        hint = f"did you mean {' or '.join(parts)}?"
    raise UsageError(
        f"no failure, verdict or symptom is called '{word}'",
        hint=hint or "see dflash-watch explain for the list",
    )
