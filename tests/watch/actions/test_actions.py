"""What is done to the world, on real processes, and the journal of it."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
from dflash_watch.actions import Actions, Hook, Journal
from dflash_watch.clock import SystemClock
from dflash_watch.frame import StackSample
from dflash_watch.model import (
    Board,
    Incident,
    IncidentStage,
    Severity,
    Snapshot,
    StackRequest,
    Verdict,
)

LONG_S = 60.0
WANT = StackRequest(label="A", pid=7, reason="no step for 21 s")


class Asked:
    """Notes what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    def request_stacks(self, pid: int, label: str) -> None:
        self.asked.append((pid, label))


def incident(verdict: Verdict = Verdict.STALLED, key: str = "k1") -> Snapshot:
    opened = Incident(
        key=key, failure="pipeline-deadlock", subject="drafter-1", verdict=verdict,
        severity=Severity.CRITICAL, stage=IncidentStage.CONFIRMED, opened_t=1.0, ready=True,
        path="/somewhere/incident",
    )  # fmt: skip
    return Snapshot(
        t=100.0, run="r; rm -rf /", verdict=verdict, since_t=40.0, failure="pipeline-deadlock",
        summary="$(id) `id` 'quoted'\0", incident=opened, board=Board(pid=7, where="box · ct 200"),
    )  # fmt: skip


def build(tmp_path: Path, *argv: str, dry_run: bool = False, limit_s: float = 60.0):
    journal = Journal(tmp_path / "kept" / "journal.jsonl", SystemClock(), "box · ct 200")
    asked = Asked()
    hook = Hook(argv=argv, limit_s=limit_s) if argv else None
    actions = Actions(
        asked, journal, SystemClock(), hook=hook, environment={"PATH": os.environ["PATH"]},
        dry_run=dry_run,
    )  # fmt: skip
    return actions, asked


def noted(tmp_path: Path) -> list[dict]:
    path = tmp_path / "kept" / "journal.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def until(condition, what: str):
    end = time.monotonic() + LONG_S
    while not (value := condition()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)
    return value


def test_the_journal_is_its_owners_only_and_keeps_no_words_of_the_hook(tmp_path):
    actions, _ = build(tmp_path, "/bin/true", "--token", "secret-word")
    actions.announce(incident())
    until(lambda: noted(tmp_path), "the hook was noted")
    path = tmp_path / "kept" / "journal.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "secret-word" not in path.read_text()


def test_a_sample_still_on_its_way_is_not_asked_for_again(tmp_path):
    actions, asked = build(tmp_path)
    for _ in range(5):
        actions.take_stacks(WANT)
    assert asked.asked == [(7, "A")]


def test_a_sample_that_came_may_be_asked_for_again(tmp_path):
    actions, asked = build(tmp_path)
    actions.take_stacks(WANT)
    actions.arrived(StackSample(t=1.0, pid=7, label="A", tool="py-spy"))
    actions.take_stacks(WANT)
    assert asked.asked == [(7, "A"), (7, "A")]


def test_the_journal_says_what_was_done_to_which_host_and_what_came_of_it(tmp_path):
    actions, _ = build(tmp_path)
    actions.take_stacks(WANT)
    actions.arrived(StackSample(t=1.0, pid=7, label="A", tool="kernel", error="no permission"))
    first, second = noted(tmp_path)
    assert first | {"t": 0} == {
        "t": 0, "host": "box · ct 200", "action": "stacks", "outcome": "asked", "pid": 7,
        "label": "A", "reason": "no step for 21 s",
    }  # fmt: skip
    assert second["outcome"] == "no permission"


def test_a_dry_run_takes_nothing_and_tells_the_engine_why(tmp_path):
    actions, asked = build(tmp_path, sys.executable, "-c", "raise SystemExit", dry_run=True)
    actions.take_stacks(WANT)
    actions.announce(incident())
    (refusal,) = actions.refusals(5.0)
    assert asked.asked == []
    assert (refusal.label, refusal.error) == ("A", "not taken: --dry-run")
    assert actions.refusals(6.0) == ()
    assert [line["outcome"] for line in noted(tmp_path)] == ["dry-run", "dry-run"]


def test_the_hook_learns_everything_from_its_environment_and_nothing_passes_a_shell(tmp_path):
    out = tmp_path / "told.json"
    script = f"import json, os; json.dump(dict(os.environ), open({str(out)!r} + '.new', 'w')); "
    script += f"os.rename({str(out)!r} + '.new', {str(out)!r})"
    actions, _ = build(tmp_path, sys.executable, "-c", script)
    actions.announce(incident())
    until(out.exists, "the hook wrote its environment")
    told = json.loads(out.read_text())
    assert {name: text for name, text in told.items() if name.startswith("DFLASH_")} == {
        "DFLASH_RUN": "r; rm -rf /",
        "DFLASH_HOST": "box · ct 200",
        "DFLASH_VERDICT": "stalled",
        "DFLASH_FAILURE": "pipeline-deadlock",
        "DFLASH_SUBJECT": "drafter-1",
        "DFLASH_SEVERITY": "critical",
        "DFLASH_SUMMARY": "$(id) `id` 'quoted'",
        "DFLASH_SINCE_S": "60.0",
        "DFLASH_INCIDENT": "/somewhere/incident",
        "DFLASH_PID": "7",
    }


def test_the_hook_runs_once_an_incident(tmp_path):
    actions, _ = build(tmp_path, sys.executable, "-c", "raise SystemExit(3)")
    for _ in range(3):
        actions.announce(incident())
        until(lambda: noted(tmp_path), "the hook's exit was noted")
    actions.announce(incident(key="k2"))
    until(lambda: len(noted(tmp_path)) == 2, "the second incident was announced")
    assert [line["outcome"] for line in noted(tmp_path)] == ["exit 3", "exit 3"]


@pytest.mark.parametrize("verdict", [Verdict.RUNNING, Verdict.SLOW, Verdict.BLIND])
def test_the_hook_is_for_runs_that_stand_or_fell(tmp_path, verdict):
    actions, _ = build(tmp_path, sys.executable, "-c", "pass")
    actions.announce(incident(verdict))
    actions.announce(incident(key="k2"))
    until(lambda: noted(tmp_path), "the second was announced")
    assert len(noted(tmp_path)) == 1


def test_a_hook_over_its_time_is_ended_with_all_its_children(tmp_path):
    pids = tmp_path / "pids"
    script = "import os, subprocess, sys; child = subprocess.Popen(['sleep', '1000']); "
    script += f"open({str(pids)!r}, 'w').write(str(child.pid)); child.wait()"
    actions, _ = build(tmp_path, sys.executable, "-c", script, limit_s=1.5)
    actions.announce(incident())
    until(lambda: noted(tmp_path), "the limit was noted")
    assert noted(tmp_path)[0]["outcome"] == "ended after its limit of 1.5 s"
    child = int(pids.read_text())
    until(lambda: is_gone(child), "the hook's child is gone")


def test_a_hook_that_does_not_exist_is_one_line_in_the_journal(tmp_path):
    actions, _ = build(tmp_path, "/nowhere/notify")
    actions.announce(incident())
    until(lambda: noted(tmp_path), "the failure was noted")
    assert noted(tmp_path)[0]["outcome"] == "/nowhere/notify: No such file or directory"


def test_closing_ends_a_hook_that_still_runs(tmp_path):
    actions, _ = build(tmp_path, "sleep", "1000")
    actions.announce(incident())
    until(lambda: actions._running._process is not None, "the hook started")
    actions.close()
    until(lambda: noted(tmp_path), "its end was noted")
    assert noted(tmp_path)[0]["outcome"] == "exit -9"


def test_a_journal_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    (tmp_path / "kept").write_text("a file where the folder should be")
    journal = Journal(tmp_path / "kept" / "journal.jsonl", SystemClock(), "here")
    journal.write("stacks", "asked")
    journal.write("stacks", "asked")
    assert len(caplog.records) == 1


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
