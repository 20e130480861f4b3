"""`dflash-watch explain`: a playbook, a verdict or a symptom as text, and the list of failures."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_watch.model import VERDICT_MEANINGS, Verdict
from dflash_watch.playbooks import SECTIONS, Playbook
from dflash_watch.steps import mark_blanks

_ORDER = {"critical": 0, "warning": 1, "info": 2}


def render_list(playbooks: Sequence[Playbook]) -> str:
    """All failures, the severe ones first: name, severity, what it is."""
    rows = sorted(playbooks, key=lambda one: (_ORDER[one.severity.value], one.name))
    width = max((len(one.name) for one in rows), default=0)
    lines = [f"{one.name:<{width}}  {one.severity.value:<8}  {one.title}" for one in rows]
    return "\n".join([*lines, "", "dflash-watch explain NAME prints one of them"])


def render_playbook(playbook: Playbook) -> str:
    """One playbook for a terminal: title, how it is recognised, and its four sections.

    No run is looked at here: what depends on one stands as `<pid>`.
    """
    out = [
        f"{playbook.name}: {playbook.title}",
        "=" * (len(playbook.name) + len(playbook.title) + 2),
    ]
    verdicts = ", ".join(verdict.value for verdict in playbook.verdicts)
    out.append(f"severity {playbook.severity.value}; seen with verdict {verdicts}")
    if playbook.requires:
        needs = " and ".join(group.replace("|", " or ") for group in playbook.requires)
        out.append(f"recognised by {needs}")
    if playbook.contradicts:
        out.append(f"spoken against by {', '.join(playbook.contradicts)}")
    out += [f"text in the log: {one.meaning}" for one in playbook.signatures() if one.meaning]
    for name in SECTIONS:
        out += ["", name, "-" * len(name), "", mark_blanks(playbook.sections[name])]
    return "\n".join(out)


def render_verdict(verdict: Verdict, playbooks: Sequence[Playbook]) -> str:
    """One verdict: what it says of a run, and the failures it is seen with."""
    heading = f"{verdict.value}: {VERDICT_MEANINGS[verdict]}"
    with_it = [one for one in playbooks if verdict in one.verdicts]
    return "\n".join([heading, "=" * len(heading), "", "seen with", "", render_list(with_it)])


def render_symptom(name: str, text: str, playbooks: Sequence[Playbook]) -> str:
    """One symptom: what its rule says of itself, and the failures recognised by it.

    Args:
        name: as it stands in evidence and `explains`.
        text: what the rule sees, what it means, when it is wrong.
        playbooks: all of them.
    """
    heading = f"{name}: a symptom"
    out = [heading, "=" * len(heading), "", text.strip()]
    needs = [one for one in playbooks if any(name in group.split("|") for group in one.requires)]
    if not needs:
        return "\n".join([*out, "", "no failure is recognised by it alone"])
    return "\n".join([*out, "", "recognised by it", "", render_list(needs)])
