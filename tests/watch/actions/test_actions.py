"""What is done to the world, on real processes, and the journal of it."""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest
from dflash_watch.actions import FOR_SUSPICIONS, HOOKS_AN_HOUR, SAMPLES, Actions, Told
from dflash_watch.clock import SystemClock
from dflash_watch.frame import StackSample
from dflash_watch.hook import KEPT_BYTES, Hook, hook_environment
from dflash_watch.journal import Journal, JournalFile, read_journal
from dflash_watch.model import (
    Board,
    Incident,
    IncidentStage,
    Link,
    Severity,
    Snapshot,
    StackRequest,
    Verdict,
)

LONG_S = 60.0
HERE = {"PATH": os.environ["PATH"]}
WANT = StackRequest(label="A", pid=7, reason="no step for 21 s")


class Asked:
    """Notes what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    def request_stacks(self, pid: int, label: str, *, native: bool = False) -> None:
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


def build(tmp_path: Path, *argv: str, dry_run: bool = False, limit_s: float = 60.0, clock=None):
    file = JournalFile(tmp_path / "kept" / "journal.jsonl")
    clock = clock or SystemClock()
    asked = Asked()
    hook = Hook(argv=argv, limit_s=limit_s, environment=HERE) if argv else None
    note = Journal(file, clock, "box · ct 200")
    return Actions(asked, note, clock, hook=hook, dry_run=dry_run), asked


def noted(tmp_path: Path, action: str | None = None) -> list[dict]:
    """What the journal says of the action; of everything but the start of the hook by default."""
    entries = read_journal(tmp_path / "kept" / "journal.jsonl")
    return [
        one for one in entries
        if (action is None and one["outcome"] != "started") or one["action"] == action
    ]  # fmt: skip


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


def test_what_was_done_to_a_process_is_noted_and_one_left_stopped_is_said_aloud(tmp_path, caplog):
    actions, _ = build(tmp_path)
    actions.take_stacks(WANT)
    did = ("stopped all its threads for a moment", "WARNING: left stopped, SIGCONT did not help")
    stopped = "the process is stopped (state T) since the sample: continue it with kill -CONT"
    sample = StackSample(t=1.0, pid=7, label="A", tool="py-spy", did=did, note=f"x; {stopped}")
    actions.arrived(sample)
    _, told = until(lambda: len(lines := noted(tmp_path)) == 2 and lines, "two lines")
    assert told["did"] == list(did)
    assert caplog.messages == [
        "process 7: WARNING: left stopped, SIGCONT did not help", f"process 7: {stopped}",
    ]  # fmt: skip


def test_the_journal_says_what_was_done_to_which_host_and_what_came_of_it(tmp_path):
    actions, _ = build(tmp_path)
    actions.take_stacks(WANT)
    actions.arrived(StackSample(t=1.0, pid=7, label="A", tool="kernel", error="no permission"))
    first, second = until(lambda: len(told := noted(tmp_path)) == 2 and told, "two lines")
    assert first | {"t": 0} == {
        "t": 0, "watcher_pid": os.getpid(), "host": "box · ct 200", "action": "stacks",
        "outcome": "asked", "pid": 7, "label": "A", "reason": "no step for 21 s",
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
    until(lambda: len(noted(tmp_path)) == 2, "both were noted")
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
        "DFLASH_INCIDENT_KEY": "k1",
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
    assert noted(tmp_path)[0]["outcome"] == "ended with the watching"


def test_a_hook_gets_no_input_and_may_be_silent(tmp_path):
    actions, _ = build(
        tmp_path, sys.executable, "-c", "import sys; sys.exit(len(sys.stdin.read()))"
    )
    actions.announce(incident())
    (told,) = until(lambda: noted(tmp_path), "the hook was noted")
    assert told["outcome"] == "exit 0"
    assert "output" not in told


def test_why_a_hook_failed_is_in_the_journal_masked_and_printable(tmp_path):
    words = "print('login with --password hunter2secret', flush=True)\n"
    words += "raise SystemExit('\\x1b[31mno route')"
    actions, _ = build(tmp_path, sys.executable, "-c", words)
    actions.announce(incident())
    (told,) = until(lambda: noted(tmp_path), "the hook was noted")
    assert told["outcome"] == "exit 1"
    assert told["output"] == "login with --password ***\nno route"


def test_of_a_hook_that_prints_a_gigabyte_the_end_is_kept_and_no_memory_used(tmp_path):
    script = "head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo the end"
    actions, _ = build(tmp_path, "sh", "-c", script)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    actions.announce(incident())
    (told,) = until(lambda: noted(tmp_path), "the hook was noted")
    assert told["outcome"] == "exit 0"
    assert told["output"].endswith("x\nthe end")
    assert len(told["output"]) <= KEPT_BYTES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 32 << 10


def test_a_child_that_outlives_its_hook_holds_nothing_up_and_is_left_alone(tmp_path):
    pids = tmp_path / "pid"
    actions, _ = build(tmp_path, "sh", "-c", f"sleep 1000 & echo $! > {pids}; exit 3")
    actions.announce(incident())
    (told,) = until(lambda: noted(tmp_path), "the hook was noted")
    child = int(pids.read_text())
    try:
        assert told["outcome"] == "exit 3"
        assert not is_gone(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_hook_that_closes_its_output_is_still_waited_for(tmp_path):
    actions, _ = build(tmp_path, "sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 4")
    actions.announce(incident())
    (told,) = until(lambda: noted(tmp_path), "the hook was noted")
    assert told["outcome"] == "exit 4"


def test_a_hook_that_ignores_the_first_signal_is_killed(tmp_path):
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    actions, _ = build(tmp_path, sys.executable, "-c", script, limit_s=1.0)
    actions.announce(incident())
    until(lambda: noted(tmp_path), "the limit was noted")
    assert noted(tmp_path)[0]["outcome"] == "ended after its limit of 1 s"
    until(lambda: is_gone(actions._running._process.pid), "it is gone")


def test_a_hook_that_may_not_be_run_says_so(tmp_path):
    program = tmp_path / "notify"
    program.write_text("no program")
    program.chmod(0o600)
    actions, _ = build(tmp_path, str(program))
    actions.announce(incident())
    until(lambda: noted(tmp_path), "the failure was noted")
    assert noted(tmp_path)[0]["outcome"] == f"{program}: Permission denied"


def test_the_end_of_a_run_waits_for_the_hook_that_tells_of_it(tmp_path):
    actions, _ = build(tmp_path, "sh", "-c", "sleep 0.5; exit 5")
    actions.announce(incident(Verdict.CRASHED))
    actions.finish()
    actions.close()
    until(lambda: noted(tmp_path), "its end was noted")
    assert noted(tmp_path)[0]["outcome"] == "exit 5"


def test_a_restarted_watcher_does_not_run_the_hook_again_for_the_same_incident(tmp_path):
    key = "pipeline-deadlock/drafter-1@1790000000"
    actions, _ = build(tmp_path, "true")
    actions.announce(incident(key=key))
    until(lambda: noted(tmp_path), "the hook was noted")
    path = tmp_path / "kept" / "journal.jsonl"
    told = Told(read_journal(path), "box · ct 200", time.time())
    again = "pipeline-deadlock/drafter-1@1790000031"
    assert key in told
    assert again in told
    assert "pipeline-deadlock/drafter-1@1790000200" not in told
    assert "drafter-idle/drafter-1@1790000000" not in told
    assert key not in Told(read_journal(path), "box · ct 201", time.time())
    assert len(told.ages_s) == 1
    second = Actions(
        None, Journal(JournalFile(path), SystemClock(), "box · ct 200"), SystemClock(),
        hook=Hook(argv=("true",), environment=HERE), told=told,
    )  # fmt: skip
    second.announce(incident(key=again))
    second.announce(incident(key="other/run@1"))
    until(lambda: len(noted(tmp_path)) == 2, "the other one was announced")
    assert [one["incident"] for one in noted(tmp_path)] == [key, "other/run@1"]


def test_of_a_run_that_is_started_again_and_falls_again_each_fall_is_told(tmp_path):
    actions, _ = build(tmp_path, "true")
    for key in ("main-process-died/run@1790000000", "main-process-died/run@1790000060"):
        actions.announce(incident(Verdict.CRASHED, key=key))
        actions.finish()
    until(lambda: len(noted(tmp_path)) == 2, "both were told")


def test_so_many_hooks_an_hour_and_no_more(tmp_path):
    clock = Hours()
    actions, _ = build(tmp_path, "true", clock=clock)
    for number in range(HOOKS_AN_HOUR + 5):
        actions.announce(incident(key=f"f/run@{number * 1000}"))
        actions.finish()
    limited = f"not run: {HOOKS_AN_HOUR} in an hour"
    until(lambda: len(noted(tmp_path)) == HOOKS_AN_HOUR + 5, "each was noted")
    assert [one["outcome"] for one in noted(tmp_path)].count("exit 0") == HOOKS_AN_HOUR
    assert [one["outcome"] for one in noted(tmp_path)].count(limited) == 5
    clock.now_s += 3600
    actions.announce(incident(key="f/run@99999999"))
    until(lambda: len(noted(tmp_path)) == HOOKS_AN_HOUR + 6, "the next hour's was noted")
    assert noted(tmp_path)[-1]["outcome"] == "exit 0"


def test_samples_of_one_process_are_bounded_and_the_last_are_kept_for_incidents(tmp_path):
    clock = Hours()
    actions, asked = build(tmp_path, clock=clock)
    calm = msgspec.structs.replace(incident(), incident=None, verdict=Verdict.RUNNING)

    def ask(times: int, label: str, snapshot: Snapshot) -> int:
        before = len(asked.asked)
        for _ in range(times):
            clock.now_s += 0.1
            actions.take_stacks(StackRequest(label=label, pid=7, reason="r"), snapshot)
            refused = actions.refusals(1.0)
            assert all("not taken: after 40 of one" in one.error for one in refused)
            taken = (StackSample(t=1.0, pid=7, label=label, tool="py-spy"),)
            for came in refused or taken:
                actions.arrived(came)
        return len(asked.asked) - before

    assert ask(60, "census", calm) == SAMPLES - FOR_SUSPICIONS
    assert ask(20, "A", calm) == 6
    assert ask(20, "A", incident()) == 6
    assert ask(20, "asked", incident()) == 20
    clock.now_s += 3 * 60
    assert ask(20, "A", incident()) == 3
    outcomes = until(
        lambda: (
            (told := [one["outcome"] for one in noted(tmp_path, "stacks")]).count("taken") == 63
            and told
        ),
        "all were noted",
    )
    refusals = [one for one in outcomes if "not taken" in one]
    assert len(refusals) == 1, "what repeats is noted once"


BLIND = {
    "link": {"link": Link(state="lost", reason="cut")},
    "given up": {"link": Link(state="closed")},
    "verdict": {"verdict": Verdict.BLIND},
    "old": {"received_t": 1.0},
}


@pytest.mark.parametrize("why", BLIND)
def test_nothing_is_done_while_nothing_can_be_seen_and_the_hook_follows_later(tmp_path, why):
    actions, asked = build(tmp_path, "true")
    blind = msgspec.structs.replace(incident(), **BLIND[why])
    actions.announce(blind)
    actions.take_stacks(WANT, blind)
    (refusal,) = actions.refusals(1.0)
    assert refusal.error.startswith("not taken: ")
    assert asked.asked == []
    assert actions._running is None
    actions.arrived(refusal)
    seen = msgspec.structs.replace(incident(), received_t=time.time())
    actions.announce(seen)
    actions.take_stacks(WANT, seen)
    until(lambda: noted(tmp_path, "hook"), "the hook ran once it could be seen")
    assert asked.asked == [(7, "A")]


def test_a_person_may_ask_for_stacks_whatever_can_be_seen(tmp_path):
    actions, asked = build(tmp_path)
    blind = msgspec.structs.replace(incident(), verdict=Verdict.BLIND)
    actions.take_stacks(StackRequest(label="asked", pid=7, reason="asked for"), blind)
    assert asked.asked == [(7, "asked")]


class Hours(SystemClock):
    """A clock whose hours pass when told."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_the_page_names_each_variable_of_the_hook():
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()
    snapshot = incident()
    assert snapshot.incident is not None
    missing = [name for name in hook_environment(snapshot, snapshot.incident) if name not in page]
    assert missing == []
