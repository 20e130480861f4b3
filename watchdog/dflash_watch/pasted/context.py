"""context.yaml: facts a person adds. Its prose (`context`) is never read for meaning."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import yaml
from dflash_events.secrets import mask_tree

from dflash_watch.pasted.evidence import Context, Observed, PastedProcess

MOST_PROCESSES = 10_000
MOST_GPUS = 4096
MOST_KEYS = 100
KEYS = ("context", "observed", "roles", "expected_tokens_per_s", "processes", "gpu_processes")
OBSERVED = ("process_alive", "silent_s", "first_step_seen", "steps_advancing")
MOST_PID = 1 << 31
LONGEST_WHOLE = 1 << 64
"""Whole numbers beyond it are no facts, and can be too long to be written down."""


class _Loader(yaml.SafeLoader):
    """Without aliases: a few lines of them unfold to any size."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """The next node.

        Raises:
            ComposerError: it is an alias.
        """
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "an alias (*) is not read here")
        return super().compose_node(parent, index)


def parse_context(text: str) -> tuple[Context, list[str]]:
    """Facts of the text, and a word on each thing in it that cannot be one.

    Args:
        text: YAML with the keys of docs/evidence.md; anything else is tolerated and told.
    """
    try:
        data = mask_tree(_bounded(yaml.load(text, Loader=_Loader)))  # noqa: S506 - a safe one
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return Context(), [f"context.yaml is not YAML: {' '.join(str(error).split())[:160]}"]
    if data is None:
        return Context(), []
    if not isinstance(data, Mapping):
        return Context(), [f"context.yaml holds {type(data).__name__}, expected keys and values"]
    notes: list[str] = []
    _misspelt(data, KEYS, notes)
    observed = data.get("observed")
    if isinstance(observed, Mapping):
        _misspelt(observed, OBSERVED, notes)
    context = Context(
        observed=_observed(observed if isinstance(observed, Mapping) else {}, notes),
        roles=_roles(data.get("roles")),
        expected_tokens_per_s=_number("expected_tokens_per_s", data, notes),
        processes=_processes(data.get("processes")),
        gpu_table_empty=_table_empty(data.get("gpu_processes")),
    )
    return context, notes


def _bounded(value: object) -> object:
    """Without the whole numbers that are too long."""
    if isinstance(value, dict):
        return {_bounded(key): _bounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_bounded(one) for one in value]
    too_long = isinstance(value, int) and abs(value) > LONGEST_WHOLE
    return "a number too long" if too_long else value


def _misspelt(data: Mapping[Any, Any], known: tuple[str, ...], notes: list[str]) -> None:
    """Other keys are people's own, unless they look like one of these."""
    for key in [str(one)[:60] for one in list(data)[:MOST_KEYS] if one not in known]:
        near = get_close_matches(key.lower(), known, n=1, cutoff=0.75)
        if near:
            notes.append(f"context.yaml: {key!r} is not read; did you mean {near[0]}?")


def _observed(data: Mapping[str, Any], notes: list[str]) -> Observed:
    return Observed(
        process_alive=_flag("process_alive", data, notes),
        silent_s=_number("silent_s", data, notes),
        first_step_seen=_flag("first_step_seen", data, notes),
        steps_advancing=_flag("steps_advancing", data, notes),
    )


def _flag(key: str, data: Mapping[str, Any], notes: list[str]) -> bool | None:
    value = data.get(key)
    if value is None or isinstance(value, bool):
        return value
    notes.append(f"context.yaml: {key} is {value!r:.60}, expected true or false; left out")
    return None


def _number(key: str, data: Mapping[str, Any], notes: list[str]) -> float | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:
        return float(value)
    notes.append(f"context.yaml: {key} is {value!r:.60}, expected a number; left out")
    return None


def _roles(data: object) -> dict[str, tuple[int, ...]]:
    if not isinstance(data, Mapping):
        return {}
    return {
        str(role): tuple(one for one in indices if isinstance(one, int) and 0 <= one < MOST_GPUS)
        for role, indices in data.items()
        if isinstance(indices, list)
    }


def _processes(data: object) -> tuple[PastedProcess, ...] | None:
    if not isinstance(data, list):
        return None
    return tuple(_process(one) for one in data[:MOST_PROCESSES] if isinstance(one, Mapping))


def _process(data: Mapping[Any, Any]) -> PastedProcess:
    def text(key: str) -> str | None:
        value = data.get(key)
        return str(value)[:400] if isinstance(value, str | int | float) else None

    stack, pid, cpu = data.get("kernel_stack"), data.get("pid"), data.get("cpu")
    return PastedProcess(
        state=text("state"),
        wchan=text("wchan"),
        cmd=text("cmd"),
        kernel_stack=tuple(str(one)[:200] for one in stack[:50]) if isinstance(stack, list) else (),
        pid=pid if isinstance(pid, int) and 0 < pid < MOST_PID else None,
        cpu=float(cpu) if isinstance(cpu, int | float) and abs(cpu) < 1e9 else None,
    )


def _table_empty(data: object) -> bool | None:
    """`[]` and `[[]]` say that nobody was listed."""
    if not isinstance(data, list):
        return None
    return not any(data)
