"""Playbooks, stacks and reports as text."""

from __future__ import annotations

from datetime import timedelta, timezone

import msgspec
import pytest
from dflash_watch.detectors import catalogue
from dflash_watch.frame import ContainerSample, Gap, HostFrame, KernelLine, Rung, ThreadStack
from dflash_watch.model import RunOptions, Verdict
from dflash_watch.playbooks import load_playbooks
from dflash_watch.render.explain import (
    render_list,
    render_playbook,
    render_symptom,
    render_verdict,
)
from dflash_watch.render.report import known_values, render_report
from dflash_watch.render.stacktext import render_diff, render_dump, render_sample
from dflash_watch.render.tables import gpus_csv, host_text, log_tail, processes_text
from dflash_watch.units import TIME, moment
from watch.render.made import T0, deadlocked, frame, stacks

PLAYBOOKS = load_playbooks()


def test_the_list_has_every_playbook_the_severe_ones_first() -> None:
    lines = render_list(tuple(PLAYBOOKS.values())).splitlines()
    severities = [line.split()[1] for line in lines[: len(PLAYBOOKS)]]
    assert severities == sorted(severities, key=["critical", "warning", "info"].index)
    assert {line.split()[0] for line in lines[: len(PLAYBOOKS)]} == set(PLAYBOOKS)


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_playbook_is_printed_whole_and_without_open_placeholders(name: str) -> None:
    text = render_playbook(PLAYBOOKS[name])
    assert text.startswith(f"{name}: {PLAYBOOKS[name].title}")
    assert [
        part for part in ("Meaning", "Diagnosis", "Mitigation") if f"\n{part}\n" not in text
    ] == []
    assert "{pid}" not in text


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_is_explained_with_the_failures_it_is_seen_with(verdict: Verdict) -> None:
    text = render_verdict(verdict, tuple(PLAYBOOKS.values()))
    assert text.startswith(f"{verdict.value}: ")
    listed = {line.split()[0] for line in text.splitlines() if line.split()[0:1]}
    assert {name for name in PLAYBOOKS if verdict in PLAYBOOKS[name].verdicts} <= listed
    assert ("pipeline-deadlock" in listed) == (verdict is Verdict.STALLED)


@pytest.mark.parametrize("name", catalogue())
def test_every_symptom_says_what_it_sees_and_what_is_recognised_by_it(name: str) -> None:
    text = render_symptom(name, catalogue()[name].text(), tuple(PLAYBOOKS.values()))
    assert "Sees:" in text
    assert "Means:" in text
    required = {part for one in PLAYBOOKS.values() for it in one.requires for part in it.split("|")}
    assert ("\nrecognised by it\n" in text) == (name in required)


def test_a_playbook_read_without_a_run_marks_what_depends_on_one() -> None:
    text = render_playbook(PLAYBOOKS["process-stopped"])
    assert "kill -CONT <pid>" in text
    assert "awk '/TracerPid/ {print $2}' /proc/<pid>/status" in text


def test_a_report_of_a_run_of_somebody_else_asks_for_nothing_that_is_not_there() -> None:
    seen = deadlocked()
    board = msgspec.structs.replace(seen.board, run_dir=None)
    seen = msgspec.structs.replace(seen, board=board)
    book = PLAYBOOKS["pipeline-deadlock"]
    text = render_report(seen, seen.incident, [], book, RunOptions())
    assert "<run_dir>" not in text
    assert "start it as you did" in text


def test_values_for_placeholders_come_from_the_snapshot() -> None:
    known = known_values(deadlocked(subject="gpu5"), RunOptions(where="10.1.2.6 · ct 200"))
    assert (known["pid"], known["host"], known["gpu"], known["log"]) == (
        4242,
        "10.1.2.6",
        "5",
        "/runs/demo/train.log",
    )


def test_a_sample_shows_equal_threads_once_and_folds_helpers() -> None:
    text = render_sample(stacks("A", T0))
    assert "2 threads drafter-0 [11], drafter-1 [12]: waits for a lock (state S)" in text
    assert text.count("dflash_train/locks.py:40") == 1
    assert text.endswith(
        "idle by design:\n  dflash-ticker [13]: _run (/opt/x/dflash_events/ticker.py)"
    )


def test_a_sample_that_could_not_be_taken_says_why() -> None:
    text = render_sample(stacks("A", T0, threads=(), error="no ptrace right", tool="kernel"))
    assert "not readable: no ptrace right" in text


PASSED = Rung(tool="py-spy", how="/env/bin/py-spy", outcome="this Python is too new")
TAKEN = Rung(tool="pystack", how="/env/bin/pystack", outcome="taken")


def test_a_sample_says_from_where_it_is_what_was_passed_over_and_what_was_done() -> None:
    sample = stacks("A", T0, ladder=(PASSED, TAKEN), did=("sent signal 40",), tool="pystack")
    text = render_sample(sample)
    assert "passed over: py-spy, /env/bin/py-spy: this Python is too new\n" in text
    assert "taken by pystack, /env/bin/pystack\n" in text
    assert "done to the process: sent signal 40\n" in text


def test_a_thread_that_the_kernel_holds_shows_the_call_and_where_in_the_kernel() -> None:
    held = ThreadStack(
        tid=11, name="loader", state="D", wchan="rpc_wait", call="read", call_on="fd 7, /mnt/a",
        kernel_stack=("rpc_wait_bit_killable", "nfs_read"),
    )  # fmt: skip
    text = render_sample(stacks("A", T0, threads=(held,), tool="kernel"))
    assert "state D in rpc_wait, read(fd 7, /mnt/a)" in text
    assert "    rpc_wait_bit_killable (kernel)\n    nfs_read (kernel)" in text


def test_the_report_says_how_the_stacks_were_taken_once() -> None:
    snapshot = deadlocked()
    assert snapshot.incident is not None
    samples = [stacks(label, T0, ladder=(PASSED, TAKEN), tool="pystack") for label in "AB"]
    text = render_report(snapshot, snapshot.incident, samples, None, RunOptions())
    assert text.count("by pystack (non-blocking)") == 1
    assert text.count("this Python is too new") == 1


def test_threads_whose_stacks_could_not_be_read_are_not_called_idle() -> None:
    bare = (ThreadStack(tid=11, name="python", state="S"),)
    unread = [
        stacks(label, t, threads=bare, error="no ptrace right", tool="kernel")
        for label, t in (("1", T0), ("2", T0 + 2))
    ]
    for text in (render_sample(unread[0]), render_diff(unread)):
        assert "idle by design" not in text
        assert "not known, their stacks could not be read:" in text


def test_the_difference_says_what_did_not_move() -> None:
    text = render_diff([stacks("A", T0), stacks("B", T0 + 2), stacks("C", T0 + 4)])
    assert text.startswith("3 samples over 4.0 s")
    assert "same place, no CPU:\n  drafter-0: acquire" in text
    assert "idle by design: 1" in text


def test_one_sample_alone_compares_nothing() -> None:
    assert render_diff([stacks("A", T0)]) == "nothing to compare: one sample only"


def test_a_dump_names_the_process_and_compares_its_samples() -> None:
    text = render_dump(frame(1), [stacks("1", T0), stacks("2", T0 + 2)])
    assert text.startswith("== process 4242: python train.py")
    assert "2 samples over 2.0 s" in text
    assert render_dump(frame(1), []) == "no stack sample could be taken"


def test_the_report_says_why_what_speaks_against_and_what_to_do() -> None:
    snapshot = deadlocked()
    assert snapshot.incident is not None
    samples = [stacks("A", T0), stacks("B", T0 + 2)]
    text = render_report(
        snapshot, snapshot.incident, samples, PLAYBOOKS["pipeline-deadlock"], RunOptions()
    )
    assert text.startswith("# pipeline-deadlock: The workers wait for each other\n")
    assert "- drafter-1 waits for drafter-0 (stacks)" in text
    assert "## What speaks against it\n\n- the ticker beats (beats)" in text
    assert "1. kill -TERM 4242" in text
    assert "`kill -TERM 4242`" in text.split("### Mitigation")[1]
    assert "same place, no CPU" in text
    assert "Also possible: gil-held (0.20)" in text


def test_the_report_of_a_failure_without_a_playbook_is_whole_too() -> None:
    snapshot = deadlocked(next=())
    assert snapshot.incident is not None
    text = render_report(snapshot, snapshot.incident, [], None, RunOptions())
    assert "There are none: no sample came in time" in text
    assert "No step is known" in text


def test_gpu_rows_leave_unknown_values_empty_and_keep_what_the_driver_said() -> None:
    header, row = gpus_csv([frame(1)]).splitlines()
    cells = dict(zip(header.split(","), row.split(","), strict=True))
    assert (cells["utilization_ratio"], cells["power_watts"]) == ("0.5", "")
    assert cells["errors"] == "power: refused"


def test_the_process_table_counts_cpu_between_frames() -> None:
    text = processes_text([frame(n) for n in range(8)])
    assert "pid 4242 (parent 1) state S" in text
    assert "CPU 50 %" in text
    assert "threads of 4242:" in text
    assert processes_text([]) == "no process list was seen\n"


def test_the_host_table_has_kernel_lines_and_gaps() -> None:
    text = host_text([frame(n) for n in range(8)])
    assert "killed process 999" in text
    assert "gpu: no answer for 14 s" in text
    assert "run-dir /runs: 1.0 GiB free of 4.0 GiB" in text
    assert "no host figures were seen" in host_text([])


def test_the_host_of_the_container_stands_beside_it():
    container = ContainerSample(
        name="container 200", cgroup="/lxc/200/ns", frozen=True, lock="backup", oom_kills=3,
        memory_bytes=5 << 30, memory_limit_bytes=8 << 30, memory_stall_ratio=0.5,
    )  # fmt: skip
    lines = (
        KernelLine(text="[7.1] Killed process 71234 (python)", about="container", pid=17),
        KernelLine(text="[7.2] NVRM: Xid (PCI:0000:01:00): 79", about="machine"),
        KernelLine(text="[7.3] Killed process 9 (x)", about="other"),
    )
    gaps = (Gap(source="container-host", reason="refused"),)
    look = HostFrame(seq=0, t=7.0, boot_s=7.0, container=container, kernel=lines, gaps=gaps)
    text = host_text([frame(1)], [look])
    assert "container 200 as its host" in text
    assert "group /lxc/200/ns, frozen, locked: backup" in text
    assert "memory 5.0 GiB of 8.0 GiB" in text
    assert "memory 50 %" in text
    assert "(process 17 inside) [7.1] Killed process 71234 (python)" in text
    assert "\n[7.2] NVRM: Xid" in text
    assert "(other) [7.3]" in text
    assert "container-host: refused" in text


def test_the_end_of_the_log_is_clean_text_by_file() -> None:
    text = log_tail([frame(n) for n in range(3)])
    assert text.startswith("== /runs/demo/train.log\nstep 0 loss")
    assert "\x1b" not in text
    assert log_tail([]) == "no log text was seen\n"


@pytest.mark.parametrize("t", [1e12, -1e12, 10**30, float("nan"), float("inf"), None, "soon"])
def test_a_moment_that_no_calendar_has_is_said_to_be_unknown(t: object) -> None:
    assert moment(t) == "?"
    assert moment(t, unknown="--:--:--") == "--:--:--"


def test_a_moment_is_told_in_the_zone_that_was_asked_for() -> None:
    assert moment(1_790_000_000.0) == "2026-09-21 14:13:20Z"
    assert moment(1_790_000_000, TIME, timezone(timedelta(hours=2))) == "16:13:20"
