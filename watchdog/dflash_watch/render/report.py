"""report.md of an incident: what, since when, why, what speaks against, what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from dflash_watch.frame import StackSample
from dflash_watch.model import EvidenceKind, Incident, RunOptions, Snapshot
from dflash_watch.playbooks import Playbook
from dflash_watch.render.markdown import fenced, inert
from dflash_watch.render.stacktext import ladder_lines, render_diff
from dflash_watch.steps import fill_section, place_values
from dflash_watch.units import duration, moment

NO_STEP = ("No step is known for this; the sections below may help.", "Nothing.")
"""For want of a step; for a run that is well."""


def render_report(
    snapshot: Snapshot,
    incident: Incident,
    samples: Sequence[StackSample],
    playbook: Playbook | None,
    options: RunOptions,
    tracebacks: Sequence[tuple[str, str]] = (),
) -> str:
    """The report, Markdown.

    Args:
        snapshot: of the moment of writing.
        incident: what it is about.
        samples: stacks that belong to it, oldest first; may be none.
        playbook: of the failure; None when there is none.
        options: where and what is watched.
        tracebacks: worker and text, from the trainer's own events.
    """
    known = known_values(snapshot, options)
    title = playbook.title if playbook is not None else "no playbook has this name"
    return (
        "\n".join(
            [
                f"# {incident.failure}: {title}",
                "",
                *_head(snapshot, incident, options),
                *_evidence(snapshot),
                *_stacks(incident, samples, tracebacks),
                *_to_do(snapshot, playbook, known),
            ]
        ).rstrip()
        + "\n"
    )


def render_reading(snapshot: Snapshot, playbook: Playbook | None, options: RunOptions) -> str:
    """The same without an incident: what was found, why, and what to do, Markdown.

    Args:
        snapshot: of the evidence.
        playbook: of the failure; None when there is none.
        options: where and what was looked at.
    """
    name = "" if snapshot.failure == "unknown" else f" ({snapshot.failure})"
    subject = "" if snapshot.subject == "run" else f"- subject: {inert(snapshot.subject)}\n"
    rows = [
        f"# {snapshot.verdict.value}{name}",
        "",
        inert(snapshot.summary),
        "",
        f"{subject}- confidence: {snapshot.confidence.value}",
    ]
    if snapshot.explains:
        rows.append(f"- explained by it: {', '.join(snapshot.explains)}")
    known = known_values(snapshot, options)
    broken = {name: state for name, state in snapshot.views.items() if state[:4] != "none"}
    snapshot = msgspec.structs.replace(snapshot, views=broken)
    return "\n".join([*rows, "", *_evidence(snapshot), *_to_do(snapshot, playbook, known)])


def known_values(snapshot: Snapshot, options: RunOptions) -> dict[str, object]:
    """Values for the placeholders of a playbook."""
    board = snapshot.board
    gpu = re.fullmatch(r"gpu(\d+)", snapshot.subject)
    rank = re.fullmatch(r"rank-(\d+)", snapshot.subject)
    return {
        "pid": board.pid,
        "run_dir": board.run_dir,
        "log": board.log.path,
        "gpu": gpu.group(1) if gpu else None,
        "rank": rank.group(1) if rank else None,
        "step": board.step,
        "subject": snapshot.subject,
        **place_values(options.where),
    }


def _head(snapshot: Snapshot, incident: Incident, options: RunOptions) -> list[str]:
    limit = snapshot.limit
    rows = [
        inert(snapshot.summary),
        "",
        f"- run: {inert(snapshot.run)} ({inert(options.where)})",
        f"- verdict: {incident.verdict.value}, confidence {snapshot.confidence.value}",
        f"- subject: {inert(incident.subject)}",
        (
            f"- since: {moment(incident.opened_t)}, noticed and written {moment(snapshot.t)}"
            f" ({duration(max(snapshot.t - incident.opened_t, 0.0))} later)"
        ),
    ]
    if limit is not None:
        rows.append(f"- limit for silence: {duration(limit.seconds)} ({inert(limit.why)})")
    if snapshot.board.step is not None:
        rows.append(f"- last step: {snapshot.board.step}")
    if snapshot.explains:
        rows.append(f"- explained by it: {', '.join(snapshot.explains)}")
    return [*rows, ""]


def _evidence(snapshot: Snapshot) -> list[str]:
    out: list[str] = []
    for kind, title in (
        (EvidenceKind.FOR, "Why we think so"),
        (EvidenceKind.AGAINST, "What speaks against it"),
        (EvidenceKind.MISSING, "What could not be seen"),
    ):
        told = [one for one in snapshot.evidence if one.kind is kind]
        out += [f"## {title}", ""]
        out += [f"- {inert(one.text)} ({one.source.value})" for one in told] or ["- nothing"]
        out.append("")
    others = [one for one in snapshot.candidates if one.failure != snapshot.failure]
    if others:
        named = ", ".join(f"{one.failure} ({one.score:.2f})" for one in others[:5])
        out += [f"Also possible: {named}", ""]
    bad = [f"{name}: {state}" for name, state in snapshot.views.items() if state != "ok"]
    if bad:
        out += [f"Views that were not whole: {inert('; '.join(bad))}", ""]
    return out


def _stacks(
    incident: Incident, samples: Sequence[StackSample], tracebacks: Sequence[tuple[str, str]]
) -> list[str]:
    out: list[str] = []
    for worker, text in tracebacks:
        out += [f"## Traceback of {inert(worker)}", ""]
        out += [*fenced(text.splitlines()), ""]
    out += ["## Stacks", ""]
    readable = [sample for sample in samples if sample.threads]
    out += [*(f"- {inert(line)}" for line in _ways(samples)), ""] if samples else []
    if not readable:
        errors = [sample.error for sample in samples if sample.error]
        why = incident.stacks_missing or (errors[0] if errors else "no sample came in time")
        return [*out, f"There are none: {inert(why)}", ""]
    if len(readable) > 1:
        return [*out, *fenced(render_diff(readable).splitlines()), ""]
    return [
        *out,
        "One sample only, see stacks-1.txt: it shows where threads were, not whether they moved.",
        "",
    ]


def _ways(samples: Sequence[StackSample]) -> list[str]:
    """How the samples were taken, each way said once."""
    told = [
        f"by {sample.tool} ({sample.mode})" + "".join(f"; {line}" for line in ladder_lines(sample))
        for sample in samples
    ]
    return list(dict.fromkeys(told))


def _to_do(snapshot: Snapshot, playbook: Playbook | None, known: dict[str, object]) -> list[str]:
    out = ["## What to do", ""]
    steps = [f"{n}. {inert(step)}" for n, step in enumerate(snapshot.next, 1)]
    out += [*(steps or [NO_STEP[snapshot.failure == "healthy"]]), ""]
    if playbook is None:
        return out
    for name in ("Meaning", "Diagnosis", "Mitigation", "Look-alikes"):
        told = fill_section(playbook.sections[name], known)
        out += [f"### {name}", "", told, ""] if told else []
    return out
