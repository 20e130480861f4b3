"""Words by which logs announce loading, phases and the end: data, and how to look them up."""

from __future__ import annotations

import re

_DONE = re.compile(
    r"(?i)\b(?:training (?:is |has )?(?:finished|complete[d]?|done|ended)"
    r"|(?:done|finished|completed) training|train(?:ing)? loop (?:finished|done)"
    r"|all (?:epochs|steps) (?:done|completed?|finished))\b"
    r"|\bwaiting for W&B process to finish\W{1,6}success"
    r"|`Trainer\.fit` stopped:"
    r"|^\s*\{['\"]train_runtime['\"]"
)
_BARE = re.compile(r"(?i)^\W{0,4}(?:all )?(?:done|finished|completed?)\W{0,4}$")
_NOT_DONE = re.compile(r"(?i)\b(?:not|until|before|when|after|if|once|never)\b[^.]{0,40}$")
_SAVED = re.compile(
    r"(?i)\b(?:saved|saving|wrote|exported)\b.{0,30}\bfinal\b"
    r"|\bfinal (?:model|checkpoint|weights) (?:is |was )?(?:saved|written)\b"
)
_LOADING_NAME = re.compile(
    r"(?i)\b(?:load|download|fetch|map|tokeniz|filter|pack|generating|reading|prepar"
    r"|process(?:ing)? (?:data|dataset)|materializ|shard|convert|concat|grouping|resolving"
    r"|saving the dataset|capturing|compil|warm)"
)
_SAVE_NAME = re.compile(r"(?i)(?<![a-z])(?:writing|saving|uploading|pushing)(?![a-z])")
_EVAL_NAME = re.compile(r"(?i)(?<![a-z])(?:eval|valid|val(?![a-z])|test|sanity|predict|infer)")
_WORKER = re.compile(
    r"(?i)(?<![a-z])(target|drafter|draft|loader|worker)s?(?: model)?[ _#-]?(\d{1,4})(?!\d)"
)
_DEVICE = re.compile(r"\b(?:cuda|xpu|npu|mps|cpu)(?::\d+)?\b")
_TOOK = re.compile(
    r"(?i)\b(?:loaded|ready|initiali[sz]ed)\b.{0,40}?\bin (\d{1,9}(?:\.\d{1,6})?) ?"
    r"s(?:ec|econds?)?\b"
)
_LOADS = re.compile(
    r"(?i)^\W{0,8}(?:now )?(?:loading|downloading|initiali[sz]ing|building|preparing)\b(.{0,160})"
)
_MANY = re.compile(
    r"(?i)\b(\d{1,5}) (?:\w{1,30} ){0,2}(?:models?|replicas?|shards?|files?|workers?)\b"
)

_PHASES = tuple(
    (name, edge, re.compile(rf"(?i){pattern}"))
    for name, edge, pattern in (
        ("compiling", "begin", r"\b(?:torch\.)?compil(?:ing|ation started)\b"),
        ("tuning", "begin", r"\b(?:auto-?tun(?:ing|e begin)|tuning kernels?)\b|^AUTOTUNE "),
        ("tuning", "end", r"\bautotun(?:ing|er) (?:took|finished|done)|Benchmarking takes [\d.]"),
        ("evaluating", "begin", r"\b(?:running|starting?|begin) (?:evaluation|validation)\b"),
        ("evaluating", "begin", r"^\W{0,12}evaluating\b"),
        ("evaluating", "end", r"\b(?:evaluation|validation) (?:done|finished|took|results?)\b"),
        ("evaluating", "end", r"# Validation #|['\"]eval_runtime"),
        ("checkpointing", "begin", r"\bsaving (?:model |a ){0,2}(?:checkpoint|state|snapshot)\b"),
        ("checkpointing", "end", r"\b(?:saved|wrote) (?:model |a ){0,2}(?:checkpoint|snapshot)\b"),
        ("checkpointing", "end", r"\bcheckpoint (?:was )?(?:saved|written)\b"),
        ("training", "begin", r"\b(?:running|start(?:ed|ing)?|begin(?:ning)?) training\b"),
        ("training", "begin", r"\btraining (?:starts|started|begins)\b"),
    )
)
_HINTS = (
    "train", "evaluat", "validation", "checkpoint", "snapshot", "compil", "tun", "load", "sav",
    "wrote", "ready", "initiali", "build", "prepar", "final", "epochs", "steps", "on cuda",
    "eval_runtime", "done", "finish", "complet", "benchmarking", "export",
)  # fmt: skip
"""Of these, in small letters, one is in each line that any pattern of this file can match."""


def may_matter(line: str) -> bool:
    """A cheap look: False means that no word of this file is in the line."""
    low = line.lower()
    return any(hint in low for hint in _HINTS)


def says_done(line: str) -> str | None:
    """`words` or `saved` when the line says that training is over, `bare` when it says "done"."""
    found = _DONE.search(line)
    if found and not _NOT_DONE.search(line[: found.start()]):
        return "words"
    if _SAVED.search(line):
        return "saved"
    return "bare" if _BARE.search(line) else None


def phase_of(line: str) -> tuple[str, str] | None:
    """Phase and edge that a line announces."""
    for name, edge, pattern in _PHASES:
        if pattern.search(line):
            return name, edge
    return None


def is_loading_bar(name: str) -> bool:
    """A bar of this name belongs to the time before the first step."""
    return _LOADING_NAME.search(name) is not None


def bar_phase(name: str) -> str:
    """What a bar of this name counts: `evaluating`, `checkpointing` (writes), else `training`."""
    if is_evaluation_bar(name):
        return "evaluating"
    return "checkpointing" if _SAVE_NAME.search(name) else "training"


def is_evaluation_bar(name: str) -> bool:
    """A bar of this name counts an evaluation, not training."""
    return _EVAL_NAME.search(name) is not None


def worker_in(text: str) -> str | None:
    """`target-1` out of `Target 1`, `target_1`, `[target-1]`; None when no worker is named."""
    found = _WORKER.search(text)
    if not found:
        return None
    role = {"draft": "drafter"}.get(found.group(1).lower(), found.group(1).lower())
    return f"{role}-{int(found.group(2))}"


def device_in(text: str) -> str | None:
    """`cuda:1` where a line names a device."""
    found = _DEVICE.search(text)
    return found.group() if found else None


def took_s(line: str) -> float | None:
    """Seconds of a `Loaded in 7.2s` line."""
    found = _TOOK.search(line)
    return float(found.group(1)) if found else None


def loads_what(line: str) -> str | None:
    """What a `Loading ...` line says it loads."""
    found = _LOADS.search(line)
    return found.group(0).strip(" .\t") if found else None


def how_many(text: str) -> int | None:
    """5 out of `Loading 5 target models`."""
    found = _MANY.search(text)
    return int(found.group(1)) if found else None
