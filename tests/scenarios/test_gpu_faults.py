"""GPUs that fail under a run, and those of somebody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dflash_watch.frame import GpuProcess, GpuSample
from scenarios.timeline import PID, Timeline

OWN = GpuProcess(pid=PID, memory_bytes=2**34, pid_space="container")
OTHER = GpuProcess(pid=99, memory_bytes=2**34, pid_space="unknown")
XID = "[{boot:.6f}] NVRM: Xid (PCI:0000:{bus}:00): {text}"


def cards(
    change: Callable[[int], dict[str, Any]] = lambda _: {},
) -> Callable[[float], tuple[GpuSample, ...]]:
    """Four cards; the run is on the first two."""

    def at(_: float) -> tuple[GpuSample, ...]:
        made = []
        for index in range(4):
            row: dict[str, Any] = {
                "memory_used_bytes": 2**34, "utilization_ratio": 0.9, "sm_ratio": 0.7,
                "processes": (OWN if index < 2 else OTHER,), "pci": f"00000000:1{index}:00.0",
                "ecc_uncorrected": 5, "nvlinks_active": 18,
            }  # fmt: skip
            made.append(GpuSample(index=index, **(row | change(index))))
        return tuple(made)

    return at


def on(index: int, **changes: Any) -> Callable[[int], dict[str, Any]]:
    return lambda one: changes if one == index else {}


def lost(index: int) -> Callable[[float], tuple[GpuSample, ...]]:
    gone = GpuSample(index=index, state="lost", errors={"device": "GPU is lost"})
    return lambda t: tuple(gone if one.index == index else one for one in cards()(t))


def begun() -> Timeline:
    run = Timeline.training(5)
    run.gpus = cards()
    run.go(20)
    assert run.last.failure == "healthy"
    return run


def kernel(run: Timeline, bus: str, text: str, ago_s: float = 0.0) -> None:
    run.kernel = (XID.format(boot=run.boot_s - ago_s, bus=bus, text=text),)
    run.go(1)
    run.kernel = None


def test_a_card_of_the_run_that_is_lost_is_critical_at_once():
    run = begun()
    run.gpus = lost(1)
    run.go(5)
    assert (run.last.failure, run.last.subject, run.last.severity) == (
        "gpu-lost", "gpu1", "critical",
    )  # fmt: skip


def test_a_run_that_stands_on_a_lost_card_is_stalled_by_it_though_a_thread_spins():
    run = begun()
    run.gpus = lost(1)
    run.freeze()
    run.cores = 1.0
    run.go(60)
    assert (run.last.verdict, run.last.failure) == ("stalled", "gpu-lost")


def test_somebody_elses_card_that_is_lost_is_no_trouble_of_this_run():
    run = begun()
    run.gpus = lost(3)
    run.go(10)
    assert all(one.failure != "gpu-lost" for one in run.snapshots)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("79, pid=1234, GPU has fallen off the bus.", "gpu-lost"),
        ("48, pid=1234, DBE (double bit error) ECC Error", "gpu-ecc"),
        ("74, pid=1234, NVLink: fatal error detected on link 6", "nvlink-fault"),
        ("31, pid=1234, name=python, MMU Fault: ENGINE GRAPHICS", "kernel-fault"),
    ],
)
def test_a_kernel_line_about_a_card_of_the_run_names_failure_and_card(text, failure):
    run = begun()
    kernel(run, "11:00", text)
    run.freeze()
    run.gpus = cards(lambda _: {"utilization_ratio": 0.0, "sm_ratio": 0.0})
    run.go(60)
    assert (run.last.verdict, run.last.failure, run.last.subject) == ("stalled", failure, "gpu1")
    assert any(fact.source == "host" and "Xid" in fact.text for fact in run.last.evidence)


def test_a_kernel_line_about_somebody_elses_card_says_nothing():
    run = begun()
    kernel(run, "13:00", "79, pid=1234, GPU has fallen off the bus.")
    run.go(20)
    assert run.last.failure == "healthy"
    assert not any(one.name.startswith("logged-") for one in run.last.symptoms)


def test_a_kernel_line_about_a_strangers_process_says_nothing():
    run = begun()
    run.kernel = (
        f"[{run.boot_s:.6f}] Memory cgroup out of memory: Killed process 31540 (python)",
        f"[{run.boot_s:.6f}] nfs: server filer not responding, still trying",
    )
    run.go(20)
    assert run.last.failure == "healthy"
    assert not any(one.name.startswith("logged-") for one in run.last.symptoms)


def test_a_kernel_line_from_before_the_run_is_of_another():
    run = Timeline.ours()
    run.gpus = cards()
    kernel(run, "11:00", "79, pid=1234, GPU has fallen off the bus.", ago_s=300.0)
    run.go(5)
    run.begin_training()
    run.go(30)
    assert not any(one.name.startswith("logged-") for one in run.last.symptoms)


def test_a_kernel_line_that_comes_before_the_driver_said_whose_card_it_is_waits_for_that():
    run = Timeline.training(5)
    kernel(run, "13:00", "79, pid=1234, GPU has fallen off the bus.")
    run.gpus = cards()
    run.go(30)
    assert not any(one.name.startswith("logged-") for one in run.last.symptoms)


@pytest.mark.parametrize(
    ("changes", "failure"),
    [({"ecc_uncorrected": 7}, "gpu-ecc"), ({"nvlinks_active": 16}, "nvlink-fault")],
)
def test_counters_that_turn_bad_on_a_card_of_the_run_are_critical(changes, failure):
    run = begun()
    run.gpus = cards(on(1, **changes))
    run.go(5)
    assert (run.last.failure, run.last.subject, run.last.severity) == (failure, "gpu1", "critical")


@pytest.mark.parametrize("changes", [{"ecc_uncorrected": 7}, {"nvlinks_active": 16}])
def test_the_same_on_somebody_elses_card_is_not_this_runs(changes):
    run = begun()
    run.gpus = cards(on(2, **changes))
    run.go(10)
    assert run.last.failure == "healthy"


@pytest.mark.parametrize("used", [lambda t: 60 + 4 * (t % 3), lambda t: 20 + 0.2 * (t % 1000)])
def test_memory_of_somebody_elses_card_says_nothing_of_this_run(used):
    run = begun()
    begin = run.t

    def at(t: float) -> tuple[GpuSample, ...]:
        held = int(used(int(t - begin)) * 2**30)
        return cards(on(3, memory_used_bytes=held, memory_total_bytes=141 * 2**30))(t)

    run.gpus = at
    run.go(120)
    assert {one.failure for one in run.snapshots[-120:]} == {"healthy"}


def test_clocks_of_somebody_elses_card_say_nothing_of_this_run():
    run = begun()
    run.gpus = cards(on(3, sm_clock_mhz=600, clock_reasons=0x20))
    run.go(60)
    assert run.last.failure == "healthy"


def test_work_on_somebody_elses_card_does_not_hide_a_stall():
    run = begun()
    run.freeze()
    still = {"utilization_ratio": 0.0, "sm_ratio": 0.0}
    run.gpus = cards(lambda index: still if index < 2 else {})
    run.go(60)
    assert run.last.verdict == "stalled"


def events(run: Timeline, index: int, *numbers: int) -> None:
    """A look in which the driver's events tell these Xids of a card."""
    before = run.gpus
    run.gpus = cards(on(index, xids=numbers))
    run.go(1)
    run.gpus = before


@pytest.mark.parametrize(
    ("number", "failure"), [(79, "gpu-lost"), (94, "gpu-ecc"), (74, "nvlink-fault")]
)
def test_an_xid_that_came_as_an_event_names_failure_and_card_where_no_kernel_log_is_read(
    number, failure
):
    run = begun()
    events(run, 1, number)
    run.freeze()
    run.gpus = cards(lambda _: {"utilization_ratio": 0.0, "sm_ratio": 0.0})
    run.go(60)
    assert (run.last.verdict, run.last.failure, run.last.subject) == ("stalled", failure, "gpu1")


@pytest.mark.parametrize("event_first", [True, False])
def test_an_xid_that_came_both_ways_is_told_once(event_first):
    run = begun()
    steps = [lambda: events(run, 1, 94), lambda: kernel(run, "11:00", "94, pid=7, Contained")]
    for step in steps if event_first else reversed(steps):
        step()
    run.go(3)
    told = [one for one in run.last.symptoms if one.name == "logged-gpu-ecc"]
    assert len(told) == 1
    assert len(told[0].evidence) == 1
    seen = run.engine.window.logs.signatures
    assert [one.failure for one in seen if one.path == "kernel"] == ["gpu-ecc"]


def test_an_event_about_somebody_elses_card_says_nothing():
    run = begun()
    events(run, 3, 79)
    run.go(20)
    assert run.last.failure == "healthy"
    assert not run.last.symptoms


def test_an_xid_that_no_playbook_knows_is_told_in_words_and_alarms_nobody():
    run = begun()
    kernel(run, "11:00", "45, pid=4242, name=python, Ch 00000008")
    run.go(5)
    told = [one for one in run.last.symptoms if one.name == "xid-told"]
    assert [(one.subject, one.severity) for one in told] == [("gpu1", "info")]
    assert "process 4242 python" in told[0].summary
    assert "a program's own fault" in told[0].summary
    assert (run.last.verdict, run.last.failure) == ("running", "healthy")


def test_the_words_of_a_known_xid_stand_in_the_evidence():
    run = begun()
    kernel(run, "11:00", "48, pid=1234, DBE (double bit error) ECC Error")
    run.freeze()
    run.gpus = cards(lambda _: {"utilization_ratio": 0.0, "sm_ratio": 0.0})
    run.go(60)
    assert any("cannot be corrected: the hardware" in fact.text for fact in run.last.evidence)


@pytest.mark.parametrize(("bus", "is_told"), [("11", True), ("13", False), ("42", False)])
def test_a_line_of_the_bus_counts_only_when_it_names_a_card_of_the_run(bus, is_told):
    run = begun()
    line = f"pcieport 0000:0f:00.0: AER: Uncorrected (Fatal) error received: 0000:{bus}:00.0"
    run.kernel = (f"[{run.boot_s:.6f}] {line}",)
    run.go(1)
    run.kernel = None
    run.freeze()
    run.gpus = cards(lambda _: {"utilization_ratio": 0.0, "sm_ratio": 0.0})
    run.go(60)
    assert run.last.verdict == "stalled"
    assert (run.last.failure == "gpu-lost") is is_told


def named(count: int, *left_out: int) -> Callable[[float], tuple[GpuSample, ...]]:
    """Cards with UUIDs, numbered anew without those left out; the run is on 1 and 2."""

    def at(_: float) -> tuple[GpuSample, ...]:
        there = [one for one in range(count) if one not in left_out]
        return tuple(
            GpuSample(
                index=index, uuid=f"GPU-{one}", pci=f"00000000:1{one}:00.0", sm_ratio=0.7,
                memory_used_bytes=2**34 + one, utilization_ratio=0.9,
                processes=(OWN if one in (1, 2) else OTHER,),
            )
            for index, one in enumerate(there)
        )  # fmt: skip

    return at


def test_a_card_that_leaves_the_list_is_lost_and_those_that_move_up_keep_their_past():
    run = Timeline.training(5)
    run.gpus = named(4)
    run.go(20)
    run.gpus = named(4, 1)
    run.go(3)
    assert (run.last.failure, run.last.subject, run.last.severity) == (
        "gpu-lost", "gpu1", "critical",
    )  # fmt: skip
    assert "not listed any more" in run.last.summary
    tracks = run.engine.window.gpus.tracks
    assert {index: one.uuid for index, one in tracks.items()} == {
        0: "GPU-0", 1: "GPU-2", 2: "GPU-3",
    }  # fmt: skip
    assert all(len(one.looks) >= 20 for one in tracks.values())
    run.gpus = named(4)
    run.go(3)
    assert run.last.failure == "healthy"
    assert len(run.engine.window.gpus.tracks[1].looks) >= 20


def test_somebody_elses_card_that_leaves_the_list_is_no_trouble_of_this_run():
    run = Timeline.training(5)
    run.gpus = named(4)
    run.go(20)
    run.gpus = named(4, 0)
    run.go(5)
    assert run.last.failure == "healthy"
    run.gpus = named(4, 0, 3)
    run.go(5)
    assert run.last.failure == "healthy"
