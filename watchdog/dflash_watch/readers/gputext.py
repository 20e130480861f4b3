"""What nvidia-smi printed, in any of its forms, as GPU samples.

Reads the table (old, new, with MIG), `--query-gpu` and `--query-compute-apps` CSV, `-q`, `-L`,
`dmon`, and the messages that come instead. A value that is not there is missing, with the tool's
own word for it: never zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from dflash_watch.frame import GpuProcess, GpuSample
from dflash_watch.readers.gpucsv import CsvReader
from dflash_watch.readers.gpumodel import GpuText, Look, SmiProcess, Trouble
from dflash_watch.readers.gpuquery import QueryReader
from dflash_watch.readers.gputable import TableReader
from dflash_watch.readers.gpuvalues import GpuBuild, trouble_in
from dflash_watch.readers.lines import printable

LINE_LIMIT = 2000
"""Characters read of a line."""
LINES_LIMIT = 1_000_000
LOOKS_LIMIT = 20_000

_STAMP = re.compile(
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}|\d{4}-\d\d-\d\d[ T]\S{8}"
)
_LISTED = re.compile(r"GPU (\d{1,4}): (.{1,80}) \(UUID: (GPU-[0-9a-f-]{8,40})\)")
_BUS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")


def parse_gpus(text: str) -> GpuText:
    """All that the text says about GPUs; `form` is `none` where it says nothing.

    Args:
        text: output of nvidia-smi, anything around it allowed, several looks allowed.
    """
    reader = _Reader()
    for line in text.split("\n", LINES_LIMIT)[:LINES_LIMIT]:
        reader.feed(printable(line[:LINE_LIMIT]).removeprefix("> ").rstrip())
    return reader.result()


class _Reader:
    """Lines to whichever form they belong to."""

    def __init__(self) -> None:
        self.table, self.csv, self.query = TableReader(), CsvReader(), QueryReader()
        self.listed: list[GpuBuild] = []
        self.trouble: list[Trouble] = []
        self.looks: list[Look] = []
        self.unread: list[str] = []
        self.stamp: str | None = None

    def feed(self, line: str) -> None:
        if not line:
            return
        kind = trouble_in(line)
        if kind and len(self.trouble) < 64:
            bus = _BUS.search(line)
            text = line.strip()[:300]
            self.trouble.append(Trouble(kind=kind, text=text, bus_id=bus.group() if bus else None))
        if "NVIDIA-SMI" in line and self.table.gpus:
            self._look(self.table.take_gpus())
        if self.table.feed(line):
            return
        if found := _LISTED.match(line):
            gpu = GpuBuild(int(found.group(1)))
            gpu.put("name", found.group(2))
            gpu.put("uuid", found.group(3))
            self.listed.append(gpu)
        elif found := _STAMP.match(line):
            self.stamp = found.group()
        elif not self.query.feed(line) and not self.csv.feed(line) and not kind:
            self.unread.append(line[:200])
            del self.unread[20:]

    def result(self) -> GpuText:
        form = self._form()
        self._look(self.table.take_gpus())
        if form in ("csv", "dmon"):
            self._csv_looks()
        elif form == "query":
            for index, action in self.query.recovery.items():
                self.query.gpus[index].note = f"recovery action: {action}"
            self._look(self.query.gpus)
        elif form == "list":
            self._look(self.listed)
        processes = self._processes()
        return GpuText(
            looks=tuple(_with_processes(self.looks, processes)),
            form=form,
            driver=self.table.driver or self.query.driver or self.csv.driver,
            cuda=self.table.cuda or self.query.cuda,
            mig=tuple(self.table.mig),
            processes=processes,
            trouble=tuple(self.trouble),
            guessed=self.csv.guessed,
            unread=(*self.csv.unread, *self.unread),
        )

    def _form(self) -> str:
        if self.table.gpus or self.looks or self.table.processes:
            return "table"
        if self.query.gpus:
            return "query"
        if self.csv.rows:
            return "csv"
        if self.listed:
            return "list"
        return "apps" if self.csv.processes is not None else "none"

    def _processes(self) -> tuple[SmiProcess, ...] | None:
        found = self.table.processes if self.table.processes is not None else self.csv.processes
        return None if found is None else tuple(found)

    def _look(self, builds: Iterable[GpuBuild], stamp: str | None = None) -> None:
        gpus = tuple(build.built() for build in builds)
        if gpus and len(self.looks) < LOOKS_LIMIT:
            self.looks.append(Look(gpus=gpus, stamp=stamp or self.stamp))

    def _csv_looks(self) -> None:
        """Rows in which an index comes again belong to the next look of a loop."""
        gathered: dict[int, GpuBuild] = {}
        since: str | None = None
        for stamp, build in self.csv.rows:
            if build.index in gathered:
                self._look(gathered.values(), since)
                gathered = {}
            since = stamp if not gathered else since
            gathered[build.index] = build
        self._look(gathered.values(), since)


def _with_processes(looks: list[Look], processes: tuple[SmiProcess, ...] | None) -> list[Look]:
    """The process table beside the GPUs of the newest look."""
    if processes is None or not looks or any(one.gpu is None for one in processes):
        return looks
    gpus = tuple(_holding(gpu, processes) for gpu in looks[-1].gpus)
    return [*looks[:-1], msgspec.structs.replace(looks[-1], gpus=gpus)]


def _holding(gpu: GpuSample, processes: tuple[SmiProcess, ...]) -> GpuSample:
    mine = tuple(
        GpuProcess(pid=one.pid, memory_bytes=one.memory_bytes)
        for one in processes
        if one.gpu == gpu.index
    )
    return msgspec.structs.replace(gpu, processes=mine)
