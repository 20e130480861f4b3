"""Runs whose figures go wrong, each beside the healthy run that looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from dflash_watch.frame import GpuProcess, GpuSample, HostSample, ProcessSample, Ticker
from dflash_watch.model import RunOptions
from scenarios.timeline import PID, Timeline

GIB, MIB = 2**30, 2**20


def named(run: Timeline) -> set[str]:
    """Every failure that was ever named, apart from starting up."""
    return {one.failure for one in run.snapshots} - {"loading", "unknown", "no-run"}


class Grown(Timeline):
    """A run whose own memory, host and GPU are functions of the seconds since it began."""

    own: Callable[[float], int] | None = None
    busy: float | None = None
    ticker: Callable[[float], Ticker] | None = None

    def _processes(self) -> tuple[ProcessSample, ...]:
        main, *rest = super()._processes()
        if self.own is not None:
            held = self.own(self.t - self._started_t)
            main = msgspec.structs.replace(main, anon_bytes=held)
        return (main, *rest)

    def frame(self) -> Any:
        host = HostSample(cpus=8, load1=1.0, memory_available_bytes=20 * GIB,
                          cpu_busy_ratio=self.busy)  # fmt: skip
        frame = msgspec.structs.replace(super().frame(), host=host)
        if self.ticker is not None and frame.beats is not None:
            beats = msgspec.structs.replace(frame.beats, ticker=self.ticker(self.t))
            frame = msgspec.structs.replace(frame, beats=beats)
        return frame


# -- nan ---------------------------------------------------------------------------------------


def report(run: Timeline, loss: float | None, norm: float | None = 1.0) -> None:
    step = int(run.steps)
    run.event("throughput", step=step, loss=loss, grad_norm=norm, tokens_per_s=6000.0)
    for what, value in (("loss", loss), ("grad_norm", norm)):
        if value is None:
            run.event("numeric", step=step, what=what, value="nan")
    run.go(1)


def test_a_loss_that_is_nan_in_each_report_is_critical_though_steps_go_on():
    run = Timeline.training(20, throughput_every=10_000)
    for loss in (2.0, 1.9, None, None, None, None):
        report(run, loss, None if loss is None else 1.0)
    assert (run.last.verdict, run.last.failure, run.last.severity) == (
        "running", "nan-loss", "critical",
    )  # fmt: skip
    assert "since step" in run.last.summary


@pytest.mark.parametrize(
    "losses", [(None, 2.1, 2.0, 1.9, 1.8), (2.0, None, 1.9, None, 1.8), (None, None, 2.0, 1.9, 1.8)]
)
def test_single_overflows_and_a_first_window_are_harmless(losses):
    run = Timeline.training(20, throughput_every=10_000)
    for loss in losses:
        report(run, loss)
    assert named(run) == {"healthy"}


def test_a_foreign_log_with_nan_on_each_line_is_critical():
    run = Timeline.foreign(10, log_mode="none", steps_per_s=0.0)
    run.log_mode = "lines"
    run.steps_per_s = 0.0
    for step in range(1, 12):
        run.say(f"step {step} loss {'nan' if step > 5 else 2.5} grad_norm 1.0\n")
        run.go(1)
    assert run.last.failure == "nan-loss"


def test_a_foreign_log_with_one_nan_norm_at_the_start_is_well():
    run = Timeline.foreign(10, steps_per_s=0.0)
    for step in range(1, 12):
        run.say(f"step {step} loss 2.5 grad_norm {'nan' if step == 1 else 3.9}\n")
        run.go(1)
    assert named(run) == {"healthy"}


def test_one_rank_of_two_that_prints_nan_is_named():
    run = Timeline.foreign(5, steps_per_s=0.0)
    for step in range(1, 12):
        run.say(f"[rank0]: step {step} loss 2.5\n[rank1]: step {step} loss nan\n")
        run.go(1)
    assert (run.last.failure, run.last.subject) == ("nan-loss", "rank-1")


# -- memory ------------------------------------------------------------------------------------


def grown(own: Callable[[float], int], seconds: float) -> Grown:
    run = Grown.training(5)
    run.own = own
    run.go(seconds)
    return run


def test_host_memory_that_climbs_with_each_step_is_a_leak_and_says_how_long_it_lasts():
    run = grown(lambda s: int(GIB + 40 * MIB * s), 90)
    assert (run.last.failure, run.last.subject, run.last.verdict) == (
        "memory-leak", "run", "running",
    )  # fmt: skip
    assert "what is left lasts" in run.last.summary


def test_a_slow_leak_is_seen_within_the_hour():
    run = grown(lambda s: int(4 * GIB + 1.5 * MIB * s), 60)
    assert named(run) == {"healthy"}
    for _ in range(640):
        run.go(3, every_s=3.0)
        del run.records[:-4], run.snapshots[:-4]
    assert run.last.failure == "memory-leak"


@pytest.mark.parametrize(
    "own",
    [
        lambda s: int(GIB + 40 * MIB * min(s, 40)),  # caches fill, then it is flat
        lambda s: int(GIB + 2 * GIB * (1 - 2 ** (-s / 20))),  # levels off
        lambda s: int(GIB + 300 * MIB * (s // 30)),  # a new length now and then
        lambda s: int(GIB + 30 * MIB * (s % 20)),  # filled and given back
        lambda s: int(GIB + 0.05 * MIB * s),  # grows, and would last for days
    ],
)
def test_memory_that_moves_without_running_out_is_no_leak(own):
    assert named(grown(own, 200)) == {"healthy"}


def cards(used: Callable[[float], float], **more: Any) -> Callable[[float], tuple[GpuSample, ...]]:
    """Two cards of the run; the first one holds so many GiB at each moment."""

    def at(t: float) -> tuple[GpuSample, ...]:
        held = (used(t), 60.0)
        return tuple(
            GpuSample(
                index=i, memory_used_bytes=int(gib * GIB), memory_total_bytes=141 * GIB,
                utilization_ratio=0.9, power_watts=600.0, sm_ratio=0.8, **({} if i else more),
            )
            for i, gib in enumerate(held)
        )  # fmt: skip

    return at


def test_device_memory_that_climbs_names_its_gpu():
    run = Timeline.training(5)
    begin = run.t
    run.gpus = cards(lambda t: 60 + 0.15 * (t - begin))
    run.go(90)
    assert (run.last.failure, run.last.subject) == ("memory-leak", "gpu0")


def test_lengths_that_each_add_once_are_neither_a_leak_nor_churn():
    run = Timeline.training(5)
    begin = run.t
    run.gpus = cards(lambda t: 60 + 6 * min((t - begin) // 40, 6))
    run.go(330)
    assert named(run) == {"healthy"}


def test_memory_that_goes_up_and_down_is_churn_and_is_told_beside_the_speed_it_costs():
    options = RunOptions(expect_tokens_per_s=14_200.0)
    run = Timeline.training(5, options=options, tokens_per_s=11_000.0)
    run.gpus = cards(lambda t: 60 + 4 * (int(t) % 3))
    run.go(120)
    assert (run.last.verdict, run.last.failure) == ("slow", "throughput-below-baseline")
    assert "memory-volatile" in [one.failure for one in run.last.candidates]
    assert any("goes up and down" in fact.text for fact in run.last.evidence)


def test_churn_alone_is_told_and_worries_nobody():
    run = Timeline.training(5)
    run.gpus = cards(lambda t: 60 + 4 * (int(t) % 3))
    run.go(120)
    assert (run.last.verdict, run.last.failure, run.last.severity) == (
        "running", "memory-volatile", "info",
    )  # fmt: skip


OWN = GpuProcess(pid=PID, memory_bytes=59 * GIB, pid_space="container")


def test_a_stranger_on_a_card_of_the_run_is_named():
    run = Timeline.training(5)
    stranger = GpuProcess(pid=77, memory_bytes=20 * GIB)
    run.gpus = cards(lambda _: 80.0, processes=(OWN, stranger))
    run.go(20)
    assert (run.last.failure, run.last.subject) == ("gpu-memory-foreign", "gpu0")
    assert "(77)" in run.last.summary


def test_memory_without_any_process_is_named():
    run = Timeline.training(5)
    run.gpus = cards(lambda _: 90.0, processes=(OWN,))
    run.go(20)
    assert run.last.failure == "gpu-memory-foreign"
    assert "no process that is listed" in run.last.summary


@pytest.mark.parametrize(
    "listed",
    [
        (OWN,),
        (OWN, GpuProcess(pid=77, memory_bytes=200 * MIB)),  # a display
        (GpuProcess(pid=99_999, memory_bytes=59 * GIB),),  # numbers of another namespace
        (),
        (GpuProcess(pid=PID, pid_space="container"),),  # the driver hides how much
    ],
)
def test_what_is_the_runs_own_or_cannot_be_told_is_nobodys(listed):
    run = Timeline.training(5)
    run.gpus = cards(lambda _: 60.0, processes=listed)
    run.go(20)
    assert named(run) == {"healthy"}


# -- clocks, lock, acceptance, kernels ---------------------------------------------------------


def clocked(clock: int, reasons: int, used: float) -> Callable[[float], tuple[GpuSample, ...]]:
    def at(_: float) -> tuple[GpuSample, ...]:
        return tuple(
            GpuSample(
                index=i, utilization_ratio=used, sm_ratio=used, power_watts=500.0,
                sm_clock_mhz=clock if i == 3 else 1500, clock_reasons=reasons if i == 3 else 4,
            )
            for i in range(4)
        )  # fmt: skip

    return at


@pytest.mark.parametrize("reasons", [0x20, 0x40, 0x80, 0x08])
def test_a_card_that_is_held_down_while_it_works_is_named(reasons):
    run = Timeline.training(5)
    run.gpus = clocked(900, reasons, 0.98)
    run.go(60)
    assert (run.last.failure, run.last.subject) == ("gpu-throttled", "gpu3")


def test_a_card_far_below_its_siblings_is_named_though_the_driver_tells_no_reason():
    run = Timeline.training(5)
    run.gpus = clocked(500, 0, 0.98)
    run.go(60)
    assert run.last.failure == "gpu-throttled"
    assert "33 % of its siblings" in run.last.summary


@pytest.mark.parametrize(
    ("clock", "reasons", "used"),
    [
        (345, 0x01, 0.0),  # idle
        (1300, 0x04, 0.99),  # its own power limit under full load
        (600, 0x20, 0.1),  # hardly in use
    ],
)
def test_clocks_that_drop_for_ordinary_reasons_are_left_alone(clock, reasons, used):
    run = Timeline.training(5)
    run.gpus = clocked(clock, reasons, used)
    run.go(60)
    assert named(run) == {"healthy"}


def late(late_s: float, delay_s: float | None) -> Callable[[float], Ticker]:
    """A ticker whose each beat comes so late, of which so much is the machine's."""

    def at(t: float) -> Ticker:
        beats = int(10 * (t % 1e6))
        waited_s = None if delay_s is None else delay_s * beats
        return Ticker(beats=beats, age_s=0.05, late_s=late_s, max_late_s=late_s,
                      run_delay_s=waited_s)  # fmt: skip

    return at


@pytest.mark.parametrize(
    ("busy", "late_s", "delay_s", "failure"),
    [
        (0.3, 0.06, None, "gil-contention"),
        (0.99, 0.25, 0.002, "gil-contention"),
        (0.99, 0.06, 0.05, "healthy"),  # the machine's
        (0.99, 0.06, None, "healthy"),  # cannot be told
        (None, 0.06, None, "healthy"),
        (0.3, 0.004, None, "healthy"),
    ],
)
def test_lateness_of_the_ticker_is_the_locks_only_when_the_machine_does_not_explain_it(
    busy, late_s, delay_s, failure
):
    run = Grown.training(5)
    run.busy, run.ticker = busy, late(late_s, delay_s)
    run.go(60)
    assert run.last.failure == failure


def test_drafts_that_are_not_accepted_as_estimated_are_a_warning():
    run = Timeline.training(5)
    for true in (1.1, 1.0):
        run.event("quality", step=int(run.steps), acceptance_length=true, estimate=4.1)
        run.go(5)
    assert (run.last.failure, run.last.severity) == ("acceptance-gap", "warning")


@pytest.mark.parametrize(
    "measures", [((1.0, 1.1), (1.0, 1.2)), ((3.9, 4.1), (1.2, 4.1)), ((3.6, 4.1), (3.7, 4.2))]
)
def test_a_young_drafter_one_bad_measure_and_a_small_gap_are_well(measures):
    run = Timeline.training(5)
    for true, estimate in measures:
        run.event("quality", step=int(run.steps), acceptance_length=true, estimate=estimate)
        run.go(5)
    assert named(run) == {"healthy"}


UNAVAILABLE = "The fast path is not available because one of the required library is not installed."
REFERENCE = "falling back to its reference PyTorch implementation"


@pytest.mark.parametrize(
    "line",
    [UNAVAILABLE, f"`causal_conv1d_fn` is {REFERENCE} because it is not installed."],
    ids=["one-line", "per-kernel"],
)
@pytest.mark.parametrize("on_gpus", [True, False], ids=["gpus", "cpu"])
def test_kernels_that_are_not_bound_are_told_on_gpus_and_not_on_a_cpu(line, on_gpus):
    run = Timeline.foreign(5)
    run.say(f"{line}\n")
    run.go(20)
    assert named(run) == {"healthy"}
    run.gpus = cards(lambda _: 60.0, processes=(OWN,)) if on_gpus else None
    run.go(5)
    assert run.last.failure == ("kernels-missing" if on_gpus else "healthy")
