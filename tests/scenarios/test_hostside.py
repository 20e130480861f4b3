"""What the host of a container adds: it names more, and nothing of it is taken for the run's."""

from __future__ import annotations

from typing import Any

import msgspec
from dflash_watch.engine import Engine
from dflash_watch.frame import ContainerSample, Gap, GpuProcess, GpuSample, HostFrame, KernelLine
from dflash_watch.guard import Guard
from dflash_watch.model import RunOptions
from dflash_watch.render.jsonl import render_json
from dflash_watch.window.hostside import STALE_S
from fuzz.evil_frames import Chooser, described, value_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios.test_gpu_faults import OWN, cards
from scenarios.timeline import PID, Timeline, playbooks

MISMATCH = "driver/library version mismatch: running jobs go on"
ABSENT = "no NVIDIA library (libnvidia-ml.so.1) here: no GPU, or its user space is not in this"


class Host:
    """The second agent of a timeline."""

    def __init__(self, run: Timeline) -> None:
        self.run, self.seq = run, 0

    def says(self, **facts: Any) -> None:
        """One look; keys of the container and of the record."""
        own = {
            key: facts.pop(key) for key in tuple(facts) if key in ContainerSample.__struct_fields__
        }
        container = ContainerSample(name="container 200", **({"frozen": False} | own))
        facts = {"container": container} | facts
        frame = HostFrame(seq=self.seq, t=self.run.t, boot_s=self.run.boot_s, **facts)
        self.seq += 1
        self.run.feed(frame)


def settled(run: Timeline) -> tuple[str, str]:
    return run.last.verdict.value, run.last.failure


def test_a_frozen_container_is_named_within_seconds_and_the_run_is_as_before_afterwards():
    run = Timeline.training(options=RunOptions(where="box · ct 200"))
    host = Host(run)
    host.says()
    host.says(frozen=True, lock="backup")
    assert settled(run)[0] == "running"  # a snapshot's freeze is shorter
    run.unseen(2, frozen=True)
    assert settled(run) == ("blind", "watch-lost")
    assert "container 200 is frozen (locked: backup)" in run.last.summary
    assert run.last.views["link"].startswith("gap: container 200 is frozen")
    run.unseen(600, frozen=True)
    assert settled(run) == ("blind", "watch-lost")
    assert run.last.next[0].startswith("on box: grep lock: /etc/pve/lxc/200.conf")
    host.says()
    assert "is frozen" in run.last.summary  # until a frame has come
    run.go(20)
    assert settled(run) == ("running", "healthy")
    assert run.incidents() == []
    assert run.verdicts() == ["initialising", "running", "blind", "running"]


def test_frames_that_stay_away_after_a_thaw_are_a_loss_of_their_own():
    run = Timeline.training()
    host = Host(run)
    host.says(frozen=True)
    run.unseen(5, frozen=True)
    host.says(frozen=False)
    run.unseen(15)
    assert settled(run) == ("blind", "watch-lost")
    assert "no frame for" in run.last.summary


def test_a_frame_made_after_the_freeze_was_seen_proves_the_thaw():
    run = Timeline.training()
    Host(run).says(frozen=True)
    run.unseen(3, frozen=True)
    assert settled(run) == ("blind", "watch-lost")
    run.go(2)
    assert settled(run)[0] == "running"


def test_a_kill_that_only_the_hosts_kernel_log_tells_is_host_oom():
    run = Timeline.training()
    host = Host(run)
    host.says(oom_kills=0)
    text = "[9.1] Memory cgroup out of memory: Killed process 71234 (python) total-vm:9kB"
    host.says(oom_kills=0, kernel=(KernelLine(text=text, about="container", pid=PID),))
    run.process = "gone"
    run.go(8)
    assert settled(run) == ("crashed", "host-oom")
    assert any(
        "kernel of the host" in one.text and "71234" in one.text for one in run.last.evidence
    )


def test_a_kill_told_by_the_counter_of_the_containers_group_is_host_oom():
    run = Timeline.training()
    run.oom_kills = 0
    host = Host(run)
    host.says(oom_kills=3)
    run.go(3)
    host.says(oom_kills=4)
    run.process = "gone"
    run.go(8)
    assert settled(run) == ("crashed", "host-oom")


def test_the_same_number_on_the_host_is_nobody_of_the_run():
    """A process of another container had the host's number that ours has inside."""
    run = Timeline.training()
    text = f"[9.1] Memory cgroup out of memory: Killed process {PID} (python) total-vm:9kB"
    Host(run).says(oom_kills=0, kernel=(KernelLine(text=text, about="other"),))
    run.process = "gone"
    run.go(8)
    assert run.last.failure != "host-oom"


def test_cards_that_the_container_cannot_read_are_read_on_the_host():
    run = Timeline.training(5)
    run.gaps = (Gap(source="gpu", reason=MISMATCH),)
    host = Host(run)
    for _ in range(10):
        host.says(gpus=cards()(0.0), gpu_driver="580")
        run.go(1)
    assert settled(run) == ("running", "healthy")
    assert [row.state for row in run.last.board.gpus] == ["ok"] * 4
    assert run.last.views["gpu"] == f"ok, read on the host (in the container: {MISMATCH})"
    run.go(30)  # the host no longer answers
    assert run.last.views["gpu"].startswith("gap: ")


def test_cards_of_a_host_whose_container_has_none_are_not_the_runs():
    run = Timeline.training(5)
    run.gaps = (Gap(source="gpu", reason=ABSENT),)
    strangers = tuple(
        msgspec.structs.replace(one, processes=(GpuProcess(pid=99, pid_space="host"),))
        for one in cards()(0.0)
    )
    host = Host(run)
    host.says(gpus=strangers)
    run.go(3)
    assert run.last.board.gpus == ()
    host.says(gpus=cards()(0.0))
    run.go(1)
    assert len(run.last.board.gpus) == 4


def test_numbers_that_an_old_driver_gives_in_the_hosts_space_are_told_apart():
    """Finding 12: before they were the caller's they were the host's."""

    def by_host_numbers(_: float) -> tuple[GpuSample, ...]:
        used = GpuProcess(pid=71234, memory_bytes=OWN.memory_bytes, pid_space="unknown")
        return (GpuSample(index=0, memory_used_bytes=2**34, processes=(used,)),)

    run = Timeline.training(5, gpus=by_host_numbers)
    assert run.engine.window.gpus.tracks[0].pids == {71234}
    Host(run).says(pids={"71234": PID})
    run.go(1)
    assert run.engine.window.gpus.tracks[0].pids == {PID}


def test_an_xid_that_only_the_host_can_read_names_the_card_of_the_run():
    run = Timeline.training(5)
    run.gpus = cards()
    run.go(20)
    lines = [
        f"[{run.boot_s:.6f}] NVRM: Xid (PCI:0000:{bus}:00): 79, GPU has fallen off the bus."
        for bus in ("11", "13")  # the run is on the first two of four
    ]
    marked = tuple(KernelLine(text=line, about="machine") for line in lines)
    host = Host(run)
    host.says(kernel=marked)
    host.says(kernel=marked)
    run.go(3)
    assert (run.last.failure, run.last.subject) == ("gpu-lost", "gpu1")
    found = [one for one in run.engine.window.logs.signatures if one.path == "kernel"]
    assert len(found) == 1


def test_a_host_that_may_not_be_looked_at_is_said_and_changes_nothing():
    run = Timeline.training(10)
    reason = "sshd opens no further session on this connection (MaxSessions)"
    gaps = (Gap(source="container-host", reason=reason),)
    run.feed(HostFrame(seq=0, t=run.t, boot_s=0.0, gaps=gaps))
    run.go(10)
    assert settled(run) == ("running", "healthy")
    assert run.last.views["container-host"] == f"none: {reason}"
    assert reason not in str(run.last.evidence)


def test_without_a_second_agent_nothing_is_said_of_one_as_in_older_recordings():
    run = Timeline.training(10)
    assert "container-host" not in run.last.views


def test_a_recording_with_the_hosts_words_gives_the_same_when_it_is_played_again():
    run = Timeline.training(10)
    host = Host(run)
    host.says(oom_kills=0)
    host.says(frozen=True)
    run.unseen(5, frozen=True)
    host.says(frozen=False)
    run.go(5)
    engine = Engine(RunOptions(), playbooks())
    again = [engine.advance(record) for record in run.records]
    told = [(one.verdict, one.failure, one.summary) for one in run.snapshots]
    assert [(one.verdict, one.failure, one.summary) for one in again] == told


def test_storage_that_does_not_answer_is_told_with_the_words_of_the_hosts_kernel():
    run = Timeline.training()
    run.freeze()
    run.state, run.wchan = "D", "rpc_wait_bit_killable"
    lines = (
        KernelLine(text=f"[{run.boot_s:.6f}] nfs: server filer not responding", about="machine"),
        KernelLine(text="[1.0] nfs: server other not responding", about="machine"),
        KernelLine(
            text=f"[{run.boot_s:.6f}] INFO: task x:9 blocked for more than 120 seconds.",
            about="other",
        ),
    )
    Host(run).says(kernel=lines)
    run.go(30)
    assert settled(run) == ("stalled", "storage-stuck")
    told = [one.text for one in run.last.evidence if one.text.startswith("kernel: ")]
    assert len(told) == 1
    assert "server filer not responding" in told[0]


def test_a_cpu_limit_that_holds_the_container_back_is_evidence_of_a_slow_run():
    run = Timeline.training(5, options=RunOptions(expect_tokens_per_s=14_000.0))
    host = Host(run)
    for second in range(80):
        host.says(throttled_s=0.9 * second, memory_stall_ratio=0.0)
        run.go(1)
    assert settled(run) == ("slow", "throughput-below-baseline")
    told = [one.text for one in run.last.evidence]
    assert "the CPU limit holds the container back for 0.9 s in each second" in told


def test_a_container_that_waits_for_memory_is_evidence_of_a_slow_run():
    run = Timeline.training(5, options=RunOptions(expect_tokens_per_s=14_000.0))
    host = Host(run)
    for _ in range(80):
        host.says(memory_stall_ratio=0.35)
        run.go(1)
    told = [one.text for one in run.last.evidence]
    assert "processes of the container wait for memory for 35 % of the time" in told


@settings(max_examples=20, deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6))
def test_whatever_a_host_says_the_run_is_judged_by_its_own_frames(choices: list[bytes]):
    run = Timeline.training(3)
    for data in choices:
        made = value_of(described(HostFrame), Chooser(data), 0)
        run.feed(Guard().admit(msgspec.convert(made, HostFrame)))
        run.go(1)
        render_json(run.last)
    run.go(STALE_S + 1)
    assert settled(run)[0] == "running"
