"""What a writer says comes out of the readers, while the run lives and after it."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from dflash_events import RunWriter
from dflash_events.reader import EventTail, events_path, open_beats, read_manifest
from dflash_watch.frame import BeatPage


def read_all(run_dir):
    manifest = read_manifest(run_dir).data
    with EventTail(events_path(run_dir, manifest)) as tail:
        return tail.read(2**24).events


def page_of(run_dir):
    with open_beats(run_dir, read_manifest(run_dir).data) as reader:
        return reader.read()


def until(true):
    end = time.monotonic() + 90
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def in_thread(work):
    """Run `work` as a worker would, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_the_page_of_a_living_run_has_exactly_the_shape_of_the_frames_beat_page(tmp_path, shm):
    with RunWriter(tmp_path / "run", shm=shm) as writer:

        def work():
            worker = writer.worker("target-0", role="target", index=0, device="cuda:0")
            worker.beat(step=7)
            worker.queue(3, 60)
            with worker.phase("tuning"), worker.waiting("lock", object="tune", on="target-1"):
                # The ticker's thread may need a moment for its first beat.
                until(lambda: page_of(tmp_path / "run")["ticker"] is not None)
                return page_of(tmp_path / "run")

        page = in_thread(work)
    record = msgspec.convert(page, BeatPage, strict=True)
    (worker,) = record.workers
    assert set(page) == set(BeatPage.__struct_fields__)
    assert set(page["workers"][0]) == set(worker.__struct_fields__)
    assert (worker.name, worker.role, worker.device) == ("target-0", "target", "cuda:0")
    assert (worker.step, worker.items, worker.phase) == (7, 1, "tuning")
    assert (worker.queue_depth, worker.queue_capacity) == (3, 60)
    assert (worker.wait, worker.wait_object, worker.waits_for) == ("lock", "tune", "target-1")
    assert not record.foreign
    assert record.ticker is not None


def test_events_come_out_in_order_with_their_keys(tmp_path, shm):
    run = tmp_path / "run"
    with RunWriter(run, total_steps=10, shm=shm) as writer, writer.phase("training", budget_s=9):
        writer.throughput(step=3, tokens_per_s=12.5)
        writer.autotune("chunk_fwd", edge="begin", key=[64, 128])
        writer.checkpoint(step=3, path="c/3", seconds=0.5, bytes=10)
        writer.quality(step=3, acceptance_length=4.5, estimate=5.0)
        writer.event("of-our-own", colour="red")
    events = read_all(run)
    assert [event["kind"] for event in events] == [
        "phase",
        "throughput",
        "autotune",
        "checkpoint",
        "quality",
        "of-our-own",
        "phase",
        "exit",
    ]
    assert [event["seq"] for event in events] == list(range(1, 9))
    assert events[1]["step"] == 3
    assert events[1]["total_steps"] == 10
    assert events[1]["loss"] is None
    assert (events[-1]["code"], events[-1]["reason"]) == (0, "done")


@pytest.mark.parametrize(
    ("raised", "code", "reason"),
    [
        (ValueError("wrong shape"), 1, "failed"),
        (KeyboardInterrupt(), 130, "stopped"),
        (SystemExit(75), 75, "stopped"),
        (SystemExit(0), 0, "done"),
        (SystemExit("no GPU here"), 1, "failed"),
    ],
)
def test_what_leaves_the_block_decides_the_exit_event(tmp_path, shm, raised, code, reason):
    with pytest.raises(type(raised)), RunWriter(tmp_path, shm=shm):
        raise raised
    last = read_all(tmp_path)[-1]
    assert (last["kind"], last["code"], last["reason"]) == ("exit", code, reason)
    if isinstance(raised, ValueError):
        assert last["message"] == "ValueError: wrong shape"


def test_an_explicit_exit_is_the_only_one(tmp_path, shm):
    with RunWriter(tmp_path, shm=shm) as writer:
        writer.exit(75, "stopped", "asked to stop at step 9")
        writer.exit(0, "done")
    exits = [event for event in read_all(tmp_path) if event["kind"] == "exit"]
    assert [(event["code"], event["message"]) for event in exits] == [
        (75, "asked to stop at step 9")
    ]


def test_a_failed_worker_is_announced_with_its_traceback_and_marked(tmp_path, shm):
    with RunWriter(tmp_path, shm=shm) as writer:
        worker = writer.worker("drafter-1", role="drafter")
        try:
            {}["no such kernel"]
        except KeyError as error:
            worker.failed(error)
        state = page_of(tmp_path)["workers"][0]["state"]
    event = next(event for event in read_all(tmp_path) if event["kind"] == "worker-failed")
    assert state == "failed"
    assert (event["worker"], event["role"]) == ("drafter-1", "drafter")
    assert (event["exception"], event["message"]) == ("KeyError", "'no such kernel'")
    assert "test_round_trip.py" in event["traceback"]


def test_a_number_that_is_not_finite_is_null_and_announced(tmp_path, shm):
    with RunWriter(tmp_path, shm=shm) as writer:
        writer.throughput(step=5, loss=float("nan"), memory=[{"device": "cpu", "x": float("inf")}])
    by_kind = {}
    for event in read_all(tmp_path):
        by_kind.setdefault(event["kind"], []).append(event)
    assert by_kind["throughput"][0]["loss"] is None
    assert [(event["step"], event["what"], event["value"]) for event in by_kind["numeric"]] == [
        (5, "loss", "nan"),
        (5, "memory.x", "inf"),
    ]


def test_the_final_page_is_kept_and_shared_memory_is_given_back(tmp_path, shm):
    with RunWriter(tmp_path, shm=shm) as writer:
        worker = writer.worker("main", role="main")
        worker.beat(step=41)
        worker.ended()
        assert len(list(shm.iterdir())) == 1
    assert list(shm.iterdir()) == []
    page = page_of(tmp_path)
    assert (page["workers"][0]["step"], page["workers"][0]["state"]) == (41, "ended")
    assert not page["foreign"]


def test_secrets_reach_neither_manifest_nor_events(tmp_path, shm):
    writer = RunWriter(
        tmp_path,
        config={"hub": {"hf_token": "swordfish-1"}, "pad_token": "<pad>", "max_tokens": 5},
        command=["train", "--api-key", "swordfish-2", "--wandb-token=swordfish-3", "--lr", "1"],
        shm=shm,
    )
    with writer:
        pass
    text = (tmp_path / "run.json").read_text() + (tmp_path / "events.jsonl").read_text()
    assert "swordfish" not in text
    manifest = json.loads((tmp_path / "run.json").read_text())
    assert manifest["config"] == {
        "hub": {"hf_token": "***"},
        "pad_token": "<pad>",
        "max_tokens": 5,
    }
    assert manifest["command"][-2:] == ["--lr", "1"]


def test_wait_shares_say_how_each_worker_spent_the_window(tmp_path, shm):
    with RunWriter(tmp_path, shm=shm) as writer:
        worker = writer.worker("drafter-0", role="drafter")
        writer.window_figures()
        with worker.waiting("queue-get"), worker.waiting("device"):
            threading.Event().wait(0.05)
        figures = writer.window_figures()
        shares = figures["wait_shares"]["drafter-0"]
    assert set(shares) == {"queue-get"}
    assert 0 < shares["queue-get"] <= 1
    assert figures["window_s"] >= 0.05


def test_heartbeats_name_step_and_state_of_each_worker(tmp_path, shm):
    with RunWriter(tmp_path, shm=shm, every_s=0.02) as writer:
        writer.worker("target-0", role="target").beat(step=15)
        writer.worker("drafter-0", role="drafter").beat(step=12)
        threading.Event().wait(0.2)
    beats = [event for event in read_all(tmp_path) if event["kind"] == "heartbeat"]
    assert beats[-1]["step"] == 12
    assert beats[-1]["workers"] == {"target-0": "running", "drafter-0": "running"}


def test_a_loader_that_runs_ahead_is_no_step_of_the_training(tmp_path, shm):
    with RunWriter(tmp_path, shm=shm, every_s=0.02) as writer:
        writer.worker("main", role="main")
        writer.worker("loader", role="loader").beat(step=4)
        writer.worker("drafter-0", role="drafter")
        threading.Event().wait(0.2)
    beats = [event for event in read_all(tmp_path) if event["kind"] == "heartbeat"]
    assert {each["step"] for each in beats} == {None}


def test_the_manifest_says_how_much_of_the_log_is_an_earlier_runs(tmp_path, shm):
    with RunWriter(tmp_path, shm=shm):
        assert read_manifest(tmp_path).data["log_start_bytes"] == 0
    (tmp_path / "train.log").write_text("target-0 failed\n")
    with RunWriter(tmp_path, shm=shm):
        assert read_manifest(tmp_path).data["log_start_bytes"] == 16


def test_the_manifest_names_each_worker_with_its_native_thread(tmp_path, shm):
    with RunWriter(tmp_path, shm=shm) as writer:
        tid = in_thread(
            lambda: (writer.worker("loader", role="loader", index=0), threading.get_native_id())[1]
        )
    (worker,) = read_manifest(tmp_path).data["workers"]
    assert (worker["name"], worker["role"], worker["index"]) == ("loader", "loader", 0)
    assert worker["native_tid"] == tid


def test_a_worker_thread_is_called_after_its_worker_in_the_kernel(tmp_path, shm):
    def work():
        writer.worker("drafter-with-a-long-name", role="drafter")
        return Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip()

    with RunWriter(tmp_path, shm=shm) as writer:
        assert in_thread(work) == "drafter-with-a-"


def test_an_event_of_the_users_own_cannot_overwrite_what_dates_and_numbers_it(tmp_path, shm):
    with RunWriter(tmp_path, shm=shm) as writer:
        writer.event("mine", seq=77, t="never", v=None, m=1)
    first = read_all(tmp_path)[0]
    assert (first["seq"], first["v"], first["kind"]) == (1, 1, "mine")
    assert first["t"] > 1e9


def test_a_signal_handler_may_end_the_run_in_the_middle_of_anything(tmp_path, shm):
    """The handler interrupts whatever the main thread does in the writer, its locks held or not."""
    with RunWriter(tmp_path, shm=shm) as writer:
        heard = []

        def handler(*_):
            heard.append(writer.worker(f"other-{len(heard)}"))
            writer.event("checkpoint", step=len(heard), path="c")
            heard[-1].failed(ValueError("from the handler"))

        before = signal.signal(signal.SIGALRM, handler)
        try:
            armed = 0
            while armed < 100:
                if len(heard) == armed:
                    signal.setitimer(signal.ITIMER_REAL, 0.0002 + armed * 0.000013)
                    armed += 1
                writer.worker("main", role="main").beat()
                writer.throughput(step=1)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    events = read_all(tmp_path)
    numbers = [event["seq"] for event in events]
    assert len(set(numbers)) == len(numbers)
    assert events[-1]["kind"] == "exit"


def test_a_resumed_run_begins_its_own_events_and_keeps_the_older_ones(tmp_path, shm):
    for number in range(3):
        with RunWriter(tmp_path, shm=shm) as writer:
            writer.checkpoint(step=number, path="c")
    steps = {}
    for path in sorted(tmp_path.glob("events*.jsonl")):
        with EventTail(path) as tail:
            events = tail.read().events
        assert [event["kind"] for event in events] == ["checkpoint", "exit"]
        steps[path.name] = events[0]["step"]
    assert steps == {"events-1.jsonl": 0, "events-2.jsonl": 1, "events.jsonl": 2}


def test_the_page_kept_by_an_earlier_run_is_foreign_to_the_next(tmp_path, shm):
    with RunWriter(tmp_path, shm=shm):
        pass
    manifest = read_manifest(tmp_path).data
    manifest["process"]["start_ticks"] += 1
    with open_beats(tmp_path, manifest) as reader:
        assert reader.read()["foreign"]


def test_the_events_file_is_open_from_the_start_so_that_the_run_can_be_found(tmp_path, shm):
    with RunWriter(tmp_path / "run", shm=shm):
        wanted = str(tmp_path / "run" / "events.jsonl")
        until(lambda: wanted in {os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()})
