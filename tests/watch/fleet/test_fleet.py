"""Many runs in one process: what goes wrong with one is its own row and nobody else's."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest
from dflash_watch import fleet as module
from dflash_watch.actions import Actions
from dflash_watch.clock import SystemClock
from dflash_watch.commands.fleet import worst_end
from dflash_watch.errors import LinkError, UsageError
from dflash_watch.fleet import Fleet, Watched
from dflash_watch.frame import Frame, LinkChange, Record, RunSample
from dflash_watch.journal import note_nothing
from dflash_watch.live import Live
from dflash_watch.model import Board, Severity, Snapshot, Verdict
from dflash_watch.render.fleettable import (
    Row,
    render_row_json,
    render_table,
    row_code,
    worst_code,
    worst_first,
)
from dflash_watch.transport.ask import taking_turns

LONG_S = 60.0
T0 = 1_790_000_000.0


class Source:
    """Records that a test puts in, as a session would hand them out."""

    def __init__(self) -> None:
        self.records: queue.Queue[Record] = queue.Queue()
        self.is_closed = self.is_over = False

    def get(self, timeout_s: float) -> Record | None:
        if self.is_over:
            raise EOFError
        with contextlib.suppress(queue.Empty):
            record = self.records.get(timeout=timeout_s)
            self.is_over = isinstance(record, LinkChange) and record.state == "closed"
            return record
        return None

    def request_stacks(self, pid: int, label: str, *, native: bool = False) -> None:
        raise AssertionError("nobody wants stacks here")

    def retry_now(self) -> None:
        raise AssertionError("nobody retries here")

    def close(self) -> None:
        self.is_closed = True


class Engine:
    """Says `running`, or fails when the record tells it to."""

    def advance(self, record: Record) -> Snapshot:
        if isinstance(record, Frame) and record.seq == 13:
            raise ZeroDivisionError("a defect")
        return shot(Verdict.RUNNING, t=getattr(record, "t", T0))


def shot(verdict: Verdict, t: float = T0, **more) -> Snapshot:
    return Snapshot(
        t=t, data_t=t, run="r", verdict=verdict, since_t=T0 - 60, failure="healthy",
        summary="as it is", **more,
    )  # fmt: skip


def frame(seq: int) -> Frame:
    return Frame(seq=seq, t=T0 + seq, boot_s=1.0, run=RunSample(state="found", how="pid"))


class Runs:
    """Runs `a`, `b`, ... each with a source, opened by a fleet in a thread."""

    def __init__(self, *names: str, until=None) -> None:
        self.sources: dict[str, list[Source]] = {name: [] for name in names}
        self.refusals: dict[str, Exception] = {}
        self.told: list[Row] = []
        watched = [
            Watched(name, f"box-{name}", lambda name=name: self.open(name)) for name in names
        ]
        self.fleet = Fleet(watched, SystemClock(), self.told.append, until)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.fleet.run, args=(self.stop,))

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Live]:
        if name in self.refusals:
            raise self.refusals[name]
        source = Source()
        self.sources[name].append(source)
        actions = Actions(source, note_nothing, SystemClock())
        try:
            yield Live(source, Engine(), SystemClock(), actions=actions)
        finally:
            source.close()

    def __enter__(self) -> Runs:
        self.thread.start()
        until(lambda: all(self.sources[name] or name in self.refusals for name in self.sources))
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(LONG_S)
        assert not self.thread.is_alive()

    def row(self, name: str) -> Row:
        return next(row for row in self.fleet.rows() if row.name == name)

    def put(self, name: str, record: Record) -> None:
        self.sources[name][-1].records.put(record)


def until(condition) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_each_run_has_its_row_and_all_are_closed_at_the_end():
    with Runs("a", "b") as runs:
        runs.put("a", frame(1))
        runs.put("b", frame(2))
        until(lambda: all(row.snapshot for row in runs.fleet.rows()))
        assert [(row.name, row.where, row.snapshot.t) for row in runs.fleet.rows()] == [
            ("a", "box-a", T0 + 1), ("b", "box-b", T0 + 2)
        ]  # fmt: skip
    assert all(one.is_closed for sources in runs.sources.values() for one in sources)
    assert {row.name for row in runs.told} == {"a", "b"}


def test_a_defect_in_one_run_is_that_runs_row_and_the_others_go_on(caplog):
    with Runs("a", "b") as runs:
        runs.put("a", frame(1))
        runs.put("a", frame(13))
        until(lambda: runs.row("a").trouble)
        assert (
            runs.row("a").trouble == "the watchdog of this run failed: ZeroDivisionError: a defect"
        )
        assert runs.row("a").snapshot.t == T0 + 1
        runs.put("b", frame(5))
        until(lambda: runs.row("b").snapshot is not None)
        assert runs.row("b").trouble is None
    assert "a: internal error" in caplog.text


def test_a_run_that_cannot_be_watched_is_tried_again_and_comes_back(monkeypatch):
    monkeypatch.setattr(module, "AGAIN_S", 0.1)
    runs = Runs("a", "b")
    runs.refusals["a"] = LinkError("box-a: container 200 is not running")
    with runs:
        until(lambda: runs.row("a").trouble == "box-a: container 200 is not running")
        del runs.refusals["a"]
        until(lambda: runs.sources["a"])
        runs.put("a", LinkChange(t=T0, state="closed", reason="no such key"))
        until(lambda: len(runs.sources["a"]) == 2)
        assert runs.row("a").trouble == "no such key"
        runs.put("a", frame(3))
        until(lambda: runs.row("a").snapshot is not None and runs.row("a").trouble is None)


def test_it_ends_when_the_loop_of_each_run_has_ended():
    runs = Runs("a", "b", until=lambda: lambda live: live.frames >= 2)
    runs.refusals["b"] = UsageError("x.jsonl: cannot be written")
    with runs:
        runs.put("a", frame(1))
        runs.put("a", frame(2))
        runs.thread.join(LONG_S)
        assert not runs.thread.is_alive()
    assert [row.is_over for row in runs.fleet.rows()] == [True, True]
    assert runs.row("b").trouble == "x.jsonl: cannot be written"


# -- how they are shown --------------------------------------------------------------------------

ROWS = [
    Row(name="fine", where="w", snapshot=shot(Verdict.RUNNING, board=Board(step=7, total_steps=9))),
    Row(name="slow", where="w", snapshot=shot(Verdict.SLOW)),
    Row(name="lost", where="w", snapshot=shot(Verdict.RUNNING), trouble="no way\x1b[31m"),
    Row(name="nan", where="w", snapshot=shot(Verdict.RUNNING, severity=Severity.CRITICAL)),
    Row(name="new", where="w"),
    Row(name="dead", where="w", snapshot=msgspec.structs.replace(
        shot(Verdict.CRASHED), failure="worker-died", subject="target-1", since_t=T0 - 600)),
]  # fmt: skip


def test_the_worst_stands_first_and_what_cannot_be_seen_behind_what_is_broken():
    names = [row.name for row in worst_first(ROWS)]
    assert names == ["dead", "nan", "new", "lost", "slow", "fine"]
    assert [row_code(row) for row in worst_first(ROWS)] == [2, 2, 3, 3, 1, 0]
    lines = render_table(ROWS).splitlines()
    assert lines[0].split() == ["verdict", "run", "where", "for", "step", "speed", "what"]
    assert lines[1].split()[:3] == ["CRASHED", "dead", "w"]
    assert lines[1].endswith("worker-died: target-1: as it is")
    assert lines[4].split() == ["BLIND", "lost", "w", "no", "way"]
    assert "\x1b" not in render_table(ROWS)
    assert render_table(ROWS, is_coloured=True).count("\x1b[0m") == len(ROWS)


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ({"fine"}, 0),
        ({"fine", "slow"}, 1),
        ({"slow", "lost"}, 3),
        ({"lost", "dead"}, 2),
        (set(), 3),
    ],
)
def test_the_worst_run_decides_the_exit_code(names, code):
    assert worst_code([row for row in ROWS if row.name in names]) == code


def test_json_has_name_and_where_and_never_calls_what_is_not_seen_healthy():
    told = [msgspec.json.decode(render_row_json(row)) for row in ROWS]
    assert [one["verdict"] for one in told] == [
        "running", "slow", "blind", "running", "blind", "crashed"
    ]  # fmt: skip
    assert told[0]["name"] == "fine"
    assert told[0]["where"] == "w"
    assert told[0]["run"] == "r"
    assert told[2]["trouble"] == "no way\x1b[31m"
    assert all({"schema", "run", "failure", "severity", "summary"} <= set(one) for one in told)


def test_sessions_side_by_side_ask_one_at_a_time_and_each_question_once():
    asked, at_once, most = [], [0], [0]

    def ask(question: str) -> str:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        time.sleep(0.02)
        asked.append(question)
        at_once[0] -= 1
        return question.upper()

    turns = taking_turns(ask)
    answers: list[str | None] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(turns(f"key {n % 2}"))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert sorted(asked) == ["key 0", "key 1"]
    assert sorted(answers) == ["KEY 0"] * 4 + ["KEY 1"] * 4
    assert most == [1]


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([Verdict.FINISHED, Verdict.FINISHED], 0),
        ([Verdict.FINISHED, Verdict.CRASHED], 2),
        ([Verdict.FINISHED, Verdict.BLIND], 3),
        ([Verdict.CRASHED, Verdict.BLIND], 2),
    ],
)
def test_how_the_runs_ended_is_the_exit_code(verdicts, code):
    rows = [Row(name=f"{n}", where="w", snapshot=shot(one)) for n, one in enumerate(verdicts)]
    assert worst_end(rows) == code
    lost = Row(name="lost", where="w", snapshot=shot(Verdict.FINISHED), trouble="no way")
    assert worst_end([lost]) == 3


def test_a_login_that_is_refused_is_tried_more_and_more_rarely():
    pauses: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            return len(pauses) >= 8

    runs = Runs("a")
    runs.refusals["a"] = LinkError("box-a: login refused")
    runs.fleet._stop = Stop()
    runs.fleet._watch(runs.fleet._runs[0])
    assert pauses == [60.0, 120.0, 240.0, 480.0, 900.0, 900.0, 900.0, 900.0]
