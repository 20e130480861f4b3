"""Evidence read from files: bounded, any bytes, and what cannot be read is told, never raised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dflash_watch.errors import UsageError
from dflash_watch.pasted.context import MOST_PROCESSES, parse_context
from dflash_watch.pasted.evidence import Context, Evidence, PastedProcess
from dflash_watch.pasted.sieve import Sieved, sieve
from dflash_watch.readers.collectives import RankState
from dflash_watch.readers.encoding import text_of
from dflash_watch.readers.flightrecorder import is_pickle, rank_in_name, read_states
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
FLIGHTS = ("*nccl_trace*", "fr_*", "flight*")
"""Names of flight recorders' dumps in a folder: one a rank, whose number ends the name."""
MOST_FLIGHTS, FLIGHT_BYTES = 256, 32 << 20
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
    flights = sorted({path for form in FLIGHTS for path in folder.glob(form) if path.is_file()})
    if not files and not flights:
        known = ", ".join(name for names in NAMES.values() for name in names)
        raise UsageError(f"{folder}: none of the known files is there", hint=f"expected {known}")
    return read_files(files, flights)


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
    return text_of(raw)
