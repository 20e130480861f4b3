"""A run in the container, a watch through a relay, and what a fault of the way does to both."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dflash_watch.capture import open_capture
from dflash_watch.engine import Engine
from dflash_watch.frame import Frame
from dflash_watch.playbooks import load_playbooks
from dflash_watch.readers.facts import StepSeen
from dflash_watch.transport.backoff import STEADY_S
from e2e.paths.relay import Relay
from e2e.places.inside import Inside
from e2e.watched import Run, Watch, Watched, until

SCRIPT = "plain_loop.py"


@dataclass(slots=True)
class Tape:
    """The recording of a watch, read while it grows: (moment of reading, record)."""

    path: Path
    records: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    _offset: int = 0

    def __len__(self) -> int:
        """How many whole records there are now."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offset += len(whole)
            now_t = time.time()
            self.records += [(now_t, json.loads(line)) for line in whole.splitlines()]
        return len(self.records)

    def since(self, mark: int, kind: str) -> list[tuple[float, dict[str, Any]]]:
        """Records of one kind from the `mark`th on."""
        len(self)
        return [one for one in self.records[mark:] if one[1]["type"] == kind]

    def losses(self, mark: int) -> list[str]:
        """Reasons of the losses that were announced."""
        links = [record for _, record in self.since(mark, "link")]
        return [str(link.get("reason")) for link in links if link["state"] == "lost"]


class Ground:
    """What a fault can reach. The client's way leads through `relay`."""

    def __init__(self, watched: Watched) -> None:
        self.watched, self.sshd, self.container = (
            watched, watched.proxmox.sshd, watched.proxmox.container,
        )  # fmt: skip
        self.relay = Relay(self.sshd.port)
        self.kept: dict[str, Any] = {}
        """Between a fault's making and its cure."""
        self.hosts = watched.folder / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n127.0.0.1 relayed.invalid\n")
        self.config = watched.folder / "ssh_config"
        self.config.write_text(
            f"Host box\n  HostName 127.0.0.1\n  Port {self.relay.port}\n"
            f"Host named\n  HostName relayed.invalid\n  Port {self.relay.port}\n"
            f"Host jumped\n  HostName 127.0.0.1\n  ProxyJump box\n"
            f"Host *\nInclude {self.sshd.ssh_config}\n"
        )
        self.run: Run
        self.start_run()

    def start_run(self) -> None:
        """A healthy run; the one before may have ended with its container."""
        words = ("--steps", 1_000_000, "--step-s", 0.25, "--busy-ratio", 0.05)
        self.run = self.watched.foreign(SCRIPT, *words)

    def watch(self, name: str, fault: Fault | None = None) -> Watch:
        """The real watcher, up and running; as `fault` wants it."""
        host = "box" if fault is None else fault.host
        prefix = fault.prefix(self) if fault is not None and fault.prefix else ()
        words = ["--host", host, "--ct", self.container.id, "--ssh-config", str(self.config)]
        words += ["--match", SCRIPT]
        watch = Watch(words, self.watched.folder / name, prefix)
        self.watched._watches.append(watch)
        watch.until_running()
        return watch

    def agents(self) -> list[Inside]:
        """Those in the container, oldest first."""
        return sorted(self.watched.agents(), key=lambda one: one.pid)

    def in_container(self, script: str) -> str:
        """Output of a shell in the container."""
        return self.container.run(["/bin/sh", "-c", script]).stdout

    def restore(self) -> None:
        """Nothing of any fault is left."""
        self.relay.heal()
        self.sshd.restore()

    def close(self) -> None:
        """End the relay."""
        self.relay.close()
        self.restore()


class Fault(NamedTuple):
    """One way to break the way."""

    name: str
    made: str
    make: Callable[[Ground], object]
    cure: Callable[[Ground], object] | None = None
    """None: the way comes back by itself, whatever still stands."""
    says: str | None = None
    """Pattern of a reason that must be told; None: nothing is lost."""
    hold_s: float = 5.0
    """How long it stands after it was told."""
    afterwards: Callable[[Ground], object] | None = None
    """Puts right what still stands."""
    host: str = "box"
    """Of the ssh_config: `box`, `named` (by /etc/hosts), `jumped` (through `box`)."""
    prefix: Callable[[Ground], Sequence[str]] | None = None
    """Words before the watcher's command; such a fault has a watch of its own."""


class Row(NamedTuple):
    """What came of it."""

    name: str
    made: str
    said: str
    """Last reason that fits."""
    blind_s: float | None
    """From the fault to the verdict `blind`; None: over before it counts (2 s)."""
    back_s: float
    """From the cure, or from the first word of the loss, to the next frame and verdict."""


def endure(ground: Ground, watch: Watch, tape: Tape, fault: Fault) -> Row:
    """Make it, wait until it is told, undo it, wait until all is as before.

    What still stands of a fault that the watch gets round is undone at the end.

    Raises:
        AssertionError: another verdict than blind and running, a wrong reason, an agent too many.
    """
    mark, line_mark = len(tape), len(watch.lines)
    begun_t = time.time()
    fault.make(ground)
    made_t = time.time()
    said = _told(fault, watch, tape, (mark, line_mark)) if fault.says else ""
    told_t = time.time()
    if fault.cure is not None or not fault.says:
        time.sleep(fault.hold_s)
    cured_t = time.time()
    if fault.cure is not None:
        said = [said, *_reasons(watch, tape, (mark, line_mark))][-1] if fault.says else ""
        fault.cure(ground)
    elif not fault.says:
        cured_t = made_t
    else:
        cured_t = told_t
    back_t = _back(watch, tape, line_mark, cured_t)
    until(lambda: len(ground.agents()) == 1, f"one agent after {fault.name}", 150)
    lines = list(zip(watch.read_t, watch.lines, strict=False))[line_mark:]
    verdicts = {line["verdict"] for _, line in lines}
    assert verdicts <= {"running", "blind", "initialising"}, watch.told()
    assert {line["failure"] for _, line in lines if line["verdict"] == "blind"} <= {"watch-lost"}
    blind = [t for t, line in lines if line["verdict"] == "blind"]
    if not fault.says:
        assert not blind, watch.told()
    blind_s = round(blind[0] - begun_t, 1) if blind else None
    if fault.afterwards is not None:
        fault.afterwards(ground)
    return Row(fault.name, fault.made, said, blind_s, round(max(back_t - cured_t, 0.0), 1))


def settle(tape: Tape) -> None:
    """An agent that has been there for a while: what breaks next is not the same trouble again."""

    def is_steady() -> bool:
        ups = [at for at, (_, record) in enumerate(tape.records) if record["type"] == "hello"]
        return len(tape.since(ups[-1] if ups else 0, "frame")) > STEADY_S + 1

    until(is_steady, "a steady way", 150)


def _reasons(watch: Watch, tape: Tape, marks: tuple[int, int]) -> list[str]:
    """Why the view is lost: what the losses said, else the verdict."""
    lines = [line["summary"] for line in watch.lines[marks[1] :] if line["verdict"] == "blind"]
    return [*(line.partition("not known: ")[2] or line for line in lines), *tape.losses(marks[0])]


def _told(fault: Fault, watch: Watch, tape: Tape, marks: tuple[int, int]) -> str:
    def said() -> str | None:
        assert watch.process.poll() is None, watch.told()
        fits = [one for one in _reasons(watch, tape, marks) if re.search(fault.says or "", one)]
        return fits[-1] if fits else None

    try:
        return str(until(said, f"{fault.says!r} of {fault.name}", 90))
    except AssertionError as error:
        told = _reasons(watch, tape, marks)
        raise AssertionError(f"{error}; told: {told}") from None


def _back(watch: Watch, tape: Tape, line_mark: int, cured_t: float) -> float:
    """When a frame and a verdict other than blind had come after the cure."""

    def frame_t() -> float | None:
        assert watch.process.poll() is None, watch.told()
        return next((t for t, _ in reversed(tape.since(0, "frame")) if t >= cured_t), None)

    until(frame_t, "a frame after the cure", 90)
    first_t = next(t for t, _ in tape.since(0, "frame") if t >= cured_t)
    until(lambda: watch.lines[-1]["verdict"] == "running", "running again", 90)
    ends = [t for t, line in list(zip(watch.read_t, watch.lines, strict=False))[line_mark:]
            if line["verdict"] == "running" and t >= cured_t]  # fmt: skip
    return max([first_t, *ends[:1]])


def check_counted_once(ground: Ground, tape: Tape) -> int:
    """No frame (boot, agent, number) and no step of the log twice, no step missing; frames seen."""
    who, seen = ("", 0), []
    len(tape)
    for _, record in tape.records:
        if record["type"] == "hello":
            who = (record.get("boot_id"), record.get("agent_pid"))
        elif record["type"] == "frame":
            seen.append((*who, record["seq"]))
    assert len(seen) == len(set(seen))
    steps = _steps_told(tape.path)
    assert steps
    for path, numbers in steps.items():
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), path
    return len(seen)


def _steps_told(capture: Path) -> dict[str, list[int]]:
    """Path of each log -> the steps that its lines told to the engine, in order."""
    header, records = open_capture(capture)
    engine = Engine(header.options, load_playbooks())
    steps: dict[str, list[int]] = {}
    for record in records:
        engine.advance(record)
        if not isinstance(record, Frame):
            continue
        for fact in engine.window.logs.fresh:
            if isinstance(fact, StepSeen):
                steps.setdefault(fact.path, []).append(fact.step)
    return steps
