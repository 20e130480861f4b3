"""Processes and threads in every state, made for real and seen through the probes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from dflash_watch.agent import proc
from dflash_watch.agent.look import MANY_THREADS_EVERY_S
from dflash_watch.agent.probes import threads as threads_module
from dflash_watch.agent.probes.processes import ProcessReader, read_rank
from dflash_watch.agent.probes.threads import (
    HELD_THREADS,
    ThreadReader,
    fair_share,
    run_delay_s,
)
from watch.agent.driving import state_of, wait_for

# A vfork parent waits in state D until its child ends: here the child sleeps.
D_STATE = """
import ctypes, sys, threading, time
library = ctypes.CDLL(sys.argv[1])
threading.Thread(target=library.hold, args=(60,), daemon=True).start()
print("up", flush=True)
time.sleep(1000)
"""
THOUSAND = """
import threading, time
threading.stack_size(65536)
for _ in range(1000):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("up", flush=True)
time.sleep(1000)
"""
HOLD = """
#include <unistd.h>
#include <sys/wait.h>
int hold(int seconds) {
    int child = vfork();
    if (child == 0) { sleep(seconds); _exit(0); }
    waitpid(child, 0, 0);
    return 0;
}
"""


def sample(pid: int) -> dict:
    found = ProcessReader("/proc").read(pid, proc.boot_s())
    assert found
    return found


@pytest.fixture
def d_state(program, tmp_path):
    """A Python program one of whose threads is in state D."""
    source = tmp_path / "hold.c"
    source.write_text(HOLD)
    library = tmp_path / "hold.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    run = program(D_STATE, str(library), stdout=subprocess.PIPE)
    run.stdout.readline()
    tasks = Path(f"/proc/{run.pid}/task")
    wait_for(lambda: any(thread_state(task) == "D" for task in tasks.iterdir()))
    yield run
    for task in tasks.iterdir():
        for child in (task / "children").read_text().split():
            os.kill(int(child), signal.SIGKILL)


def thread_state(task: Path) -> str:
    text = proc.read_text(f"{task}/stat") or "?) gone"
    return text.rpartition(")")[2].split()[0]


def test_a_stopped_process_is_t(program):
    run = program()
    run.send_signal(signal.SIGSTOP)
    wait_for(lambda: state_of(run.pid) == "T")
    assert sample(run.pid)["state"] == "T"


def test_a_zombie_shows_its_state_and_how_it_ended(program):
    run = program("raise SystemExit(3)", stderr=subprocess.DEVNULL)
    wait_for(lambda: state_of(run.pid) == "Z")
    found = sample(run.pid)
    assert (found["state"], found["exit_code"]) == ("Z", 3 << 8)


def test_a_thread_in_uninterruptible_sleep_is_d(d_state):
    threads, note = ThreadReader("/proc").read([d_state.pid], with_switches=False)
    states = [row[2] for row in threads[str(d_state.pid)]]
    assert note is None
    assert len(states) >= 2
    assert "D" in states


def test_a_process_that_has_gone_is_no_sample(program):
    run = program()
    reader = ProcessReader("/proc")
    assert reader.read(run.pid, proc.boot_s())
    run.kill()
    run.wait()
    assert reader.read(run.pid, proc.boot_s()) is None


def test_the_age_is_the_time_since_it_was_started(program):
    before = time.monotonic()
    run = program()
    wait_for(lambda: time.monotonic() - before > 0.5)
    age = sample(run.pid)["age_s"]
    assert 0.0 <= age <= time.monotonic() - before + 0.02


def test_an_age_that_cannot_be_is_unknown_and_not_a_number():
    assert proc.age_s(start_ticks=100 * proc.TICKS_PER_S, now_boot_s=50.0) is None
    assert proc.age_s(start_ticks=100 * proc.TICKS_PER_S, now_boot_s=160.5) == 60.5


@pytest.mark.parametrize("name", ["a) R (b 1", "(", "a\n) Z 1", "\x1b[31mred"])
def test_whatever_a_process_calls_itself_its_name_is_read_whole(program, name):
    text = (
        "import sys, time\nopen('/proc/self/comm', 'w').write(sys.argv[1])\n"
        "print('up', flush=True); time.sleep(60)"
    )
    run = program(text, name, stdout=subprocess.PIPE)
    run.stdout.readline()
    found = sample(run.pid)
    threads, note = ThreadReader("/proc").read([run.pid], with_switches=True)
    ((_tid, thread_name, state, *_rest),) = threads[str(run.pid)]
    assert (found["comm"], thread_name, note) == (name, name, None)
    assert found["state"] in "RS"
    assert state in "RS"


def test_threads_that_appear_and_end_are_followed(program):
    text = (
        "import sys, threading, time\n"
        "stop = threading.Event()\n"
        "for line in sys.stdin:\n"
        "    if line == 'more\\n':\n"
        "        for _ in range(5): threading.Thread(target=stop.wait).start()\n"
        "    else: stop.set(); time.sleep(0.3)\n"
        "    print('ok', flush=True)\n"
    )
    run = program(text, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    reader = ThreadReader("/proc")

    def count() -> int:
        return len(reader.read([run.pid], with_switches=False)[0][str(run.pid)])

    def say(word: bytes) -> None:
        run.stdin.write(word)
        run.stdin.flush()
        run.stdout.readline()

    assert count() == 1
    say(b"more\n")
    assert count() == 6
    say(b"end\n")
    wait_for(lambda: count() == 1)
    assert reader.held_threads == 1
    reader.close()


def test_a_busy_thread_is_told_from_one_that_sleeps_by_its_ticks(program):
    text = (
        "import threading, time\n"
        "threading.Thread(target=lambda: time.sleep(60), daemon=True).start()\n"
        "print('up', flush=True)\nwhile True: pass\n"
    )
    run = program(text, stdout=subprocess.PIPE)
    run.stdout.readline()
    reader = ThreadReader("/proc")
    key = str(run.pid)
    before = {row[0]: row[3] for row in reader.read([run.pid], with_switches=False)[0][key]}
    busy = wait_for(
        lambda: [
            row[0]
            for row in reader.read([run.pid], with_switches=False)[0][key]
            if row[3] - before[row[0]] > 5
        ]
    )
    assert busy == [run.pid]
    reader.close()


def test_a_thousand_threads_are_read_without_holding_their_descriptors(program):
    run = program(THOUSAND, stdout=subprocess.PIPE)
    run.stdout.readline()
    reader = ThreadReader("/proc")
    threads, note = reader.read([run.pid], with_switches=True)
    rows = threads[str(run.pid)]
    assert len(rows) == 1001 > HELD_THREADS
    assert note is None
    assert reader.held_threads == 0
    assert all(row[4] is not None for row in rows)


def test_threads_beyond_the_limit_are_the_newest_ones_and_are_counted(program, monkeypatch):
    monkeypatch.setattr(threads_module, "MAX_THREADS", 300)
    many, few = program(THOUSAND, stdout=subprocess.PIPE), program(name="few.py")
    many.stdout.readline()
    reader = ThreadReader("/proc")
    threads, note = reader.read([many.pid, few.pid], with_switches=False)
    rows = threads[str(many.pid)]
    assert reader.left_out == {str(many.pid): 1001 - len(rows)}
    assert "too many threads" in note
    assert sum(map(len, threads.values())) == 300
    assert rows[0][0] == many.pid
    assert str(few.pid) in threads


@pytest.mark.parametrize(
    ("counts", "room", "share"),
    [([3, 2], 10, 3), ([10, 2], 10, 8), ([10, 10], 10, 5), ([1, 9, 9], 9, 4), ([], 5, 0)],
)
def test_each_process_gets_a_fair_share_of_the_room(counts, room, share):
    assert fair_share(counts, room) == share


def test_a_thread_that_has_run_is_read_again_among_a_thousand(program):
    text = THOUSAND.replace(
        "time.sleep(1000)", "import sys; sys.stdin.readline()\nwhile True: pass"
    )
    run = program(text, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    run.stdout.readline()
    reader = ThreadReader("/proc")
    before = {row[0]: row for row in reader.read([run.pid], with_switches=True)[0][str(run.pid)]}
    run.stdin.write(b"go\n")
    run.stdin.flush()

    def busy() -> list[int]:
        rows = reader.read([run.pid], with_switches=True)[0][str(run.pid)]
        return [row[0] for row in rows if row[3] > before[row[0]][3] + 5]

    assert wait_for(busy) == [run.pid]


def test_threads_are_seen_with_hardly_any_descriptors_to_be_had(agent, program):
    run = program(THOUSAND.replace("1000)", "100)", 1), stdout=subprocess.PIPE)
    run.stdout.readline()
    watch = agent({"pid": run.pid}, prefix=("sh", "-c", 'ulimit -n 40 && exec "$@"', "sh"))
    frame = watch.frame(lambda frame: frame["seq"] >= 2)
    assert len(frame["threads"][str(run.pid)]) == frame["processes"][0]["num_threads"]
    assert {gap["source"] for gap in frame["gaps"]} <= {"gpu", "kernel"}


def test_a_thousand_threads_have_a_slower_pace_in_the_agent(agent, program):
    run = program(THOUSAND, stdout=subprocess.PIPE)
    run.stdout.readline()
    watch = agent({"pid": run.pid}, every_s=0.2)
    first = watch.frame()
    assert len(first["threads"][str(run.pid)]) == 1001
    assert first["processes"][0]["num_threads"] == 1001
    between = watch.frame(lambda frame: "threads" not in frame)
    assert between["processes"][0]["num_threads"] == 1001
    again = watch.frame(lambda frame: "threads" in frame)
    assert again["boot_s"] - first["boot_s"] > MANY_THREADS_EVERY_S - 0.2


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1"}, 3),
        ({"SLURM_PROCID": "5"}, 5),
        ({"RANK": "0", "SLURM_PROCID": "5"}, 0),
        ({"RANK": "gold"}, None),
        ({}, None),
    ],
)
def test_a_process_of_a_launcher_is_known_by_its_rank_and_nothing_else_of_its_environment(
    tmp_path, variables, rank
):
    folder = tmp_path / "7"
    folder.mkdir()
    entries = {"HF_TOKEN": "secret", **variables}
    (folder / "environ").write_bytes(
        b"".join(f"{name}={value}\0".encode() for name, value in entries.items())
    )
    assert read_rank(str(tmp_path), 7) == rank


def test_the_time_a_thread_waited_for_a_processor_grows_and_is_unknown_of_one_that_is_gone():
    pid = os.getpid()
    waited_s = run_delay_s("/proc", pid, pid)
    assert waited_s is None or waited_s >= 0.0
    assert run_delay_s("/proc", pid, 2**22 - 1) is None


def test_the_ticker_of_a_beat_page_gets_its_share_of_waiting(tmp_path):
    task = tmp_path / "7/task/9"
    task.mkdir(parents=True)
    (task / "schedstat").write_text("12345 2500000000 17\n")
    assert run_delay_s(str(tmp_path), 7, 9) == 2.5
    (task / "schedstat").write_text("12345\n")
    assert run_delay_s(str(tmp_path), 7, 9) is None
