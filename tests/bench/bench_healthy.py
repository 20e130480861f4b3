"""False alarms over healthy runs: target none.

Twenty runs in a container, watched over SSH: ten tiny runs of our own, ten foreign scripts of
different kinds, four of the twenty while every core of the machine is kept busy. Four more are
watched on this machine: a real Hugging Face Trainer (bars and loader workers, or lines only) and a
compiled loop whose shapes change. A false alarm is a verdict other than initialising, running,
quiet and finished, a critical severity, any incident, or an end that is not `finished`.

Run as root: python tests/bench/bench_healthy.py [--at-once N] [--only WORD] [--json FILE]
    --here         only what needs no container
    --hours 2      again and again until so much has been watched
    --keep DIR     keep the recordings; --replay DIR plays kept ones through this engine instead:
                   hours in seconds, honest since the engine knows nothing but the records
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT / name) for name in ("dflash", "watchdog", "tui", "tests")]
sys.path[:0] = FOLDERS

from dflash_watch.capture import open_capture  # noqa: E402 - the path comes first
from dflash_watch.engine import Engine  # noqa: E402
from dflash_watch.playbooks import load_playbooks  # noqa: E402
from e2e.places.bench import proxmox  # noqa: E402 - the path comes first
from e2e.places.fixtures import Proxmox  # noqa: E402
from e2e.watched import SCRIPTS, Run, Watch, Watched  # noqa: E402

ALLOWED = {"initialising", "running", "quiet", "finished"}
LONGEST_S = 600.0
SYSTEM_PYTHON = "/usr/bin/python3"


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One healthy run."""

    name: str
    words: tuple[object, ...]
    script: str | None = None
    """None: the tiny run, `words` are its settings."""
    is_busy: bool = False
    python: str | None = None
    is_here: bool = False
    """Watched on this machine: it needs what the container lacks."""


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What the watcher said of it."""

    case: Case
    seconds: float
    verdicts: tuple[str, ...]
    failures: tuple[str, ...]
    alarms: tuple[str, ...]
    """Empty: none."""
    capture: Path
    """The recording."""


STEPS_100 = "optim.steps=100"
WHOLE = (STEPS_100, "target.pretrain_steps=60", "data.num_documents=768", "report.every_steps=5")
"""The preset's own values, but for the number of steps."""
CASES = (
    Case("tiny", (*WHOLE, "optim.steps=160")),
    Case("tiny, another seed", (*WHOLE, "seed=7")),
    Case("tiny, no pre-training", (STEPS_100,)),
    Case("tiny, longer pre-training", (*WHOLE, "target.pretrain_steps=150")),
    Case("tiny, shortest queue", (STEPS_100, "pipeline.queue_capacity=2")),
    Case("tiny, checkpoint every 10 steps", (STEPS_100, "checkpoint.every_steps=10")),
    Case("tiny, a line every 50 steps", ("optim.steps=150", "report.every_steps=50")),
    Case("tiny, slow steps", ("optim.steps=30", "optim.accumulation=8")),
    Case("tiny, cores busy", (STEPS_100,), is_busy=True),
    Case("tiny, checkpoints, cores busy",
         (STEPS_100, "checkpoint.every_steps=20"), is_busy=True),
    Case("plain", ("--steps", 200), "plain_loop.py"),
    Case("plain, steps of 4 s", ("--steps", 10, "--step-s", 4), "plain_loop.py",
         python=SYSTEM_PYTHON),
    Case("plain, cores busy", ("--steps", 200, "--busy-ratio", 0.6), "plain_loop.py",
         is_busy=True),
    Case("slow start", ("--quiet-s", 25, "--steps", 100), "slow_start.py"),
    Case("slow start without a word, cores busy",
         ("--quiet-s", 20, "--say", "", "--steps", 100), "slow_start.py", is_busy=True),
    Case("pause for a checkpoint",
         ("--steps", 160, "--every", 80, "--write-s", 25, "--dir", "checkpoints"),
         "checkpointing_loop.py"),
    Case("like Hugging Face, with evaluations",
         ("--steps", 200, "--eval-steps", 100, "--eval-batches", 60), "hf_like_loop.py"),
    Case("block-buffered", ("--steps", 400, "--flush-until", 50), "block_buffered.py"),
    Case("bar only", ("--steps", 200), "progress_bar_only.py", python=SYSTEM_PYTHON),
    Case("threads", ("--steps", 300, "--fail", "none"), "swallowing_pipeline.py"),
    Case("Hugging Face Trainer, loader workers",
         ("--seconds", 200, "--workers", 2, "--eval-steps", 200, "--eval-items", 2000,
          "--save-steps", 200, "--pause-s", 15), "hf_trainer.py", is_here=True),
    Case("Hugging Face Trainer, lines only",
         ("--seconds", 200, "--no-bar", "--item-s", 0.02, "--eval-steps", 60, "--eval-items", 2000,
          "--save-steps", 60, "--width", 256), "hf_trainer.py", is_here=True),
    Case("compiled, three shapes", ("--seconds", 200), "compiling_loop.py", is_here=True),
    Case("compiled, cores busy", ("--seconds", 200), "compiling_loop.py", is_here=True,
         is_busy=True),
)  # fmt: skip


def start(watched: Watched, case: Case) -> Run:
    """The run, in the container."""
    if case.script is None:
        return watched.tiny(*map(str, case.words))
    return watched.foreign(case.script, *case.words, python=case.python, shell='cd "$0"; exec "$@"')


def alarms_of(watch: Watch, code: int) -> tuple[str, ...]:
    """What nobody should have been told."""
    wrong = {
        f"{line['verdict']} {line['failure']} ({line['subject']}): {line['summary']}"
        for line in watch.lines
        if line["verdict"] not in ALLOWED or line["severity"] == "critical"
    }
    found = [*sorted(wrong), *(f"incident {kept.folder.name}" for kept in watch.incidents())]
    if code != 0 or not watch.lines or watch.lines[-1]["verdict"] != "finished":
        found.append(f"did not end as finished: exit {code}, {watch.told()}")
    return tuple(found)


def look_here(folder: Path, case: Case) -> Result:
    """The same for a program on this machine."""
    folder.mkdir()
    words = [sys.executable, str(SCRIPTS / str(case.script)), *map(str, case.words)]
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": "", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    with (folder / "out.log").open("wb") as out:
        run = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, env=environment
        )
    watch = Watch(["--pid", str(run.pid), "--until-end"], folder / "watch")
    try:
        run.wait(LONGEST_S)
        with contextlib.suppress(subprocess.TimeoutExpired):  # `stop` below ends it
            watch.process.wait(60)
        alarms = alarms_of(watch, watch.stop())
    finally:
        run.kill()
        run.wait()
        watch.stop()
    return result_of(case, watch, alarms, time.monotonic() - began)


def result_of(case: Case, watch: Watch, alarms: tuple[str, ...], seconds: float) -> Result:
    """What a watcher said of a run."""
    failures = tuple(dict.fromkeys(line["failure"] for line in watch.lines))
    return Result(case, seconds, tuple(watch.verdicts()), failures, alarms, watch.capture)


def look(place: Proxmox, folder: Path, case: Case) -> Result:
    """One run from its start to its end under the watcher's eyes."""
    folder.mkdir()
    watched = Watched(place, folder)
    began = time.monotonic()
    try:
        watch = watched.watch(start(watched, case), "--until-end")
        with contextlib.suppress(subprocess.TimeoutExpired):  # `stop` below ends it
            watch.process.wait(LONGEST_S)
        alarms = alarms_of(watch, watch.stop())
    finally:
        watched.end(alone=False)
    return result_of(case, watch, alarms, time.monotonic() - began)


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Two spinning processes a core for the body."""
    words = [sys.executable, str(SCRIPTS / "busy_machine.py"), "--seconds", str(LONGEST_S)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as spinning:
        try:
            yield
        finally:
            spinning.terminate()


def run_all(
    place: Proxmox | None, folder: Path, cases: Sequence[Case], at_once: int
) -> list[Result]:
    """Calm ones first, then those with busy cores."""
    results: list[Result] = []
    for is_busy in (False, True):
        chosen = [(i, case) for i, case in enumerate(cases) if case.is_busy is is_busy]
        load = busy_cores() if is_busy and chosen else contextlib.nullcontext()
        with load, ThreadPoolExecutor(at_once) as pool:
            looks = []
            for i, case in chosen:
                at = folder / f"case-{i}"
                if case.is_here or place is None:
                    looks.append(pool.submit(look_here, at, case))
                else:
                    looks.append(pool.submit(look, place, at, case))
            for one in as_completed(looks):
                results.append(one.result())
                show(results[-1])
    return results


def replay(path: Path) -> tuple[float, tuple[str, ...]]:
    """Seconds that a recording covers, and what this engine would have alarmed about."""
    header, records = open_capture(path)
    engine = Engine(header.options, load_playbooks())
    alarms: dict[tuple[str, ...], str] = {}
    first_t = last_t = None
    for record in records:
        told = engine.advance(record)
        if told.data_t is None:
            continue
        first_t, last_t = first_t or told.t, told.t
        if told.verdict not in ALLOWED or told.severity == "critical":
            alarms[told.verdict, told.failure, told.subject] = told.summary
        if told.incident is not None and told.incident.ready:
            alarms.setdefault(("incident", told.incident.key), told.summary)
    texts = tuple(f"{' '.join(key)}: {text}" for key, text in alarms.items())
    return (last_t or 0.0) - (first_t or 0.0), texts


def replay_all(folder: Path) -> list[Result]:
    """Every recording below a folder."""
    results = []
    for path in sorted(folder.rglob("*.jsonl*")):
        seconds, alarms = replay(path)
        case = Case(str(path.relative_to(folder)), ())
        results.append(Result(case, seconds, (), (), alarms, path))
        show(results[-1])
    return results


def keep(results: Sequence[Result], folder: Path, number: int) -> None:
    """Copies of the recordings, by round and case."""
    folder.mkdir(parents=True, exist_ok=True)
    for result in results:
        name = re.sub(r"[^a-z0-9]+", "-", result.case.name.lower())
        if result.capture.exists():
            shutil.copy(result.capture, folder / f"{number:03d}-{name}.jsonl")


def watch_for(options: argparse.Namespace, cases: Sequence[Case]) -> list[Result]:
    """Rounds of all cases until enough hours have been watched."""
    results: list[Result] = []
    needs_place = any(not case.is_here for case in cases)
    with proxmox() if needs_place else contextlib.nullcontext() as place:
        for number in itertools.count(1):
            with tempfile.TemporaryDirectory() as folder:
                done = run_all(place, Path(folder), cases, options.at_once)
                if options.keep:
                    keep(done, options.keep, number)
            results += done
            if sum(one.seconds for one in results) >= 3600 * options.hours:
                return results
    raise AssertionError


def show(result: Result) -> None:
    """One line a run, as it ends."""
    path = " > ".join(result.verdicts)
    print(f"{result.case.name:<40} {result.seconds:5.0f} s  {path}", flush=True)
    print(f"{'':<40}          {', '.join(result.failures)}", flush=True)
    for alarm in result.alarms:
        print(f"    FALSE ALARM {alarm}", flush=True)


def main() -> int:
    """Run them; 0 when nobody was alarmed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--at-once", type=int, default=max(2, (os.cpu_count() or 1) // 2))
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--replay", type=Path)
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in case.name]
    if options.here:
        cases = [case for case in cases if case.is_here]
    results = replay_all(options.replay) if options.replay else watch_for(options, cases)
    wrong = sum(bool(result.alarms) for result in results)
    hours = sum(result.seconds for result in results) / 3600
    figure = {
        "figure": "healthy", "runs": len(results), "hours": round(hours, 2),
        "false_alarms": wrong, "target": 0,
    }  # fmt: skip
    print(json.dumps(figure))
    if options.json:
        rows = [{**dataclasses.asdict(one), "capture": None} for one in results]
        options.json.write_text(json.dumps({**figure, "rows": rows}, indent=1) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
