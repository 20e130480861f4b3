"""The loop between a source of records, an engine and what is done with its snapshots."""

import threading

import msgspec
from dflash_watch.actions import Actions
from dflash_watch.frame import (
    Frame,
    LinkChange,
    LogSample,
    ProcessSample,
    Rung,
    RunSample,
    StackSample,
    ThreadStack,
    Tick,
    render_record,
)
from dflash_watch.journal import note_nothing
from dflash_watch.live import Live, is_over
from dflash_watch.model import (
    Board,
    Incident,
    IncidentStage,
    Severity,
    Snapshot,
    StackRequest,
    Verdict,
)

HEALTHY = Snapshot(
    t=0.0, run="r", verdict=Verdict.RUNNING, since_t=0.0, failure="healthy", summary="s"
)  # fmt: skip
READY = Incident(
    key="k", failure="f", subject="run", verdict=Verdict.STALLED, severity=Severity.CRITICAL,
    stage=IncidentStage.CONFIRMED, opened_t=1.0, ready=True,
)  # fmt: skip


class StoppedClock:
    """A clock that goes on only while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def wall_s(self) -> float:
        return 1_790_000_000.0 + self.now_s

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Script:
    """A source that plays records; None means that nothing comes for one poll."""

    def __init__(self, clock: StoppedClock, records: list) -> None:
        self.clock, self.records, self.asked = clock, list(records), []

    def get(self, timeout_s: float):
        if not self.records:
            raise EOFError
        record = self.records.pop(0)
        if record is None:
            self.clock.sleep(timeout_s)
        return record

    def request_stacks(self, pid: int, label: str, *, native: bool = False) -> None:
        self.asked.append((pid, label))

    def close(self) -> None:
        pass


class Echo:
    """An engine that remembers its records and answers with a prepared snapshot."""

    def __init__(self, **changes) -> None:
        self.records, self.changes = [], changes

    def advance(self, record):
        self.records.append(record)
        return msgspec.structs.replace(HEALTHY, t=record.t, **self.changes)


class Memory:
    """A keeper that writes nothing and can be told that it has written."""

    def __init__(self) -> None:
        self.seen, self.kept, self.paths = [], [], {}

    def see(self, record) -> None:
        self.seen.append(record)

    def keep(self, snapshot) -> None:
        self.kept.append(snapshot.incident.key)

    def path(self, key: str):
        return self.paths.get(key)

    def asked_path(self):
        return self.paths.get("asked")

    def is_settled(self, key: str) -> bool:
        return key in self.paths


def frame(seq: int = 1, state: str = "found", gone_s: float | None = None) -> Frame:
    run = RunSample(state=state, how="pid", gone_s=gone_s)
    return Frame(seq=seq, t=float(seq), boot_s=float(seq), run=run)


def play(records: list, engine: Echo, *, dry_run: bool = False, until=None, keeper=None):
    clock, shown, recorded = StoppedClock(), [], []
    source = Script(clock, records)
    actions = Actions(source, note_nothing, clock, dry_run=dry_run)
    live = Live(
        source, engine, clock, actions=actions, record=recorded.append,
        keeper=keeper,
    )  # fmt: skip
    live.attach(shown.append)
    live.run(threading.Event(), until)
    return live, shown, recorded, source


def test_a_second_of_silence_is_a_tick_for_the_engine():
    engine = Echo()
    play([frame(), *[None] * 11], engine)
    assert [type(record) for record in engine.records] == [Frame, Tick, Tick]


def test_records_that_keep_coming_leave_no_room_for_ticks():
    engine = Echo()
    play([frame(1), None, None, frame(2), None, None, frame(3)], engine)
    assert [type(record) for record in engine.records] == [Frame] * 3


def test_a_recording_holds_exactly_what_the_engine_saw_ticks_too():
    engine = Echo()
    _, shown, recorded, _ = play([frame(), *[None] * 6, frame(2)], engine)
    assert recorded == engine.records
    assert len(shown) == len(recorded)


def test_no_secret_in_a_record_gets_past_the_loop():
    secret = "hf_AbCdEfGhIjKlMnOpQrStUv0123"
    log = LogSample(path="t.log", via="fd 1", offset=0, text=f"step=1 password={secret}x\n")
    process = ProcessSample(
        pid=7, ppid=1, start_ticks=1, age_s=1.0, state="S", comm="python", cmd=f"--token {secret}"
    )  # fmt: skip
    thread = ThreadStack(tid=8, name=f"upload {secret}")
    said = msgspec.structs.replace(frame(), logs=(log,), processes=(process,))
    sample = StackSample(t=2.0, pid=7, label="A", tool="py-spy", threads=(thread,), raw=secret)
    engine, keeper = Echo(), Memory()
    _, _, recorded, _ = play([said, sample], engine, keeper=keeper)
    for seen in (engine.records, recorded, keeper.seen):
        assert len(seen) == 2
        assert secret.encode() not in b"".join(render_record(one) for one in seen)
    assert engine.records[0].logs[0].text == "step=1 password=***\n"


def test_a_snapshot_says_when_its_newest_frame_arrived_here():
    clock_start = StoppedClock().wall_s()
    _, shown, _, _ = play([LinkChange(t=0, state="up"), frame(), *[None] * 6], Echo())
    assert [one.received_t for one in shown] == [None, clock_start, clock_start]


def test_what_the_engine_wants_is_asked_for_once_until_it_comes():
    want = StackRequest(label="A", pid=7, reason="suspicion")
    sample = StackSample(t=3.0, pid=7, label="A", tool="py-spy")
    _, _, _, source = play([frame(1), frame(2), sample], Echo(wants=(want,)))
    assert source.asked == [(7, "A"), (7, "A")]


def test_a_snapshot_says_how_the_newest_stacks_were_taken():
    rungs = (Rung(tool="py-spy", outcome="none here"), Rung(tool="pystack", outcome="taken"))
    sample = StackSample(t=3.0, pid=7, label="A", tool="pystack", ladder=rungs)
    _, shown, _, _ = play([frame(1), sample, frame(2)], Echo())
    assert shown[0].stacks_way == ()
    assert shown[-1].stacks_way == (
        "sample A of pid 7 by pystack (non-blocking)", "passed over: py-spy: none here",
    )  # fmt: skip


def test_in_a_dry_run_the_engine_hears_that_nothing_was_taken():
    engine = Echo(wants=(StackRequest(label="A", pid=7, reason="suspicion"),))
    _, _, recorded, source = play([frame(1), frame(2)], engine, dry_run=True)
    (refusal,) = [one for one in recorded if isinstance(one, StackSample)]
    assert refusal.error == "not taken: --dry-run"
    assert source.asked == []


def test_a_ready_incident_is_kept_and_its_folder_shown_afterwards():
    keeper = Memory()
    _, shown, _, _ = play([frame(1)], Echo(incident=READY), keeper=keeper)
    keeper.paths["k"] = "/kept/k"
    _, later, _, _ = play([frame(2)], Echo(incident=READY), keeper=keeper)
    assert keeper.kept[0] == "k"
    assert [one.incident.path for one in (*shown, *later)] == [None, "/kept/k"]


def test_steps_name_the_incident_they_speak_of_once_its_folder_is_there():
    keeper, steps = Memory(), ("read stacks.diff.txt in the incident",)
    keeper.paths["k"] = "/kept/k"
    ours = Echo(incident=READY, failure="f", next=steps)
    _, shown, _, _ = play([frame(1)], ours, keeper=keeper)
    assert [one.next for one in shown] == [("read stacks.diff.txt in /kept/k",)]
    of_another = Echo(incident=READY, failure="g", next=steps)
    _, shown, _, _ = play([frame(1)], of_another, keeper=keeper)
    assert [one.next for one in shown] == [steps]


def test_an_incident_that_still_gathers_evidence_is_not_kept_yet():
    keeper = Memory()
    play([frame(1)], Echo(incident=msgspec.structs.replace(READY, ready=False)), keeper=keeper)
    assert keeper.kept == []


def test_a_finished_run_whose_processes_are_gone_is_over():
    live, shown, _, _ = play(
        [frame(1), frame(2, "gone", 0.5), frame(3)],
        Echo(verdict=Verdict.FINISHED),
        until=is_over,
    )
    assert len(shown) == 2
    assert live.snapshot.t == 2.0


def test_a_crashed_run_is_over_only_when_its_incident_is_on_disk():
    keeper = Memory()
    engine = Echo(verdict=Verdict.CRASHED, incident=READY)
    records = [frame(1, "gone", 6.0), frame(2, "gone", 7.0)]
    _, shown, _, _ = play(records, engine, until=is_over, keeper=keeper)
    assert len(shown) == 2
    keeper.paths["k"] = "/kept/k"
    _, shown, _, _ = play(records, engine, until=is_over, keeper=keeper)
    assert len(shown) == 1


def test_a_run_that_was_not_found_yet_is_not_over():
    _, shown, _, _ = play([frame(1, "none"), frame(2, "none")], Echo(), until=is_over)
    assert len(shown) == 2


def test_stacks_asked_for_by_a_person_are_those_of_the_main_process():
    clock = StoppedClock()
    source = Script(clock, [frame(1), frame(2)])
    actions = Actions(source, note_nothing, clock)
    live = Live(source, Echo(board=Board(pid=42)), clock, actions=actions)
    live.order({"op": "stacks"})
    live.run(threading.Event())
    assert source.asked == [(42, "asked")]


def test_a_person_who_quits_ends_the_loop_and_an_unknown_order_does_nothing():
    clock = StoppedClock()
    source = Script(clock, [frame(1), frame(2)])
    live = Live(source, Echo(), clock, actions=Actions(source, note_nothing, clock))
    live.order({"op": "dance"})
    live.order({"op": "quit"})
    live.run(threading.Event())
    assert len(source.records) == 2


def acknowledged(incident: Incident, order: dict) -> list[Incident]:
    """What is shown after an order that comes with the first record."""
    actions = Actions(None, note_nothing, StoppedClock())
    live = Live(
        Script(StoppedClock(), [frame(1), frame(2)]), Echo(incident=incident), StoppedClock(),
        actions=actions, keeper=Memory(),
    )  # fmt: skip
    shown = []
    live.attach(lambda snapshot: (shown.append(snapshot.incident), live.order(order)))
    live.run(threading.Event())
    return shown


def test_a_person_acknowledges_the_open_incident_and_no_other():
    before, after = acknowledged(READY, {"op": "acknowledge", "key": "k"})
    assert (before.acknowledged_t, after.acknowledged_t) == (None, StoppedClock().wall_s())
    assert acknowledged(READY, {"op": "acknowledge"})[1].acknowledged_t is not None
    assert acknowledged(READY, {"op": "acknowledge", "key": "old"})[1].acknowledged_t is None


def test_an_incident_that_is_over_needs_no_acknowledging():
    over = msgspec.structs.replace(READY, stage=IncidentStage.RESOLVED)
    assert acknowledged(over, {"op": "acknowledge", "key": "k"})[1].acknowledged_t is None
