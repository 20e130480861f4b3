"""Playbooks: one file a failure, read for its front matter (data of the diagnosis) and its text.

Reading files is all the I/O here; the data is checked on load, so that a wrong playbook is an
error at start and not a silent hole in the diagnosis.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dflash_watch.errors import UsageError
from dflash_watch.model import Record, Severity, Verdict
from dflash_watch.readers.facts import Signature

SECTIONS = ("Meaning", "Diagnosis", "Mitigation", "Look-alikes")
FENCE = "+++"
GROUPS = {
    "@echoes": (
        "progress-overdue", "work-still", "log-silent", "wait-cycle", "queue-starved",
        "queue-blocked", "worker-not-taking", "worker-not-giving", "throughput-low",
        "log-buffered", "gpu-memory-uneven", "exit-overdue", "ticker-silent", "gil-owner-fixed",
        "pipeline-deadlock", "drafter-idle", "target-idle", "drafter-starved", "target-blocked",
        "throughput-below-baseline", "log-not-flushed", "memory-uneven", "gil-held", "exit-hang",
        "collective-late",
    ),
    "@ends": (
        "worker-failed", "worker-died", "exit-recorded", "main-process-died", "main-process-gone",
        "main-process-zombie", "process-vanished", "collective-timeout", "collective-wait",
        "network-fault", "dataloader-worker-died", "collective-never-started",
    ),
}  # fmt: skip
"""What `explains` may say in one word: that nothing gets on any more, and how a death shows."""


class Playbook(Record, frozen=True, kw_only=True):
    """One failure: how to recognise it, what it hides, what to do."""

    name: str
    title: str
    severity: Severity
    verdicts: tuple[Verdict, ...] = ()
    requires: tuple[str, ...] = ()
    """Symptoms that must all be there; `a|b` is either."""
    supports: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    """Symptoms and failures that are hidden below this one."""
    incident: bool = False
    stacks: bool = False
    summary: str = ""
    """One sentence; placeholders `subject`, `since`, `detail`, `others`."""
    next: tuple[str, ...] = ()
    signature: tuple[dict[str, Any], ...] = ()
    action: tuple[dict[str, Any], ...] = ()
    sections: dict[str, str] = msgspec.field(default_factory=dict)

    def signatures(self) -> tuple[Signature, ...]:
        """Texts that prove or suggest this failure."""
        return tuple(
            msgspec.convert(
                {"failure": self.name, "grave": self.severity == Severity.CRITICAL, **one},
                Signature,
            )
            for one in self.signature
        )


def playbook_folder() -> Path:
    """Where the playbooks lie: inside the installed package, else beside the sources.

    Raises:
        UsageError: neither is there.
    """
    here = Path(__file__).resolve()
    for folder in (here.parent / "_playbooks", here.parents[2] / "playbooks"):
        if folder.is_dir():
            return folder
    raise UsageError("no playbooks found beside the package", hint="reinstall dflash-toolkit")


def load_playbooks(folder: Path | None = None) -> dict[str, Playbook]:
    """All playbooks by failure name.

    Raises:
        UsageError: a file is not a playbook; names file and reason.
    """
    files = sorted((folder or playbook_folder()).glob("*.md"))
    return {file.stem: parse_playbook(file.stem, file.read_text("utf-8")) for file in files}


def parse_playbook(name: str, text: str) -> Playbook:
    """One playbook from its text.

    Raises:
        UsageError: front matter is missing, is not TOML, or has a key or value that cannot be.
    """
    parts = text.split(f"{FENCE}\n", 2)
    if len(parts) != 3 or parts[0].strip():
        raise UsageError(f"playbook {name}: expected front matter between two lines {FENCE}")
    try:
        data = tomllib.loads(parts[1])
        _refuse_unknown(data)
        made = {**data, "name": name, "sections": _sections(parts[2])}
        made["explains"] = _spelled_out(made.get("explains", ()), name)
        playbook = msgspec.convert(made, Playbook)
        playbook.signatures()
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"playbook {name}: {error}") from error
    return playbook


def _spelled_out(explains: Sequence[str], name: str) -> list[str]:
    """Groups replaced by what they stand for, without the failure itself."""
    every = [one for word in explains for one in GROUPS.get(word, (word,))]
    return [one for one in dict.fromkeys(every) if one != name]


def _refuse_unknown(data: Mapping[str, Any]) -> None:
    unknown = set(data) - {field.name for field in msgspec.structs.fields(Playbook)}
    if unknown:
        raise ValueError(f"unknown key {sorted(unknown)[0]!r}")


def _sections(body: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in body.splitlines():
        if line.startswith("## "):
            lines = found.setdefault(line[3:].strip(), [])
        else:
            lines.append(line)
    return {name: "\n".join(lines).strip() for name, lines in found.items()}
