"""The command line on a real foreign run of this machine, through the real agent."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from watch.cli.conftest import LONG_S, Bench, is_gone, until

LOOP = ("plain_loop.py", "--steps", "100000", "--step-s", "0.05")


def children(pid: int) -> list[int]:
    told = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return sorted(int(word) for word in " ".join(told).split())


def objects(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def stop(process: subprocess.Popen, number: int = signal.SIGTERM) -> tuple[str, str]:
    process.send_signal(number)
    return process.communicate(timeout=90)


def test_check_finds_a_healthy_run_running_by_its_log(bench: Bench):
    run = bench.run(*LOOP)
    shown = bench.watch("check", "--pid", str(run.pid))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("DFLASH OK - running")
    assert len(shown.stdout.splitlines()) == 1


def test_check_as_json_is_the_documented_object(bench: Bench):
    run = bench.run(*LOOP)
    shown = bench.watch("check", "--json", "--pid", str(run.pid))
    (told,) = objects(shown.stdout)
    assert told["verdict"] == "running"
    assert set(told) >= {"schema", "failure", "evidence", "views", "limit", "next", "incident"}


def test_check_on_a_stopped_run_is_critical(bench: Bench):
    run = bench.run(*LOOP)
    run.send_signal(signal.SIGSTOP)
    shown = bench.watch("check", "--json", "--pid", str(run.pid))
    (told,) = objects(shown.stdout)
    assert (told["verdict"], told["failure"]) == ("stalled", "process-stopped")
    assert shown.returncode == 2


STILL = """
import sys, time
for step in range(1, 41):
    print(f"2026-11-29 10:{step // 60:02d}:{step % 60:02d} step {step}/100 loss 2.0", flush=True)
time.sleep(600)
"""


def test_check_on_a_run_that_fell_silent_before_anybody_looked_is_critical(bench: Bench):
    (bench.folder / "still.py").write_text(STILL)
    run = bench.run(str(bench.folder / "still.py"))
    log = bench.folder / "run.log"
    until(lambda: "step 40" in log.read_text(), "its last line")
    os.utime(log, (time.time() - 60, time.time() - 60))
    shown = bench.watch("check", "--json", "--pid", str(run.pid))
    (told,) = objects(shown.stdout)
    assert (told["verdict"], shown.returncode) == ("stalled", 2)
    assert "no step for 1 m" in told["summary"]


def test_check_that_cannot_tell_says_so_and_exits_with_3(bench: Bench):
    text = STILL.replace("range(1, 41)", "range(1, 4)").replace("2026-11-29 10:", "")
    (bench.folder / "still.py").write_text(text)
    run = bench.run(str(bench.folder / "still.py"))
    log = bench.folder / "run.log"
    until(lambda: "step 3" in log.read_text(), "its last line")
    os.utime(log, (time.time() - 30, time.time() - 30))
    shown = bench.watch("check", "--pid", str(run.pid))
    assert shown.returncode == 3
    assert shown.stdout.startswith("DFLASH UNKNOWN - running")
    assert "cannot tell from one look" in shown.stdout


def test_check_leaves_nothing_behind_and_writes_nothing(bench: Bench):
    run = bench.run(*LOOP)
    watch = bench.start("check", "--pid", str(run.pid))
    until(lambda: children(watch.pid), "the agent")
    assert len(bench.at_work()) >= 2
    watch.communicate(timeout=LONG_S)
    assert watch.returncode == 0
    until(lambda: not bench.at_work(), "the end of all that it started")
    assert not (bench.folder / "state").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--pid", "4194303"], "no process 4194303"),
        (["--run-dir", "."], "not a run directory"),
        (["--run-dir", "nowhere"], "not a run directory"),
        (["--match", "no-such-program-anywhere"], "no process whose command line matches"),
        (["--exec", "/nowhere/enter --"], "/nowhere/enter: no such program"),
        (["--host", "no-such-host.invalid"], "no-such-host.invalid: unknown host"),
        (["--host", "127.0.0.1:1"], "connection refused"),
    ],
)
def test_check_on_what_is_not_there_cannot_tell_and_says_why_in_one_line(bench, words, told):
    shown = bench.watch("check", *words)
    assert shown.returncode == 3
    assert told in shown.stdout
    assert len(shown.stdout.splitlines()) == 1
    assert shown.stderr == ""


@pytest.mark.parametrize("command", ["check", "watch", "dump"])
def test_a_pid_that_is_not_python_is_refused_in_one_line(bench: Bench, command: str):
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        words = ["--plain"] if command == "watch" else [command]
        shown = bench.watch(*words, "--pid", str(sleeper.pid))
    finally:
        sleeper.kill()
        sleeper.wait()
    assert shown.returncode == 3
    told = shown.stdout if command == "check" else shown.stderr
    assert f"pid {sleeper.pid} (sleep) is not a Python process" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("command", ["check", "watch", "dump"])
def test_a_pid_above_several_programs_is_a_choice_to_make(bench: Bench, command: str):
    sleep = f"exec {sys.executable} -c 'import time; time.sleep(1000)'"
    text = f"({sleep} one) & ({sleep} two) & wait"
    shell = subprocess.Popen(["/bin/sh", "-c", text], start_new_session=True)
    try:
        words = ["--plain"] if command == "watch" else [command]
        shown = bench.watch(*words, "--pid", str(shell.pid))
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    assert shown.returncode == 64
    (line,) = shown.stderr.splitlines()
    assert "several Python programs run below it" in line
    assert line.endswith("name one of them with --pid")


def test_watching_a_process_that_is_not_there_ends_and_says_so(bench: Bench):
    shown = bench.watch("--json", "--until-end", "--pid", "4194303")
    assert shown.returncode == 3
    assert "no process 4194303" in shown.stderr


def test_watching_a_run_directory_that_is_not_there_yet_waits_for_it(bench: Bench):
    watch = bench.start("--json", "--run-dir", "later")
    (told,) = objects(watch.stdout.readline())
    assert told["verdict"] == "blind"
    assert watch.poll() is None
    stop(watch)


def test_dump_shows_the_stack_and_that_nothing_was_written_but_the_journal(bench: Bench):
    run = bench.run(*LOOP)
    shown = bench.watch("dump", "--pid", str(run.pid))
    assert shown.returncode == 0, shown.stderr
    assert f"== process {run.pid}" in shown.stdout
    assert "plain_loop.py" in shown.stdout
    kept = [path.name for path in bench.folder.rglob("state/**/*") if path.is_file()]
    assert kept == ["journal.jsonl"]


def test_dump_as_json_has_a_line_a_sample(bench: Bench):
    run = bench.run(*LOOP)
    shown = bench.watch(
        "dump", "--json", "--samples", "3", "--apart-s", "0.2", "--pid", str(run.pid)
    )
    samples = objects(shown.stdout)
    assert [(one["pid"], one["label"]) for one in samples] == [(run.pid, n) for n in "123"]
    assert {frame[0] for one in samples for frame in one["threads"][0]["frames"]} >= {"main"}


def test_a_recording_replays_to_the_same_verdicts_as_were_seen_live(bench: Bench):
    run = bench.run(*LOOP)
    capture = bench.folder / "watched.jsonl"
    seen, words = bench.folder / "seen.jsonl", ("--every-s", "0.2", "--record", str(capture))
    with seen.open("wb") as out:
        live = bench.start("--json", "--pid", str(run.pid), *words, stdout=out.fileno())
    until(lambda: '"running"' in seen.read_text(), "its running")
    run.send_signal(signal.SIGSTOP)
    until(lambda: '"process-stopped"' in seen.read_text(), "the stop")
    stop(live)
    told = [(one["t"], one["verdict"], one["failure"]) for one in objects(seen.read_text())]
    shown = bench.watch("replay", "--json", str(capture))
    assert [(one["t"], one["verdict"], one["failure"]) for one in objects(shown.stdout)] == told
    assert told[-1][1:] == ("stalled", "process-stopped")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_watching_cleanly_and_the_agent_with_it(bench: Bench, number):
    run = bench.run(*LOOP)
    watch = bench.start("--plain", "--pid", str(run.pid))
    assert "RUNNING" in until(
        lambda: (line := watch.stdout.readline()) and "RUNNING" in line and line, "a verdict"
    )
    agents = children(watch.pid)
    assert agents
    _, errors = stop(watch, number)
    assert watch.returncode == 0
    assert errors == ""
    until(lambda: all(is_gone(pid) for pid in agents), "the agent's end")
    assert run.poll() is None


def test_a_reader_that_has_seen_enough_ends_the_watching_quietly(bench: Bench):
    run = bench.run(*LOOP)
    watch = bench.start("--json", "--pid", str(run.pid))
    assert watch.stdout.readline()
    watch.stdout.close()
    run.send_signal(signal.SIGSTOP)  # something to say
    watch.wait(30)
    assert watch.returncode == 0
    assert watch.stderr.read() == ""


def test_a_terminal_that_stops_reading_stops_neither_watching_nor_recording(bench: Bench):
    run = bench.run(*LOOP)
    ours, theirs = os.openpty()
    capture = bench.folder / "watched.jsonl"
    words = ("--pid", str(run.pid), "--every-s", "0.2", "--record", str(capture))
    watch = bench.start("--plain", *words, stdout=theirs)
    until(lambda: capture.exists() and '"frame"' in capture.read_text(), "the first frame")
    os.write(ours, b"\x13")  # as ctrl+s
    run.send_signal(signal.SIGSTOP)
    before = capture.read_text().count('"frame"')
    until(lambda: capture.read_text().count('"frame"') > before + 5, "five more frames")
    stop(watch)
    assert watch.returncode == 0
    os.close(ours)
    os.close(theirs)


def test_until_end_ends_with_the_run_and_says_how_it_ended(bench: Bench):
    run = bench.run("plain_loop.py", "--steps", "200", "--step-s", "0.05")
    shown = bench.watch("--json", "--until-end", "--pid", str(run.pid))
    assert objects(shown.stdout)[-1]["verdict"] == "finished"
    assert shown.returncode == 0


def test_a_damaged_recording_is_one_line_and_a_usage_error(bench: Bench):
    (bench.folder / "a.jsonl").write_text('{"type":"capture","sch')
    (bench.folder / "b.jsonl").write_text("hello\n")
    for name in ("a.jsonl", "b.jsonl", "missing.jsonl"):
        shown = bench.watch("replay", "--plain", name)
        assert shown.returncode == 64
        assert shown.stderr.startswith(f"dflash-watch: {name}: ")
        assert len(shown.stderr.splitlines()) == 1


def test_a_recording_whose_last_record_is_cut_is_played_up_to_there_with_a_note(bench: Bench):
    run = bench.run(*LOOP)
    capture = bench.folder / "watched.jsonl"
    words = ("--pid", str(run.pid), "--every-s", "0.2", "--record", str(capture))
    live = bench.start("--json", *words)
    until(lambda: capture.exists() and capture.read_text().count('"frame"') >= 3, "three frames")
    stop(live)
    capture.write_bytes(capture.read_bytes()[:-20])
    shown = bench.watch("replay", "--json", str(capture))
    assert shown.returncode == 0
    assert objects(shown.stdout)[-1]["verdict"] == "running"
    assert "is cut" in shown.stderr


def test_a_dry_run_takes_no_stacks_and_notes_that_it_did_not(bench: Bench):
    run = bench.run(*LOOP)
    kept = bench.folder / "kept"
    watch = bench.start("--json", "--dry-run", "--incidents", str(kept), "--pid", str(run.pid))
    journal = kept / "journal.jsonl"
    until(lambda: journal.exists() and "dry-run" in journal.read_text(), "the first wish")
    stop(watch)
    told = [(one["action"], one["outcome"]) for one in objects(journal.read_text())]
    assert told[0] == ("agent", "started")
    assert {outcome for action, outcome in told if action == "stacks"} == {"dry-run"}
    assert told[-1] == ("agent", "told to end")
    assert [path.name for path in kept.iterdir()] == ["journal.jsonl"]
    assert not (bench.folder / "state" / "dflash-watch" / "limits").exists()


def test_a_log_alone_leads_to_the_run_that_writes_it(bench: Bench):
    bench.run(*LOOP)
    shown = bench.watch("check", "--json", "--log", "run.log")
    assert objects(shown.stdout)[0]["verdict"] == "running"


def test_an_unexpected_defect_cannot_tell_rather_than_warn():
    script = "import sys, dflash_watch.cli as cli; cli.run_command = lambda words: 1 / 0; "
    script += "sys.exit(cli.main(['check']))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 3
    assert "internal error, ZeroDivisionError" in shown.stderr
