"""Evidence read from files: bounded, any bytes, and what cannot be read is told, never raised."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from dflash_events.secrets import mask_text

from dflash_watch.errors import UsageError
from dflash_watch.pasted.context import MOST_PROCESSES, parse_context
from dflash_watch.pasted.evidence import Context, Evidence, PastedProcess
from dflash_watch.pasted.sieve import Sieved, sieve
from dflash_watch.readers.collectives import RankState
from dflash_watch.readers.encoding import text_of
from dflash_watch.readers.flightrecorder import is_pickle, rank_in_name, read_states
from dflash_watch.readers.gpumodel import GpuText
from dflash_watch.readers.gputext import parse_gpus
from dflash_watch.readers.lines import printable
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
FLIGHTS = ("*nccl_trace*", "fr_*", "flight*")
"""Names of flight recorders' dumps in a folder: one a rank, whose number ends the name."""
MOST_FLIGHTS, FLIGHT_BYTES = 256, 32 << 20
SMALL_BYTES = 8 << 20
"""Most that is read of a listing: its newest part."""
STACKS_BYTES = 24 << 20
"""Most that is read of a file of stacks: its newest part."""
CONTEXT_BYTES = 128 << 10
PIECE_BYTES = 1 << 20
MOST_NAMED = 5
_LOGLIKE = re.compile(r"(?i)log|\.(?:out|err|txt)$")


def read_folder(folder: Path, named: Mapping[str, Path] | None = None) -> Evidence:
    """Whatever of the known files lies in a folder.

    Args:
        folder: where they lie.
        named: files that stand in for those of their kind.

    Raises:
        UsageError: no such folder, or none of the files is in it.
    """
    try:
        if folder.is_file():
            raise UsageError(f"{folder}: is a file", hint=f"name what it is: --log {folder}")
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder", hint="give a folder, or single files")
        files = {kind: one for kind, names in NAMES.items() for one in _present(folder, names)[:1]}
        flights = sorted({one for form in FLIGHTS for one in folder.glob(form) if one.is_file()})
    except OSError as error:
        hint = "give a folder that can be read, or single files"
        raise UsageError(f"{folder}: {error.strerror or error}", hint=hint) from error
    files |= named or {}
    if not files and not flights:
        raise UsageError(f"{folder}: none of the known files is there", hint=_hint(folder))
    return read_files(files, flights)


def check_source(path: Path) -> str | None:
    """Why nothing can be read there; None when it can: a file, or a pipe (`<(command)`)."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "no such file"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
        return None
    return "is a folder" if stat.S_ISDIR(mode) else "is no file but a device or a socket"


def _hint(folder: Path) -> str:
    """What is expected, and how to name what is there under another name."""
    known = ", ".join(name for names in NAMES.values() for name in names)
    there = sorted(printable(one.name) for one in folder.glob("*") if one.is_file())[:MOST_NAMED]
    if not there:
        return f"expected {known}"
    example = next((name for name in there if _LOGLIKE.search(name)), there[0])
    return (
        f"expected {known}; there are {', '.join(there)}: name them by option, such as"
        f" --log {folder / example}"
    )


def _present(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [folder / name for name in names if (folder / name).is_file()]


def read_files(files: Mapping[str, Path], flights: Sequence[Path] = ()) -> Evidence:
    """Evidence of the given files.

    Args:
        files: by kind (keys of NAMES).
        flights: dumps of flight recorders, one a rank.
    """
    notes: list[str] = []
    ranks = [one for path in flights[:MOST_FLIGHTS] for one in _flight(path, notes)]
    log = _log(files.get("log"), notes)
    stacks_text = _text(files.get("stacks"), STACKS_BYTES, notes)
    gpus_text = _text(files.get("gpus"), SMALL_BYTES, notes)
    ps_text = _text(files.get("ps"), SMALL_BYTES, notes)
    context = _context(files.get("context"), notes)
    stacks = parse_dumps(stacks_text).samples if stacks_text is not None else None
    if stacks is not None and not stacks and (stacks_text or "").strip():
        notes.append(f"{files['stacks'].name}: no stack of a known tool is in it")
    gpus: GpuText | None = parse_gpus(gpus_text) if gpus_text is not None else None
    return Evidence(
        log=log.text if log is not None else None,
        stacks=stacks,
        log_stacks=parse_dumps(log.dumps).samples if log is not None else (),
        gpus=gpus,
        processes=_processes(ps_text, notes) if ps_text is not None else None,
        ranks=tuple(ranks),
        context=context,
        notes=tuple(notes),
    )


def _flight(path: Path, notes: list[str]) -> list[RankState]:
    try:
        with path.open("rb") as file:
            raw = file.read(FLIGHT_BYTES)
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror or error}")
        return []
    text = raw[:2].decode("latin-1") if is_pickle(raw) else text_of(raw)
    states, note = read_states(text, rank=rank_in_name(path.name))
    if note is not None:
        notes.append(f"{path.name}: {note}")
    return states


def _processes(text: str, notes: list[str]) -> tuple[PastedProcess, ...]:
    read = parse_ps(text)
    if read.artefact is not None:
        notes.append(read.artefact.text)
    return tuple(
        PastedProcess(
            state=row.state,
            wchan=row.wchan,
            cmd=row.command,
            pid=row.pid,
            ppid=row.ppid,
            cpu=row.cpu_percent,
        )
        for row in read.rows[:MOST_PROCESSES]
    )


def _log(path: Path | None, notes: list[str]) -> Sieved | None:
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            left = sieve(file, os.fstat(file.fileno()).st_size or None)
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror or error}")
        return None
    text = mask_text(left.text)
    dumps = text if left.dumps is left.text else mask_text(left.dumps)
    return Sieved(text, dumps, left.left_out_bytes)


def _context(path: Path | None, notes: list[str]) -> Context | None:
    raw = _raw(path, CONTEXT_BYTES + 1, notes)
    if raw is None:
        return None
    if len(raw) > CONTEXT_BYTES:
        notes.append(f"context.yaml is too large, at most {CONTEXT_BYTES >> 10} KiB; left out")
        return Context()
    context, told = parse_context(text_of(raw))
    notes += told
    return context


def _text(path: Path | None, most: int, notes: list[str]) -> str | None:
    """Masked line by line: an option at the end of one has no value in the next."""
    raw = _raw(path, most, notes)
    return None if raw is None else "\n".join(map(mask_text, text_of(raw).split("\n")))


def _raw(path: Path | None, most: int, notes: list[str]) -> bytes | None:
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return _newest(file, most)
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror or error}")
        return None


def _newest(file: BinaryIO, most: int) -> bytes:
    size = os.fstat(file.fileno()).st_size  # 0 of a pipe, and of what /proc makes up
    if size > most:
        file.seek(size - most)
        return file.read(most)
    kept = b""
    while piece := file.read(PIECE_BYTES):
        kept = (kept + piece)[-most:]
    return kept
