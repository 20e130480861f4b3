"""Which run is meant: by directory, pid, pattern, log, tmux, or the newest that trains."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dflash_watch.agent import proc
from dflash_watch.agent import run as run_module
from dflash_watch.agent.find import SEVERAL, Found, find_run
from dflash_watch.agent.memory import read_argv
from dflash_watch.agent.probes.processes import ProcessReader
from dflash_watch.agent.run import SUCCESSOR_AFTER_S, RunView
from dflash_watch.agent.rundir import boot_id, find_run_dir
from dflash_watch.agent.stub import ENTRY_SCRIPT, STUB
from dflash_watch.agent.suspects import judge
from dflash_watch.agent.table import RunTree, is_ours
from watch.agent.driving import wait_for

NOBODY = 0
"""An agent pid under which nothing is hidden."""


def write_manifest(run_dir: Path, pid: int, **keys: object) -> None:
    stat = proc.read_stat("/proc", pid)
    identity = {
        "pid": pid,
        "start_ticks": stat.start_ticks if stat else 1,
        "boot_id": boot_id("/proc"),
    }
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "run.json").write_text(
        json.dumps({"schema": 1, "name": run_dir.name, "process": identity, **keys})
    )


def found(target: dict) -> Found:
    answer = find_run("/proc", target, NOBODY)
    assert isinstance(answer, Found), answer
    return answer


def test_a_run_directory_names_its_process(trainer, tmp_path):
    write_manifest(tmp_path / "a", trainer.pid)
    answer = found({"run_dir": str(tmp_path / "a")})
    assert (answer.how, answer.root_pid, answer.name) == ("run-dir", trainer.pid, "a")


def test_a_folder_of_runs_gives_the_newest(trainer, tmp_path):
    for place, name in enumerate(("old", "new")):
        write_manifest(tmp_path / "runs" / name, trainer.pid)
        os.utime(tmp_path / "runs" / name / "run.json", (1000 + place, 1000 + place))
    assert find_run_dir(str(tmp_path / "runs")) == str(tmp_path / "runs" / "new")
    assert "newest run in" in str(found({"run_dir": str(tmp_path / "runs")}).note)


def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path):
    answer = find_run("/proc", {"run_dir": str(tmp_path)}, NOBODY)
    assert (
        answer == f"not a run directory: {tmp_path} holds no run.json, nor does a directory in it"
    )


def test_the_leftover_of_a_dead_run_is_found_without_its_process(trainer, tmp_path):
    write_manifest(tmp_path / "a", trainer.pid)
    manifest = json.loads((tmp_path / "a" / "run.json").read_text())
    manifest["process"]["start_ticks"] += 1
    (tmp_path / "a" / "run.json").write_text(json.dumps(manifest))
    answer = found({"run_dir": str(tmp_path / "a")})
    assert answer.root_pid is None
    assert "is not there" in str(answer.note)


def test_a_run_of_another_boot_is_not_taken_for_a_living_one(trainer, tmp_path):
    write_manifest(tmp_path / "a", trainer.pid)
    manifest = json.loads((tmp_path / "a" / "run.json").read_text())
    manifest["process"]["boot_id"] = "00000000-0000-0000-0000-000000000000"
    (tmp_path / "a" / "run.json").write_text(json.dumps(manifest))
    assert found({"run_dir": str(tmp_path / "a")}).root_pid is None


def test_a_pid_that_is_not_there_is_refused(tmp_path):
    assert find_run("/proc", {"pid": 4_194_000}, NOBODY) == "no process 4194000 here"


def test_a_pid_that_is_no_python_is_named(program):
    sleep = subprocess.Popen(["sleep", "60"])
    try:
        answer = find_run("/proc", {"pid": sleep.pid}, NOBODY)
        assert answer == (
            f"pid {sleep.pid} (sleep) is not a Python process, and no Python runs below it"
        )
    finally:
        sleep.kill()
        sleep.wait()


def test_a_shell_that_only_waits_says_where_the_work_is():
    text = f"{sys.executable} -c 'import time; time.sleep(60)'; true"
    shell = subprocess.Popen(["/bin/sh", "-c", text])
    try:
        children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children")
        child = wait_for(lambda: children.read_text().split())[0]
        wait_for(lambda: "python" in (proc.read_link(f"/proc/{child}/exe") or ""))
        assert f"the work is in pid {child}" in str(found({"pid": shell.pid}).note)
    finally:
        subprocess.run(["kill", child, str(shell.pid)], check=True)
        shell.wait()


def test_a_shell_above_several_programs_is_refused_and_they_are_listed():
    sleep = f"{sys.executable} -c 'import time; time.sleep(60)'"
    shell = subprocess.Popen(["/bin/sh", "-c", f"{sleep} one & {sleep} two & wait"])
    children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children")
    below: list[str] = []
    try:
        wait_for(lambda: len(children.read_text().split()) == 2)
        below = children.read_text().split()
        for child in below:
            wait_for(lambda child=child: "python" in (proc.read_link(f"/proc/{child}/exe") or ""))
        answer = find_run("/proc", {"pid": shell.pid}, NOBODY)
        assert isinstance(answer, str)
        assert SEVERAL in answer
        assert all(f"{child} (" in answer for child in below)
        assert len(answer.splitlines()) == 1
        assert found({"pid": int(below[0])}).root_pid == int(below[0])
    finally:
        subprocess.run(["kill", *below, str(shell.pid)], check=True)
        shell.wait()


def test_a_shell_above_several_workers_of_one_program_is_that_program():
    sleep = f"{sys.executable} -c 'import time; time.sleep(60)' same"
    shell = subprocess.Popen(["/bin/sh", "-c", f"{sleep} & {sleep} & wait"])
    children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children")
    below: list[str] = []
    try:
        wait_for(lambda: len(children.read_text().split()) == 2)
        below = children.read_text().split()
        for child in below:
            wait_for(lambda child=child: "python" in (proc.read_link(f"/proc/{child}/exe") or ""))
        assert found({"pid": shell.pid}).root_pid == shell.pid
    finally:
        subprocess.run(["kill", *below, str(shell.pid)], check=True)
        shell.wait()


def test_a_pattern_finds_the_topmost_process_that_fits(program):
    inner = "import time; time.sleep(60) # qqzz"
    text = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    run = program(text, "qqzz", name="qqzz_launch.py")
    wait_for(lambda: len(Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()) == 1)
    child = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()[0]
    try:
        assert found({"match": "qqzz"}).root_pid == run.pid
    finally:
        os.kill(int(child), 9)


def test_a_broken_pattern_is_refused():
    assert "not a regular expression" in str(find_run("/proc", {"match": "("}, NOBODY))


def test_a_log_leads_to_the_process_that_writes_it(trainer, tmp_path):
    assert found({"log": str(tmp_path / "train.log")}).root_pid == trainer.pid


def test_a_log_that_was_renamed_or_deleted_still_leads_there(trainer, tmp_path):
    (tmp_path / "train.log").rename(tmp_path / "train.log.1")
    assert found({"log": str(tmp_path / "train.log.1")}).root_pid == trainer.pid
    (tmp_path / "train.log.1").unlink()
    assert found({"log": str(tmp_path / "train.log.1")}).root_pid == trainer.pid


def test_a_log_behind_a_pipe_leads_to_the_trainer_not_to_tee(program, tmp_path):
    log = tmp_path / "piped.log"
    run = program(stdout=subprocess.PIPE)
    tee = subprocess.Popen(["tee", str(log)], stdin=run.stdout, stdout=subprocess.DEVNULL)
    try:
        wait_for(log.exists)
        answer = found({"log": str(log)})
        assert answer.root_pid == run.pid
        assert str(tee.pid) in str(answer.note)
    finally:
        tee.kill()
        tee.wait()


def test_a_log_without_a_writer_is_still_a_log(tmp_path):
    (tmp_path / "old.log").write_text("done\n")
    answer = found({"log": str(tmp_path / "old.log")})
    assert answer.root_pid is None
    assert "no process has" in str(answer.note)


def test_nothing_at_all_is_said_in_words(tmp_path):
    assert "no file" in str(find_run("/proc", {"log": str(tmp_path / "nothing.log")}, NOBODY))


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_tmux_session_leads_to_what_runs_in_its_front(tmp_path, monkeypatch):
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    script = tmp_path / "inner.py"
    script.write_text("import time\nprint('hello from the pane', flush=True)\ntime.sleep(60)\n")
    new = ["tmux", "new-session", "-d", "-s", "dflash-test", f"{sys.executable} {script}"]
    subprocess.run(new, check=True, timeout=90)
    try:
        pid = found({"tmux": "dflash-test"}).root_pid
        assert pid is not None
        wait_for(lambda: str(script) in " ".join(read_argv("/proc", pid)))
        assert "no tmux session other" in str(find_run("/proc", {"tmux": "other"}, NOBODY))
    finally:
        subprocess.run(["tmux", "kill-server"], check=True, timeout=90)


def test_a_process_with_a_run_directory_open_beats_one_that_only_looks_like_training(
    program, tmp_path
):
    write_manifest(tmp_path / "run", os.getpid())
    events = str(tmp_path / "run" / "events.jsonl")
    text = f"import time; f = open({events!r}, 'a'); print(1, flush=True); time.sleep(60)"
    emitting = program(text, name="anything.py", stdout=subprocess.PIPE)
    emitting.stdout.readline()
    looking = program("import time; time.sleep(60)", name="train_later.py")
    wait_for(lambda: "train_later.py" in " ".join(read_argv("/proc", looking.pid)))
    judged = {
        pid: judge("/proc", proc.read_stat("/proc", pid), read_argv("/proc", pid))
        for pid in (emitting.pid, looking.pid)
    }
    assert judged[emitting.pid].score > judged[looking.pid].score > 0
    assert judged[emitting.pid].why == "has a run directory open"


def test_tools_shells_and_watchdogs_are_no_suspects():
    stat = proc.read_stat("/proc", os.getpid())
    assert judge("/proc", stat, [sys.executable, "-m", "pytest", "tests/train"]) is None


def test_orphans_stay_in_the_tree_after_their_parent_has_died(program):
    text = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(p.pid, flush=True)\ntime.sleep(60)\n"
    )
    run = program(text, stdout=subprocess.PIPE)
    child = int(run.stdout.readline())
    try:
        tree = RunTree("/proc", run.pid, proc.read_stat("/proc", run.pid).start_ticks)
        assert tree.update() == [run.pid, child]
        run.kill()
        run.wait()
        assert tree.update() == [child]
        assert not tree.root_is_there()
    finally:
        os.kill(child, 9)


def test_children_that_appear_later_join_the_tree(program):
    text = (
        "import subprocess, sys, time\nsys.stdin.readline()\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(p.pid, flush=True)\ntime.sleep(60)\n"
    )
    run = program(text, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    tree = RunTree("/proc", run.pid, proc.read_stat("/proc", run.pid).start_ticks)
    assert tree.update() == [run.pid]
    run.stdin.write(b"go\n")
    run.stdin.flush()
    child = int(run.stdout.readline())
    try:
        assert tree.update() == [run.pid, child]
    finally:
        os.kill(child, 9)


def test_a_run_that_is_not_there_yet_is_found_when_it_comes(program, tmp_path):
    log = tmp_path / "later.log"
    view = RunView("/proc", {"log": str(log)}, NOBODY)
    assert view.update(10.0)["state"] == "none"
    with log.open("wb") as file:
        run = program(stdout=file)
    assert view.update(10.5)["state"] == "none"  # not looked again so soon
    later_s = itertools.count(13.0, 3.0)
    assert wait_for(lambda: view.update(next(later_s)).get("root_pid")) == run.pid


def test_a_run_that_ends_is_gone_and_its_successor_takes_over(program, tmp_path):
    log = tmp_path / "train.log"
    with log.open("wb") as file:
        run = program(stdout=file)
    view = RunView("/proc", {"log": str(log)}, NOBODY)
    assert view.update(10.0)["state"] == "found"
    run.kill()
    run.wait()
    gone = view.update(11.0)
    assert (gone["state"], gone["gone_s"], gone["root_pid"]) == ("gone", 0.0, run.pid)
    time.sleep(0.02)
    with log.open("ab") as file:
        successor = program(stdout=file)
    assert view.update(12.0)["state"] == "gone"
    taken = view.update(11.0 + SUCCESSOR_AFTER_S)
    assert (taken["state"], taken["root_pid"]) == ("found", successor.pid)


def test_a_pid_given_by_number_has_no_successor(program):
    run = program()
    view = RunView("/proc", {"pid": run.pid}, NOBODY)
    view.update(10.0)
    run.kill()
    run.wait()
    view.update(11.0)
    assert view.update(100.0)["state"] == "gone"
    assert view.pids == []


def test_a_zombie_is_still_there(program):
    run = program("print(1)", stdout=subprocess.PIPE)
    view = RunView("/proc", {"pid": run.pid}, NOBODY)
    wait_for(lambda: proc.read_stat("/proc", run.pid).state == "Z")
    assert view.update(10.0)["state"] == "found"
    assert view.pids == [run.pid]


def test_a_run_directory_that_is_made_later_is_noticed(program, tmp_path):
    events = tmp_path / "run" / "events.jsonl"
    text = (
        "import sys, time\nsys.stdin.readline()\n"
        f"f = open({str(events)!r}, 'a'); print('up', flush=True); time.sleep(60)"
    )
    run = program(text, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    view = RunView("/proc", {"pid": run.pid}, NOBODY)
    assert "run_dir" not in view.update(10.0)
    write_manifest(tmp_path / "run", run.pid)
    run.stdin.write(b"go\n")
    run.stdin.flush()
    run.stdout.readline()
    assert view.update(20.0)["run_dir"] == str(tmp_path / "run")


def test_a_process_that_calls_exec_shows_its_new_command(program):
    text = (
        "import os, sys\nprint('up', flush=True)\nsys.stdin.readline()\n"
        "os.execv('/bin/sleep', ['sleep', '61'])\n"
    )
    run = program(text, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    run.stdout.readline()
    reader = ProcessReader("/proc")
    late = 1e9  # long after the start: no longer asked because it is young
    assert "train.py" in reader.read(run.pid, late)["cmd"]
    run.stdin.write(b"go\n")
    run.stdin.flush()
    wait_for(lambda: reader.read(run.pid, late)["cmd"] == "sleep 61")


def test_a_search_that_hangs_is_said_and_does_not_hold_the_agent(monkeypatch):
    monkeypatch.setattr(run_module, "find_run", lambda *_arguments: time.sleep(60))
    monkeypatch.setattr(run_module, "SEARCH_WAIT_S", 0.1)
    view = RunView("/proc", {"pid": 1}, NOBODY)
    try:
        assert view.update(10.0)["state"] == "none"
        late = view.update(10.0 + 3 * run_module.SEARCH_DEADLINE_S)
        assert "search for the run: no answer for 12 s" in late["note"]
    finally:
        view.close()


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["/venv/bin/python", "/venv/bin/dflash-watch", "--ct", "200"], True),
        (["python3", "-m", "dflash_watch.cli", "serve"], True),
        (["python3", "-I", "-S", "-B", "-c", STUB], True),
        (["sh", "-c", ENTRY_SCRIPT], True),
        (["python3", "/home/me/dflash-watch/train.py"], False),
        (["python3", "train.py", "--run-dir", "/runs/dflash_watch"], False),
        (["/venv/bin/python", "/venv/bin/dflash-train", "--preset", "tiny"], False),
    ],
)
def test_a_watchdog_is_told_by_its_program_not_by_a_word(words, ours):
    assert is_ours(words) is ours


def test_processes_that_come_and_go_by_the_hundred_cost_no_frame_and_leave_no_trace(agent, program):
    text = (
        "import os, time\n"
        "while True:\n"
        "    pids = [os.posix_spawn('/bin/true', ['true'], {}) for _ in range(50)]\n"
        "    for pid in pids: os.waitpid(pid, 0)\n"
        "    time.sleep(0.05)\n"
    )
    run = program(text)
    watch = agent({"pid": run.pid})
    for _ in range(15):
        frame = watch.frame()
        assert frame["processes"][0]["pid"] == run.pid
        assert not [gap for gap in frame["gaps"] if "agent:" in gap["reason"]]
    run.send_signal(signal.SIGSTOP)
    calm = watch.frame(lambda frame: frame["processes"][0]["state"] == "T")
    assert calm["run"]["state"] == "found"
    run.send_signal(signal.SIGCONT)


LAUNCHER = """
import os, subprocess, sys, time
RANK = "import os, time; os.fork(); os.write(1, b'%7d' % os.getpid()); time.sleep(600)"
ranks = [
    subprocess.Popen([sys.executable, "-c", RANK], env={**os.environ, "RANK": str(rank)},
                     start_new_session=True)
    for rank in range(2)
]
time.sleep(600)
"""


def test_ranks_in_sessions_of_their_own_and_their_children_are_the_launchers_also_as_orphans(
    agent, program
):
    launcher = program(LAUNCHER, name="torchrun", stdout=subprocess.PIPE)
    pids = [int(launcher.stdout.read(7)) for _ in range(4)]
    try:
        watch = agent({"match": r"/torchrun$"})
        frame = watch.frame(lambda frame: len(frame.get("processes", ())) == 5)
        assert frame["run"]["root_pid"] == launcher.pid
        assert sorted(each.get("rank", -1) for each in frame["processes"]) == [-1, 0, 0, 1, 1]
        launcher.kill()
        launcher.wait()
        left = watch.frame(lambda frame: frame["run"]["state"] == "gone")
        assert {each["pid"] for each in left["processes"]} == set(pids)
        assert {each["ppid"] for each in left["processes"]} - set(pids) != {launcher.pid}
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
