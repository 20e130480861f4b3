"""Logs of real processes: renamed, deleted, copied and truncated, piped, redirected, rewritten."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest
from dflash_watch.agent.logcursor import CHUNK_BYTES, Cursor
from dflash_watch.agent.logsources import Source, SourceFinder, is_unbuffered
from dflash_watch.agent.probes.logs import LogReader
from dflash_watch.frame import LogSample
from dflash_watch.readers.facts import StepSeen
from dflash_watch.readers.logtext import LogReader as TextReader
from watch.agent.driving import wait_for

WRITER = """
import os, sys
for line in sys.stdin:
    sys.stdout.write(line.rstrip("\\n").encode().decode("unicode_escape"))
    sys.stdout.flush()
    os.write(2, b".")
"""


class Writer:
    """A real process that writes to its standard output what a test tells it."""

    def __init__(self, command: list[str], stdout: int | None, **options: object) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            **options,  # type: ignore[call-overload]  # any of Popen's own
        )

    def say(self, text: str) -> None:
        assert self.process.stdin
        assert self.process.stderr
        self.process.stdin.write(text.encode("unicode_escape").decode() + "\n")
        self.process.stdin.flush()
        self.process.stderr.read(1)  # it has written

    def end(self) -> None:
        for stream in (self.process.stdin, self.process.stderr):
            assert stream
            stream.close()
        self.process.wait(60)


class Watch:
    """What the agent sees of the logs of some processes, look by look."""

    def __init__(self, *pids: int, watched: str | None = None, asked: bool = False) -> None:
        self.pids, self.watched, self.asked = list(pids), watched, asked
        self.finder, self.reader = SourceFinder("/proc"), LogReader("/proc")

    def look(self) -> list[dict]:
        sources = [
            each for each in self.finder.read(self.pids, time.monotonic()) if each.via != "fd 2"
        ]
        return self.reader.read(sources, self.watched, time.time(), asked=self.asked)


@pytest.fixture
def writer(tmp_path):
    started = []

    def start(log: Path, mode: str = "wb") -> Writer:
        with log.open(mode) as file:
            started.append(Writer([sys.executable, "-c", WRITER], file.fileno()))
        return started[-1]

    yield start
    for each in started:
        each.end()


def test_new_text_comes_once_with_its_place(writer, tmp_path):
    run = writer(tmp_path / "a.log")
    watch = Watch(run.process.pid)
    run.say("one\n")
    first = watch.look()[0]
    run.say("two\nthree\n")
    second = watch.look()[0]
    assert (first["text"], first["offset"]) == ("one\n", 0)
    assert (second["text"], second["offset"], second["newlines"]) == ("two\nthree\n", 4, 2)
    assert "text" not in watch.look()[0]
    assert second["path_state"] == "same"
    assert second["pos_bytes"] == second["size_bytes"] == 14


def test_an_empty_log_has_a_size_and_it_is_zero(writer, tmp_path):
    run = writer(tmp_path / "a.log")
    sample = Watch(run.process.pid).look()[0]
    assert (sample["size_bytes"], sample["pos_bytes"]) == (0, 0)
    assert "deleted" not in sample


def test_a_renamed_log_is_followed_and_named(writer, tmp_path):
    log = tmp_path / "a.log"
    run = writer(log)
    watch = Watch(run.process.pid)
    run.say("one\n")
    watch.look()
    log.rename(tmp_path / "a.log.1")
    run.say("two\n")
    sample = watch.look()[0]
    assert sample["text"] == "two\n"
    assert sample["path"] == str(tmp_path / "a.log.1")
    assert (sample["watched_path"], sample["path_state"]) == (str(log), "moved")


def test_a_file_put_in_place_of_the_log_is_another_file(writer, tmp_path):
    log = tmp_path / "a.log"
    run = writer(log)
    watch = Watch(run.process.pid, watched=str(log))
    run.say("one\n")
    watch.look()
    log.rename(tmp_path / "a.log.1")
    log.write_text("I am new here\n")
    run.say("two\n")
    samples = watch.look()
    assert (samples[0]["text"], samples[0]["path_state"]) == ("two\n", "other-file")
    assert samples[0]["watched_path"] == str(log)
    assert [each["via"] for each in samples] == ["fd 1", "option"]
    assert samples[1]["text"] == "I am new here\n"


def test_a_deleted_log_is_still_read(writer, tmp_path):
    log = tmp_path / "a.log"
    run = writer(log)
    watch = Watch(run.process.pid, watched=str(log))
    run.say("one\n")
    watch.look()
    log.unlink()
    run.say("two\n")
    sample = watch.look()[0]
    assert (sample["text"], sample["deleted"], sample["path_state"]) == ("two\n", True, "deleted")
    assert sample["path"] == str(log)


def test_copied_and_truncated_without_append_leaves_a_hole_that_is_skipped(writer, tmp_path):
    log = tmp_path / "a.log"
    run = writer(log)
    watch = Watch(run.process.pid)
    run.say("x" * 9000 + "\n")
    watch.look()
    shutil.copy(log, tmp_path / "a.log.1")
    os.truncate(log, 0)
    run.say("after\n")
    sample = watch.look()[0]
    assert log.read_bytes()[:1] == b"\0"
    assert (sample["text"], sample["truncated"], sample["append"]) == ("after\n", True, False)
    run.say("more\n")
    later = watch.look()[0]
    assert (later["text"], later.get("truncated", False)) == ("more\n", False)


def test_copied_and_truncated_with_append_is_read_from_its_new_beginning(writer, tmp_path):
    log = tmp_path / "a.log"
    run = writer(log, "ab")
    watch = Watch(run.process.pid)
    run.say("x" * 9000 + "\n")
    watch.look()
    os.truncate(log, 0)
    run.say("after\n")
    sample = watch.look()[0]
    assert (sample["text"], sample["truncated"], sample["append"]) == ("after\n", True, True)
    assert sample["offset"] == 0


def test_a_log_that_nobody_writes_as_asked_is_shown_beside_the_real_one(writer, tmp_path):
    run = writer(tmp_path / "real.log")
    wrong = tmp_path / "wrong.log"
    watch = Watch(run.process.pid, watched=str(wrong), asked=True)
    run.say("here\n")
    sample = watch.look()[0]
    assert (sample["text"], sample["path_state"], sample["watched_path"]) == (
        "here\n",
        "missing",
        str(wrong),
    )


def test_a_log_that_run_json_names_and_nobody_has_open_accuses_no_other_file(writer, tmp_path):
    run = writer(tmp_path / "stdout.txt")
    named = tmp_path / "train.log"
    watch = Watch(run.process.pid, watched=str(named))
    run.say("here\n")
    assert watch.look()[0]["path_state"] == "same"
    named.write_text("and there\n")
    samples = watch.look()
    assert [sample["path_state"] for sample in samples] == ["same", "same"]
    assert samples[1]["text"] == "and there\n"


def test_a_nameless_temporary_file_is_no_log(tmp_path):
    with tempfile.TemporaryFile(dir=tmp_path) as nameless:
        text = "import time; time.sleep(60)"
        run = subprocess.Popen([sys.executable, "-c", text], stdout=nameless, stderr=nameless)
    try:
        assert SourceFinder("/proc").read([run.pid], 0.0) == []
    finally:
        run.kill()
        run.wait()


def test_a_progress_bar_is_counted_by_its_returns(writer, tmp_path):
    run = writer(tmp_path / "a.log")
    watch = Watch(run.process.pid)
    run.say("\r 1%|#  |\r 2%|#  |")
    sample = watch.look()[0]
    assert (sample["carriage_returns"], sample.get("newlines", 0)) == (2, 0)


def test_a_pipe_to_tee_is_followed_to_the_file_that_tee_writes(tmp_path):
    log = tmp_path / "tee.log"
    reading, writing = os.pipe()
    tee = subprocess.Popen(["tee", str(log)], stdin=reading, stdout=subprocess.DEVNULL)
    run = Writer([sys.executable, "-c", WRITER], writing)
    os.close(reading)
    os.close(writing)
    try:
        wait_for(log.exists)
        watch = Watch(run.process.pid)
        run.say("through\n")
        wait_for(lambda: log.read_text() == "through\n")
        sample = watch.look()[0]
        assert sample["path"] == str(log)
        assert sample["text"] == "through\n"
        assert sample["via"] == f"pipe -> tee({tee.pid})"
    finally:
        run.end()
        tee.wait(60)


LAUNCHER = """
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
print(worker.pid, flush=True)
for line in worker.stdout:
    sys.stdout.buffer.write(b"[rank0]: " + line)
    sys.stdout.flush()
"""


def test_what_a_launcher_collects_from_its_workers_is_read_from_its_own_output(program, tmp_path):
    worker = "import time; print('step=1', flush=True); time.sleep(60)"
    log = tmp_path / "all.log"
    with log.open("wb") as file:
        run = program(LAUNCHER, worker, name="torchrun", stdout=file)
    wait_for(lambda: "step=1" in log.read_text())
    pid = int(log.read_text().split()[0])
    try:
        source = SourceFinder("/proc").read([pid], 0.0)[0]
        assert source.path == str(log)
        assert source.via.startswith("pipe -> ")
        assert source.via.endswith(f"({run.pid})")
    finally:
        os.kill(pid, 9)


def test_two_descriptors_on_one_file_are_one_log(tmp_path):
    with (tmp_path / "both.log").open("wb") as log:
        text = "import sys, time; print('x', flush=True); time.sleep(60)"
        run = subprocess.Popen([sys.executable, "-c", text], stdout=log, stderr=log)
    try:
        wait_for(lambda: (tmp_path / "both.log").stat().st_size)
        sources = SourceFinder("/proc").read([run.pid], 0.0)
        samples = LogReader("/proc").read(sources, None, time.time())
        assert [sample["via"] for sample in samples] == ["fd 1"]
    finally:
        run.kill()
        run.wait()


def test_a_log_file_opened_by_the_program_itself_is_found(tmp_path):
    log = tmp_path / "own.log"
    text = f"import time; f = open({str(log)!r}, 'w'); f.write('mine'); f.flush(); time.sleep(60)"
    run = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: log.exists() and log.stat().st_size)
        sources = SourceFinder("/proc").read([run.pid], 0.0)
        assert str(log) in [source.path for source in sources]
    finally:
        run.kill()
        run.wait()


def test_the_last_words_of_a_process_are_read_after_its_end(writer, tmp_path):
    log = tmp_path / "a.log"
    run = writer(log)
    watch = Watch(run.process.pid)
    run.say("one\n")
    watch.look()
    run.say("Traceback (most recent call last):\n")
    run.process.kill()
    run.process.wait()
    assert watch.look()[0]["text"] == "Traceback (most recent call last):\n"


def test_more_than_a_frame_holds_is_skipped_and_counted(writer, tmp_path):
    log = tmp_path / "a.log"
    run = writer(log)
    watch = Watch(run.process.pid)
    run.say("one\n")
    watch.look()
    with log.open("ab") as file:
        file.write(b"y" * (CHUNK_BYTES + 1000))
    sample = watch.look()[0]
    assert sample["skipped_bytes"] == 1000
    assert len(sample["text"]) == CHUNK_BYTES


def test_the_end_of_a_log_of_two_gigabytes_is_read_and_nothing_else(writer, tmp_path):
    log = tmp_path / "a.log"
    log.touch()
    os.truncate(log, 2 << 30)
    run = writer(log, "ab")
    watch = Watch(run.process.pid)
    run.say("step=9 loss=0.5\n")
    first = watch.look()[0]
    run.say("step=10 loss=0.4\n")
    second = watch.look()[0]
    assert first["text"] == "step=9 loss=0.5\n"
    assert second["text"] == "step=10 loss=0.4\n"
    assert second["offset"] == (2 << 30) + len("step=9 loss=0.5\n")
    assert "truncated" not in second


def test_a_flood_of_lines_is_counted_to_the_byte_and_tells_true_steps_only(program, tmp_path):
    # Steps end in 7 only: a line that was cut anywhere would show as another number.
    text = (
        "import os\n"
        "for n in range(40000):\n"
        "    if n % 50: os.write(1, b'fetched shard-%07d ok at offset %07d\\n' % (n, n))\n"
        "    else: os.write(1, b'step=1%05d7 loss=0.%04d\\n' % (n // 50, n % 9973))\n"
    )
    log = tmp_path / "flood.log"
    with log.open("wb") as file:
        run = program(text, stdout=file)
    watch, reader = Watch(run.pid), TextReader()
    steps, read = [], 0
    wait_for(lambda: log.stat().st_size)
    begin = watch.look()[0]
    skipped = begin["offset"] + begin["text_bytes"]
    while read + skipped < log.stat().st_size or run.poll() is None:
        for look in watch.look():
            sample = msgspec.convert(look, LogSample)
            facts = reader.feed(sample, 0.0)
            steps += [one.step for one in facts if isinstance(one, StepSeen) and one.step]
            skipped += sample.skipped_bytes
            read += sample.text_bytes or 0
        time.sleep(0.05)
    assert read + skipped == log.stat().st_size
    assert steps == sorted(steps)
    assert steps[-1] == 1007997
    assert {step % 10 for step in steps} == {7}


def test_a_character_cut_in_two_waits_for_its_rest(tmp_path):
    log = tmp_path / "a.log"
    whole = "100%|█|".encode()
    log.write_bytes(whole[:-2])
    descriptor = os.open(log, os.O_RDONLY)
    try:
        cursor = Cursor()
        first = cursor.read(descriptor, log.stat().st_size, 65536)
        log.write_bytes(whole)
        second = cursor.read(descriptor, log.stat().st_size, 65536)
        assert first["text"] + second["text"] == "100%|█|"
    finally:
        os.close(descriptor)


def test_bytes_that_are_no_text_are_replaced(tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(b"\xff\xfe\x1b[31mred\n")
    descriptor = os.open(log, os.O_RDONLY)
    try:
        text = Cursor().read(descriptor, log.stat().st_size, 65536)["text"]
        assert text == "\ufffd\ufffd\x1b[31mred\n"
    finally:
        os.close(descriptor)


def test_a_successor_goes_on_where_a_lost_child_stopped(writer, tmp_path):
    run = writer(tmp_path / "a.log")
    watch = Watch(run.process.pid)
    run.say("one\n")
    watch.look()
    successor = Watch(run.process.pid)
    successor.reader.restore(watch.reader.state())
    run.say("two\n")
    assert successor.look()[0]["text"] == "two\n"


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ([], {}, False),
        (["-u"], {}, True),
        (["-Bu"], {}, True),
        ([], {"PYTHONUNBUFFERED": "1"}, True),
        ([], {"PYTHONUNBUFFERED": ""}, False),
    ],
)
def test_unbuffered_is_read_from_the_start_of_the_process(arguments, environment, expected):
    base = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    text = "print('up', flush=True); import time; time.sleep(60)"
    run = subprocess.Popen(
        [sys.executable, *arguments, "-c", text],
        env={**base, **environment},
        stdout=subprocess.PIPE,
    )
    try:
        assert run.stdout
        run.stdout.readline()
        assert is_unbuffered("/proc", run.pid) is expected
    finally:
        run.kill()
        run.wait()
        assert run.stdout
        run.stdout.close()


@pytest.mark.parametrize(
    ("link", "kind"),
    [
        ("/data/train.log", "file"),
        ("/data/train.log (deleted)", "file"),
        ("pipe:[123]", "pipe"),
        ("socket:[9]", "socket"),
        ("/dev/pts/3", "tty"),
        ("/dev/null", "null"),
        ("anon_inode:[eventpoll]", "other"),
    ],
)
def test_what_a_descriptor_points_at_is_told_by_its_link(link, kind):
    assert Source(1, 1, link, "fd 1", None, None, 1).kind == kind


def test_an_unbuffered_start_says_nothing_of_files_that_the_program_opens(agent, program, tmp_path):
    text = (
        "import sys, time\n"
        f"log = open({str(tmp_path / 'own.log')!r}, 'w')\n"
        "print('step 1', flush=True); log.write('step 1\\n'); log.flush()\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (tmp_path / "out.log").open("wb") as out:
        run = program(text, stdout=out, env=environment)
    frame = agent({"pid": run.pid}).frame(lambda frame: len(frame.get("logs") or ()) == 2)
    told = {Path(log["path"]).name: log.get("unbuffered") for log in frame["logs"]}
    assert told == {"out.log": True, "own.log": None}
