"""What people, programs and Nagios are told."""

from __future__ import annotations

import json
from datetime import UTC

import msgspec
import pytest
from dflash_watch.model import (
    Board,
    Candidate,
    Incident,
    IncidentStage,
    Link,
    Severity,
    Snapshot,
    Verdict,
)
from dflash_watch.render.check import exit_code, render_check
from dflash_watch.render.jsonl import JsonLines, render_json, snapshot_object
from dflash_watch.render.plain import PlainLines, heartbeat
from watch.render.made import T0, deadlocked, finding, healthy, with_findings

KEYS = [
    "schema", "run", "t", "verdict", "since_s", "failure", "subject", "severity", "confidence",
    "summary", "evidence", "explains", "candidates", "limit", "views", "next", "playbook",
    "incident", "acknowledged", "gpus",
]  # fmt: skip


def kept(snapshot: Snapshot, path: str) -> Snapshot:
    assert snapshot.incident is not None
    incident = msgspec.structs.replace(snapshot.incident, path=path)
    return msgspec.structs.replace(snapshot, incident=incident)


# -- JSON ----------------------------------------------------------------------------------------


def test_the_json_has_exactly_the_keys_of_the_interface() -> None:
    told = json.loads(render_json(kept(deadlocked(), "/i/x")))
    assert list(told) == KEYS
    assert (told["schema"], told["verdict"], told["since_s"]) == (1, "stalled", 20.0)
    assert told["evidence"][1] == {"kind": "against", "text": "the ticker beats", "source": "beats"}
    assert told["candidates"][0] == {"failure": "pipeline-deadlock", "score": 0.9}
    assert told["limit"] == {"seconds": 10.0, "why": "8 x the slowest of 212 steps"}
    assert told["incident"] == "/i/x"


def test_what_is_not_known_is_null_and_never_missing() -> None:
    told = json.loads(render_json(healthy()))
    assert list(told) == KEYS
    assert (told["limit"], told["playbook"], told["incident"]) == (None, None, None)


def test_a_score_that_is_not_finite_is_null() -> None:
    odd = deadlocked(candidates=(Candidate(failure="x", score=float("nan")),))
    assert json.loads(render_json(odd))["candidates"][0]["score"] is None


def test_a_json_line_comes_with_a_change_and_once_a_minute() -> None:
    lines = JsonLines()
    counts = [len(lines.lines(healthy(T0 + s))) for s in (0, 1, 59, 61, 62)]
    assert counts == [1, 0, 0, 1, 0]
    assert len(lines.lines(deadlocked(T0 + 63))) == 1
    assert len(lines.lines(deadlocked(T0 + 64))) == 0
    assert len(lines.lines(kept(deadlocked(T0 + 65), "/i/x"))) == 1


def test_a_first_connection_is_no_alarm_in_json_unless_it_fails_or_takes_long() -> None:
    def arriving(s: float, **link: str) -> Snapshot:
        return msgspec.structs.replace(
            healthy(T0 + s), verdict=Verdict.BLIND, data_t=None, link=Link(**link)
        )

    lines = JsonLines()
    assert lines.lines(arriving(0, step="resolve")) == []
    assert lines.lines(arriving(3, state="up")) == []
    assert len(lines.lines(arriving(16, step="ssh"))) == 1
    assert len(lines.lines(healthy(T0 + 17))) == 1
    assert len(JsonLines().lines(arriving(0, step="ssh", reason="connection refused"))) == 1
    assert len(JsonLines().lines(arriving(0, state="lost"))) == 1


def test_the_object_is_plain_data() -> None:
    assert json.loads(json.dumps(snapshot_object(deadlocked()))) == snapshot_object(deadlocked())


# -- check ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "severity", "code"),
    [
        ("running", "info", 0),
        ("finished", "info", 0),
        ("initialising", "info", 0),
        ("quiet", "info", 0),
        ("slow", "info", 1),
        ("stalled", "info", 2),
        ("crashed", "warning", 2),
        ("blind", "info", 3),
        ("blind", "critical", 3),
        ("running", "warning", 1),
        ("running", "critical", 2),
        ("slow", "critical", 2),
        ("finished", "warning", 1),
    ],
)
def test_the_exit_code_is_the_worse_of_verdict_and_severity(
    verdict: str, severity: str, code: int
) -> None:
    assert exit_code(healthy(verdict=Verdict(verdict), severity=Severity(severity))) == code


@pytest.mark.parametrize(("spent", "code"), [(10.0, 0), (90.0, 1), (None, 0)])
def test_a_finite_phase_warns_past_its_budget(spent: float | None, code: int) -> None:
    board = Board(phase="loading", phase_s=spent, phase_budget_s=60.0)
    assert exit_code(healthy(verdict=Verdict.INITIALISING, board=board)) == code
    assert exit_code(healthy(verdict=Verdict.RUNNING, board=board)) == 0


def test_check_prints_one_line_with_figures_behind_one_bar() -> None:
    line = render_check(deadlocked(), 2)
    assert line.startswith(
        "DFLASH CRITICAL - stalled for 20 s, pipeline-deadlock (drafter-1), run demo: "
    )
    assert line.count("|") == 1
    assert line.endswith("| step=120;;;0;300 tokens_per_s=14200 step_age=0.1s")
    assert "\n" not in line


def test_check_stays_short_and_on_one_line_whatever_the_text() -> None:
    line = render_check(healthy(summary="a\nb\x1b[31m\u202e|" + "x" * 5000), 0)
    assert len(line) < 600
    assert "\n" not in line
    assert "\x1b" not in line
    assert line.count("|") == 1


def test_a_healthy_run_is_ok_without_a_failure_name() -> None:
    assert render_check(healthy(), 0).startswith("DFLASH OK - running, run demo: step 120 of 300")


@pytest.mark.parametrize(
    ("board", "run", "named"),
    [
        (Board(run_name="a"), "a", ", run a"),
        (Board(pid=7), "pid 7", ", run pid 7"),
        (Board(), "run", ""),
    ],
)
def test_check_says_which_run_it_found(board: Board, run: str, named: str) -> None:
    line = render_check(healthy(board=board, run=run), 0)
    assert line.startswith(f"DFLASH OK - running{named}: step 120 of 300")


def test_a_start_without_a_fault_names_no_failure() -> None:
    early = healthy(verdict=Verdict.INITIALISING, failure="unknown", severity=Severity.INFO)
    assert "unknown" not in render_check(early, 0)
    assert "[unknown]" not in "\n".join(plain().lines(early))
    late = msgspec.structs.replace(early, severity=Severity.WARNING)
    assert "unknown" in render_check(late, 1)
    assert "[unknown]" in "\n".join(plain().lines(late))


# -- lines for people ----------------------------------------------------------------------------


def plain(**more: object) -> PlainLines:
    return PlainLines(zone=UTC, **more)  # type: ignore[arg-type]


def test_a_change_is_told_once_with_its_reasons_and_what_to_do() -> None:
    lines = plain()
    lines.lines(healthy())
    told = "\n".join(lines.lines(deadlocked()))
    assert "STALLED" in told
    assert "STALLED      drafter-0 and drafter-1 wait for each other" in told
    assert "because" in told
    assert "but      the ticker beats (beats)" in told
    assert "unknown  no answer from the driver (gpu)" in told
    assert "explains drafter-idle, log-silent" in told
    assert "do 1     kill -TERM 4242" in told
    assert "dflash-watch explain pipeline-deadlock" in told
    assert lines.lines(deadlocked(T0 + 21)) == []


def test_a_healthy_run_is_one_line_without_reasons() -> None:
    (line,) = plain().lines(healthy())
    assert line == "14:13:20  RUNNING      step 120 of 300, 0.1 s ago  (for 1 m 00 s)"


def test_connecting_is_one_line_a_stage_without_reasons() -> None:
    lines = plain()

    def at(step: str) -> list[str]:
        link = Link(state="connecting", step=step)
        return lines.lines(deadlocked(verdict=Verdict.BLIND, data_t=None, link=link, incident=None))

    assert [at(step) for step in ("ssh", "ssh", "agent")] == [
        ["14:13:40  connecting: ssh"],
        [],
        ["14:13:40  connecting: agent"],
    ]
    up = deadlocked(verdict=Verdict.BLIND, data_t=None, link=Link(state="up"), incident=None)
    assert lines.lines(up) == ["14:13:40  connected, waiting for the first sample"]
    assert "STALLED" in lines.lines(deadlocked())[0]


def test_a_subject_that_the_sentence_does_not_name_stands_before_it() -> None:
    (first, *_) = plain().lines(deadlocked(summary="it waits for a lock"))
    assert "STALLED      drafter-1: it waits for a lock" in first


def test_silence_ends_with_a_heartbeat_at_a_slow_pace() -> None:
    lines = plain()
    lines.lines(healthy(T0))
    told = [lines.lines(healthy(T0 + s)) for s in range(1, 131)]
    assert [number for number, out in enumerate(told, 1) if out] == [60, 120]
    assert "step 120/300, 14 200 tok/s (100 % of baseline), loss 2.345, queue 3/8" in told[59][0]


def test_a_heartbeat_of_a_run_that_says_nothing_is_only_its_verdict() -> None:
    assert heartbeat(healthy(board=Board())) == "running for 1 m 00 s"


def test_findings_are_told_when_they_open_and_when_they_close() -> None:
    lines = plain()
    lines.lines(healthy())
    opened = lines.lines(with_findings(healthy(T0 + 1), finding("a", T0 + 1)))
    assert "found: the log was renamed  [log-moved]" in opened[0]
    assert lines.lines(with_findings(healthy(T0 + 2), finding("a", T0 + 1))) == []
    closed = lines.lines(with_findings(healthy(T0 + 9), finding("a", T0 + 1, T0 + 9)))
    assert "over: the log was renamed (after 8.0 s)" in closed[0]


def test_a_finding_that_is_only_information_is_not_told() -> None:
    lines = plain()
    lines.lines(healthy())
    one = finding("a", T0 + 1, severity=Severity.INFO)
    assert lines.lines(with_findings(healthy(T0 + 1), one)) == []


def test_a_finding_that_is_the_verdict_is_not_told_twice() -> None:
    one = finding("a", T0, failure="pipeline-deadlock")
    told = plain().lines(with_findings(deadlocked(), one))
    assert not [line for line in told if "found:" in line]


def test_a_folder_that_was_kept_is_told_once_with_its_stacks() -> None:
    lines = plain()
    lines.lines(deadlocked())
    told = lines.lines(kept(deadlocked(T0 + 30), "/i/x"))
    assert [line.split("  ", 1)[1] for line in told] == ["  kept: /i/x (3 stack samples)"]
    assert lines.lines(kept(deadlocked(T0 + 31), "/i/x")) == []


def test_a_folder_without_stacks_says_why() -> None:
    incident = Incident(
        key="k", failure="main-process-died", subject="run", verdict=Verdict.CRASHED,
        severity=Severity.CRITICAL, stage=IncidentStage.CONFIRMED, opened_t=T0, path="/i/y",
        stacks_missing="the process is not there any more",
    )  # fmt: skip
    told = "\n".join(plain().lines(deadlocked(incident=incident)))
    assert "kept: /i/y (no stacks: the process is not there any more)" in told


def test_colour_is_used_only_when_asked_for() -> None:
    assert not [line for line in plain().lines(deadlocked()) if "\x1b" in line]
    assert [line for line in plain(is_coloured=True).lines(deadlocked()) if "\x1b[31;1m" in line]


def test_hostile_text_never_reaches_the_terminal() -> None:
    evil = deadlocked(summary="\x1b]0;title\x07evil\x1b[2J\u202e", next=("\x1b[31mrm",))
    told = plain().lines(with_findings(evil, finding("e", T0, text="\x1b[5mblink")))
    assert all("\x1b" not in line and "\u202e" not in line and "\x07" not in line for line in told)
