"""The beat page: what is stored comes out, whole or not at all, and ages are on one clock."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from dflash_events import layout as at
from dflash_events.beat_reader import BeatReader, page_identity
from dflash_events.beats import BeatPage
from dflash_events.identity import read_identity
from dflash_events.schema import ROLES, WAITS, RunDirError
from dflash_events.ticker import Ticker
from dflash_events.worker import Worker
from hypothesis import example, given, settings
from hypothesis import strategies as st

HERE = read_identity()
ROOT = Path(__file__).parents[2]


def no_events(*_args, **_keys):
    """A worker's voice where nobody listens."""


def worker_on(page, name="target-0", role="target", device="cuda:0"):
    base = page.add_slot(name, role, device, threading.get_native_id())
    return Worker(page, base, no_events, name, role)


@pytest.fixture
def page(shm):
    return BeatPage(HERE, "test", shm)


NAMES = st.text(min_size=1, max_size=12).filter(lambda name: name.strip("\x00") == name)
COUNTS = st.integers(0, 2**62)


@settings(max_examples=60, deadline=None)
@given(
    name=NAMES,
    role=st.sampled_from(ROLES),
    step=st.none() | COUNTS,
    items=st.none() | COUNTS,
    queue=st.none() | st.tuples(COUNTS, COUNTS),
    wait=st.sampled_from(WAITS),
    thing=st.none() | NAMES,
)
def test_whatever_a_worker_stores_comes_out(name, role, step, items, queue, wait, thing):
    page = BeatPage(HERE, os.urandom(4).hex())
    try:
        worker = worker_on(page, name, role, None)
        worker.beat(step, items)
        if queue:
            worker.queue(*queue)
        with BeatReader(page.path, expect=HERE) as reader, worker.waiting(wait, object=thing):
            (seen,) = reader.read()["workers"]
    finally:
        page.unlink()
    short = at.decode_text(at.encode_text(name))
    assert (seen["name"], seen["role"], seen["device"]) == (short, role, None)
    assert (seen["step"], seen["items"]) == (step, 1 if items is None else items)
    assert (seen["queue_depth"], seen["queue_capacity"]) == (queue or (None, None))
    assert seen["wait"] == wait
    assert seen["wait_object"] == (thing and at.decode_text(at.encode_text(thing)))


@given(st.text())
def test_a_text_is_cut_between_characters(text):
    raw = at.encode_text(text)
    assert len(raw) <= at.TEXT_BYTES
    raw.decode("utf-8")


def test_before_the_first_beat_nothing_is_known(page):
    worker_on(page)
    with BeatReader(page.path) as reader:
        (seen,) = reader.read()["workers"]
    assert seen["step"] is seen["items"] is seen["progress_age_s"] is seen["wait_age_s"] is None
    assert (seen["wait"], seen["state"]) == ("none", "running")


def test_ages_are_differences_on_the_monotonic_clock(page):
    worker = worker_on(page)
    worker.beat(step=1)
    with BeatReader(page.path) as reader, worker.waiting("lock"):
        progress_ns = page.words[at.SLOTS_AT + at.S_PROGRESS_NS]
        wait_ns = page.words[at.SLOTS_AT + at.S_WAIT_NS]
        (seen,) = reader.read(now_ns=wait_ns + 2_500_000_000)["workers"]
    assert seen["wait_age_s"] == 2.5
    assert seen["progress_age_s"] == 2.5 + (wait_ns - progress_ns) / 1e9


def test_waiting_is_no_progress_and_waits_nest(page):
    worker = worker_on(page)
    with BeatReader(page.path) as reader:
        with worker.waiting("peer", on="drafter-1"):
            with worker.waiting("lock", object="tune"):
                worker.waits_on("target-1")
                inner = reader.read()["workers"][0]
            outer = reader.read()["workers"][0]
        after = reader.read()["workers"][0]
    assert (inner["wait"], inner["wait_object"], inner["waits_for"]) == ("lock", "tune", "target-1")
    assert (outer["wait"], outer["wait_object"], outer["waits_for"]) == ("peer", None, "drafter-1")
    assert (after["wait"], after["waits_for"], after["progress_age_s"]) == ("none", None, None)


def test_a_worker_without_a_phase_of_its_own_shows_the_runs(page):
    worker = worker_on(page)
    page.set_phase(page.text("training"))
    with BeatReader(page.path) as reader:
        assert reader.read()["workers"][0]["phase"] == "training"
        with worker.phase("tuning"):
            assert reader.read()["workers"][0]["phase"] == "tuning"
        assert reader.read()["workers"][0]["phase"] == "training"


def test_a_name_taken_again_by_a_new_thread_keeps_its_slot(page):
    worker = worker_on(page)
    worker.failed(ValueError("first life"))
    thread = threading.Thread(target=worker.begin_again)
    thread.start()
    thread.join()
    with BeatReader(page.path) as reader:
        (seen,) = reader.read()["workers"]
    assert seen["state"] == "running"
    assert seen["tid"] != threading.get_native_id()


def test_a_reader_in_another_process_never_sees_half_a_beat(page):
    """Step and items are always stored as equals; a torn read would show them different."""
    worker = worker_on(page)
    program = """
import sys
from dflash_events.beat_reader import BeatReader
last = -1
with BeatReader(sys.argv[1]) as reader:
    reader.read()  # before the beats begin: a look that meets a store reads as the look before
    print("ready", flush=True)
    for _ in range(5000):
        seen = reader.read()["workers"][0]
        assert seen["step"] == seen["items"], seen
        assert seen["step"] is None or seen["step"] >= last, (seen, last)
        last = last if seen["step"] is None else seen["step"]
print(last)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, page.path],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "dflash")},
    ) as process:
        assert process.stdout.readline() == "ready\n"
        step = 0
        while process.poll() is None:
            for _ in range(1000):
                worker.beat(step, step)
                step += 1
        assert process.returncode == 0
        assert int(process.stdout.read()) > 0


def test_a_slot_torn_for_ever_is_taken_as_it_stands(page):
    worker = worker_on(page)
    worker.beat(step=5)
    page.words[at.SLOTS_AT + at.S_BEGIN] += 1  # as a kill between two stores leaves it
    with BeatReader(page.path) as reader:
        (seen,) = reader.read()["workers"]
        assert reader.torn == 1
    assert seen["step"] == 5


def test_a_slot_torn_meanwhile_is_what_it_was_before(page):
    worker = worker_on(page)
    worker.beat(step=5, items=5)
    with BeatReader(page.path) as reader:
        reader.read()
        page.words[at.SLOTS_AT + at.S_BEGIN] += 1
        page.words[at.SLOTS_AT + at.S_STEP] = 6
        (seen,) = reader.read()["workers"]
    assert (seen["step"], seen["items"]) == (5, 5)


def test_a_retry_takes_the_slot_once_it_is_whole(page):
    worker = worker_on(page)
    worker.beat(step=5)

    class Heals(BeatReader):
        reads = 0

        def _words(self, start, count):
            self.reads += 1
            if self.reads == 5:  # header, header again, texts, slots; then the retry
                page.words[at.SLOTS_AT + at.S_BEGIN] -= 1
            return super()._words(start, count)

    with Heals(page.path) as reader:
        page.words[at.SLOTS_AT + at.S_BEGIN] += 1
        (seen,) = reader.read()["workers"]
        assert reader.torn == 0
    assert seen["step"] == 5


def test_the_ticker_counts_and_says_how_late_it_was(page):
    ticker = Ticker(page, every_s=0.005)
    ticker.start()
    with BeatReader(page.path) as reader:
        while (reader.read()["ticker"] or {"beats": 0})["beats"] < 3:
            threading.Event().wait(0.005)
        ticker.stop()
        seen = reader.read()["ticker"]
    assert 0 <= seen["late_s"] <= seen["max_late_s"]
    assert seen["age_s"] >= 0


def test_a_page_says_who_wrote_it(page):
    assert page_identity(page.path) == HERE


@settings(max_examples=200, deadline=None)
@given(
    data=st.binary(max_size=2000),
    keep=st.sampled_from([16, 8 * at.TEXTS_AT, 8 * at.SLOTS_AT]) | st.integers(0, 60_000),
)
@example(data=b"\xff" * 2000, keep=16)
@example(data=b"\x7f" * 2000, keep=16)
@example(data=b"\x7f" * 2000, keep=8 * at.SLOTS_AT)
def test_rubbish_in_a_pages_place_is_refused_or_read_but_never_breaks_the_reader(
    tmp_path_factory, data, keep
):
    page = BeatPage(HERE, os.urandom(4).hex())
    try:
        worker_on(page)
        whole = page.bytes_now()
    finally:
        page.unlink()
    path = tmp_path_factory.getbasetemp() / "beats"
    damaged = bytearray(whole[:keep] + data + whole[keep + len(data) :])
    for content in (data, whole[:keep], bytes(damaged)):
        path.write_bytes(content)
        try:
            with BeatReader(path) as reader:
                assert isinstance(reader.read()["workers"], list)
        except RunDirError as error:
            refused = str(error)
            assert refused.startswith(f"beat page {path}")


def test_a_page_of_a_newer_layout_is_refused_with_the_next_step(page):
    page.words[at.H_SCHEMA] = 2
    with pytest.raises(RunDirError, match=r"layout 2.*as new as the trainer"):
        BeatReader(page.path)


def test_texts_without_end_do_not_break_a_worker(page):
    worker = worker_on(page)
    with BeatReader(page.path) as reader:
        for number in range(2 * at.TEXTS):
            with worker.waiting("io", object=f"file {number}"):
                seen = reader.read()["workers"][0]
    assert (seen["wait"], seen["wait_object"]) == ("io", None)
    assert seen["name"] == "target-0"
