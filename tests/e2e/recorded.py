"""What a `--record` file holds: the records of a watch, for what its JSON lines do not show."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dflash_watch.capture import open_capture
from dflash_watch.engine import Engine
from dflash_watch.model import Snapshot
from dflash_watch.playbooks import load_playbooks

Record = dict[str, Any]


def records(capture: Path) -> list[Record]:
    """All records, oldest first; the one being written is left out."""
    lines = capture.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def frames(capture: Path) -> list[Record]:
    """The frames, oldest first."""
    return [record for record in records(capture) if record["type"] == "frame"]


def log_samples(capture: Path, name: str) -> list[Record]:
    """What the frames say about logs whose path ends so, oldest first."""
    return [
        sample
        for frame in frames(capture)
        for sample in frame.get("logs") or ()
        if str(sample["path"]).endswith(name)
    ]


def steps_shown(capture: Path, name: str) -> list[int]:
    """Step numbers in the text of a log (`step=N/...` or `step N/...`), in the order read."""
    text = "".join(sample.get("text", "") for sample in log_samples(capture, name))
    words = text.replace("step=", "step ").split("step ")[1:]
    return [int(word.partition("/")[0].split()[0]) for word in words if word[:1].isdigit()]


def gaps(capture: Path, source: str) -> list[str]:
    """Reasons why a source could not be read, oldest first."""
    return [
        gap["reason"]
        for frame in frames(capture)
        for gap in frame.get("gaps") or ()
        if gap["source"] == source
    ]


def snapshots(capture: Path) -> Iterator[Snapshot]:
    """What a fresh engine makes of the recording: the dashboard's view."""
    header, rest = open_capture(capture)
    engine = Engine(header.options, load_playbooks())
    for record in rest:
        yield engine.advance(record)


def check_no_frame_twice(capture: Path) -> int:
    """Numbers go up in each agent's life, moments over all; how many lives there were."""
    lives: list[list[Record]] = []
    for record in records(capture):
        if record["type"] == "hello":
            lives.append([])
        elif record["type"] == "frame":
            lives[-1].append(record)
    for life in lives:
        seqs = [frame["seq"] for frame in life]
        assert seqs == sorted(set(seqs)), seqs
    moments = [frame["boot_s"] for life in lives for frame in life]
    assert all(a < b for a, b in itertools.pairwise(moments)), moments
    return len(lives)
