"""`fleet` as a process of its own, over real programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from watch.cli.conftest import SCRIPTS, Bench, until


def start_runs(bench: Bench, *names: str, steps: int = 100_000) -> dict[str, subprocess.Popen]:
    """Foreign programs, each with a log of its name, and `fleet.toml` beside them."""
    runs = {}
    for name in names:
        with (bench.folder / f"{name}.log").open("wb") as log:
            argv = [sys.executable, str(SCRIPTS / "plain_loop.py")]
            argv += ["--steps", str(steps), "--step-s", "0.05"]
            runs[name] = subprocess.Popen(argv, stdout=log, stderr=log, cwd=bench.folder)
    bench._started += runs.values()
    table = "".join(f'[[run]]\nname = "{name}"\npid = {run.pid}\n' for name, run in runs.items())
    (bench.folder / "fleet.toml").write_text('incidents = "kept"\n' + table)
    return runs


def told(watch: subprocess.Popen, verdict: str, *names: str) -> dict[str, dict]:
    """The lines in which this is said of each of the runs."""
    found: dict[str, dict] = {}
    for line in watch.stdout:
        one = json.loads(line)
        if one["name"] in names and one["verdict"] == verdict:
            found[one["name"]] = one
        if set(found) == set(names):
            return found
    raise AssertionError(f"never said {verdict} of {names}: {watch.stderr.read()}")


def test_of_three_runs_the_one_that_stops_is_told_kept_and_the_others_go_on(bench: Bench):
    runs = start_runs(bench, "a", "b", "c")
    watch = bench.start("fleet", "--json", "fleet.toml")
    running = told(watch, "running", *runs)
    assert {one["where"] for one in running.values()} == {"this machine"}
    runs["b"].send_signal(signal.SIGSTOP)
    assert told(watch, "stalled", "b")["b"]["failure"] == "process-stopped"
    until(lambda: list((bench.folder / "kept").glob("2*-process-stopped")), "its incident")
    watch.send_signal(signal.SIGTERM)
    rest, errors = watch.communicate(timeout=60)
    assert watch.returncode == 0
    assert errors == ""
    others = [one for line in rest.splitlines() if (one := json.loads(line))["name"] != "b"]
    assert {one["verdict"] for one in others} <= {"running"}
    text = (bench.folder / "kept" / "journal.jsonl").read_text()
    journal = [json.loads(line) for line in text.splitlines()]
    assert {one["run"] for one in journal} == {"a", "b", "c"}
    assert sum(one["outcome"] == "told to end" for one in journal) == 3
    until(lambda: not bench.at_work(), "no agent is left behind")


def test_once_is_a_table_the_worst_first_and_the_exit_code_of_the_worst(bench: Bench):
    start_runs(bench, "a", "b")
    with (bench.folder / "fleet.toml").open("a") as file:
        file.write('[[run]]\nname = "c"\nhost = "no-such-host.invalid"\n')
    done = bench.watch("fleet", "--once", "fleet.toml")
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert lines[1].split()[:2] == ["BLIND", "c"]
    assert "unknown host" in lines[1]
    assert [line.split()[0] for line in lines[2:]] == ["RUNNING", "RUNNING"]


def test_until_end_waits_for_the_last_and_says_how_they_ended(bench: Bench):
    start_runs(bench, "a", "b", steps=60)
    done = bench.watch("fleet", "--until-end", "fleet.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("FINISHED") >= 2
