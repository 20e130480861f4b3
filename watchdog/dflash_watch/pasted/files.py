"""Evidence read from files: bounded, any bytes, and what cannot be read is told, never raised."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dflash_watch.errors import UsageError
from dflash_watch.pasted.context import MOST_PROCESSES, parse_context
from dflash_watch.pasted.evidence import Context, Evidence, PastedProcess
from dflash_watch.pasted.sieve import Sieved, sieve
from dflash_watch.readers.gpumodel import GpuText
from dflash_watch.readers.gputext import parse_gpus
from dflash_watch.readers.pstext import parse_ps
from dflash_watch.readers.stackparse import parse_dumps

NAMES = {
    "log": ("log.txt",),
    "stacks": ("stacks.txt", "stacks.json"),
    "gpus": ("gpus.csv", "nvidia-smi.txt"),
    "ps": ("ps.txt",),
    "context": ("context.yaml",),
}
"""Kind of evidence -> file names it has in a folder."""
SMALL_BYTES = 8 << 20
"""Most that is read of a listing: its newest part."""
STACKS_BYTES = 24 << 20
"""Most that is read of a file of stacks: its newest part."""
CONTEXT_BYTES = 1 << 20


def read_folder(folder: Path, named: Mapping[str, Path] | None = None) -> Evidence:
    """Whatever of the known files lies in a folder.

    Args:
        folder: where they lie.
        named: files that stand in for those of their kind.

    Raises:
        UsageError: no such folder, or none of the files is in it.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", hint="give a folder, or single files")
    files = {kind: path for kind, names in NAMES.items() for path in _present(folder, names)[:1]}
    files |= named or {}
    if not files:
        known = ", ".join(name for names in NAMES.values() for name in names)
        raise UsageError(f"{folder}: none of the known files is there", hint=f"expected {known}")
    return read_files(files)


def _present(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [folder / name for name in names if (folder / name).is_file()]


def read_files(files: Mapping[str, Path]) -> Evidence:
    """Evidence of the given files, by kind (keys of NAMES)."""
    notes: list[str] = []
    log = _log(files.get("log"), notes)
    stacks_text = _text(files.get("stacks"), STACKS_BYTES, notes)
    gpus_text = _text(files.get("gpus"), SMALL_BYTES, notes)
    ps_text = _text(files.get("ps"), SMALL_BYTES, notes)
    context_text = _text(files.get("context"), CONTEXT_BYTES, notes)
    context: Context | None = None
    if context_text is not None:
        context, told = parse_context(context_text)
        notes += told
    gpus: GpuText | None = parse_gpus(gpus_text) if gpus_text is not None else None
    return Evidence(
        log=log.text if log is not None else None,
        stacks=parse_dumps(stacks_text).samples if stacks_text is not None else None,
        log_stacks=parse_dumps(log.dumps).samples if log is not None else (),
        gpus=gpus,
        processes=_processes(ps_text, notes) if ps_text is not None else None,
        context=context,
        notes=tuple(notes),
    )


def _processes(text: str, notes: list[str]) -> tuple[PastedProcess, ...]:
    read = parse_ps(text)
    if read.artefact is not None:
        notes.append(read.artefact.text)
    return tuple(
        PastedProcess(
            state=row.state, wchan=row.wchan, cmd=row.command, pid=row.pid, cpu=row.cpu_percent
        )
        for row in read.rows[:MOST_PROCESSES]
    )


def _log(path: Path | None, notes: list[str]) -> Sieved | None:
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return sieve(file)
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror or error}")
        return None


def _text(path: Path | None, most: int, notes: list[str]) -> str | None:
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - most, 0))
            raw = file.read(most)
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror or error}")
        return None
    return raw.decode(errors="replace")
