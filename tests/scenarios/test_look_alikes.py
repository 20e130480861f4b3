"""Failures that show in one fact alone, each beside the run that only looks like it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from dflash_watch.engine import Engine
from dflash_watch.frame import Frame, GpuProcess, GpuSample, RunSample
from dflash_watch.model import RunOptions
from scenarios.timeline import PID, T0, Timeline, playbooks

GIB = 2**30
PROMISED = RunOptions(expect_tokens_per_s=6000.0)
Cards = Callable[[float], tuple[GpuSample, ...]]


def named(run: Timeline) -> tuple[str, str]:
    return run.last.verdict.value, run.last.failure


# -- the queue ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "failure"),
    [
        ({"drafter-0": {"queue-get": 0.7}, "drafter-1": {"queue-get": 0.6}}, "drafter-starved"),
        ({"target-0": {"queue-put": 0.7}, "target-1": {"queue-put": 0.6}}, "target-blocked"),
        ({"drafter-0": {"queue-get": 0.9}, "drafter-1": {"queue-get": 0.0}}, None),
        ({"target-0": {"queue-put": 0.3}, "target-1": {"queue-put": 0.4}}, None),
    ],
)
def test_the_side_of_the_queue_that_waits_is_the_cause_of_low_throughput(shares, failure):
    run = Timeline.training(30, options=PROMISED)
    run.tokens_per_s, run.wait_shares = 3000.0, shares
    run.go(120)
    assert named(run) == ("slow", failure or "throughput-below-baseline")


@pytest.mark.parametrize("depth", [0, 8])
def test_the_depth_of_a_queue_at_one_moment_blames_neither_side(depth):
    run = Timeline.training(30, options=PROMISED, depth=depth)
    run.go(60)
    assert named(run) == ("running", "healthy")


# -- memory of the cards -----------------------------------------------------------------------

SHORTAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which 0.90 GiB is free. Of the allocated memory {held} GiB is "
    "allocated by PyTorch, and {unused} GiB is reserved by PyTorch but unallocated. If reserved "
    "but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
    "to avoid fragmentation.\n"
)


@pytest.mark.parametrize(
    ("held", "unused", "failure"),
    [("59.00", "17.00", "cuda-oom-fragmented"), ("76.00", "0.10", "cuda-oom")],
)
def test_the_figures_tell_pieces_from_a_full_card_and_the_hint_in_both_tells_nothing(
    held, unused, failure
):
    run = Timeline.foreign(30, crew=())
    run.steps_per_s = 0.0
    run.say(SHORTAGE.format(held=held, unused=unused))
    run.go(1)
    run.process = "gone"
    run.go(20)
    assert named(run) == ("crashed", failure)


def holding(*gibs: int) -> Cards:
    """Cards at work that hold so much each."""
    made = tuple(
        GpuSample(index=index, memory_used_bytes=held * GIB, memory_total_bytes=141 * GIB,
                  utilization_ratio=0.9, sm_ratio=0.7, power_watts=600.0)
        for index, held in enumerate(gibs)
    )  # fmt: skip
    return lambda _: made


@pytest.mark.parametrize(
    ("gibs", "failure"),
    [
        ((54, 54, 97, 43, 97), "memory-uneven"),
        ((54, 54, 97, 90, 97), "healthy"),  # the roles differ, not the siblings
    ],
)
def test_a_card_far_from_the_siblings_of_its_role_is_named(gibs, failure):
    roles = RunOptions(roles={"target": (0, 1), "drafter": (2, 3, 4)})
    run = Timeline.foreign(10, options=roles)
    run.gpus = holding(*gibs)
    run.go(60)
    assert named(run) == ("running", failure)
    assert (run.last.subject == "gpu3") is (failure == "memory-uneven")


# -- a card, or its driver, that does not answer -----------------------------------------------


def one_card(busy: bool, at_full_use: bool = True) -> Cards:
    """The card of the run: at full use by work or by one thread that spins, or at rest."""
    own = GpuProcess(pid=PID, memory_bytes=5 * GIB, pid_space="container")
    used = 0.9 if busy else 0.008 if at_full_use else 0.0
    card = GpuSample(
        index=0, utilization_ratio=float(at_full_use), sm_ratio=used,
        tensor_ratio=0.3 if busy else 0.0, dram_ratio=0.3 if busy else 0.0,
        power_watts=650.0 if busy else 122.0,
        power_limit_watts=700.0, memory_used_bytes=5 * GIB, processes=(own,),
    )  # fmt: skip
    return lambda _: (card,)


@pytest.mark.parametrize("gpm", [True, False])
def test_a_spin_under_our_own_run_is_the_cards_though_its_workers_only_copy(gpm):
    """As a real card showed it: drafters run in a copy to the device, targets wait for room."""

    def cards(t: float) -> tuple[GpuSample, ...]:
        (card,) = one_card(busy=t < fault_t)(t)
        unknown = {} if gpm else {"sm_ratio": None, "tensor_ratio": None, "dram_ratio": None}
        return (msgspec.structs.replace(card, **unknown),)

    fault_t = float("inf")
    run = Timeline.training(30, gpus=cards)
    fault_t = run.t
    run.freeze()
    run.cores = 2.0
    for name in ("drafter-0", "drafter-1"):
        run.workers[name].leaf = "replica.py:_weights;workers.py:run_drafter"
    for name in ("target-0", "target-1"):
        run.wait(name, "queue-put")
    run.go(60)
    assert (named(run), run.last.subject) == (("stalled", "kernel-stuck"), "gpu0")


SYNCHRONIZE = "/s/torch/cuda/__init__.py:synchronize;train.py:step"


@pytest.mark.parametrize("works", [False, True])
def test_a_kernel_that_spins_is_named_and_a_long_one_that_computes_is_not(works):
    run = Timeline.foreign(30, crew=(), gpus=one_card(busy=True))
    run.freeze()
    run.gpus, run.cores, run.main_leaf = one_card(busy=works), 1.0, SYNCHRONIZE
    run.go(60)
    assert named(run) == (("quiet", "unknown") if works else ("stalled", "kernel-stuck"))
    assert run.last.incident is None if works else run.last.incident.ready


@pytest.mark.parametrize(
    ("wchan", "failure"),
    [("uvm_va_space_down_write", "driver-stuck"), ("rpc_wait_bit_killable", "storage-stuck")],
)
def test_where_in_the_kernel_a_process_hangs_tells_the_driver_from_a_mount(wchan, failure):
    run = Timeline.foreign(30, crew=(), gpus=one_card(busy=True))
    run.freeze()
    run.state, run.wchan, run.gpus = "D", wchan, one_card(busy=False, at_full_use=False)
    run.go(40)
    assert named(run) == ("stalled", failure)


# -- words -------------------------------------------------------------------------------------

BARRIER = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/w/train.py", line 9, in <module>
[rank0]:     dist.init_process_group("nccl")
[rank0]:   File "/s/torch/distributed/rendezvous.py", line 189, in _create_c10d_store
[rank0]:     return TCPStore(
[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 \
clients joined.
"""
JOINED = "[rank0]: Waiting in store based barrier to initialize process group for rank: 0\n"


def test_ranks_that_never_came_together_are_named():
    run = Timeline.foreign(0, crew=(), steps_per_s=0.0)
    run.go(5)
    run.say(JOINED)
    run.go(30)
    run.say(BARRIER)
    run.process = "gone"
    run.go(20)
    assert named(run) == ("crashed", "collective-never-started")


def test_a_group_that_waited_for_its_ranks_and_then_trains_is_well():
    run = Timeline.foreign(0, crew=(), steps_per_s=0.0)
    run.go(5)
    run.say(JOINED)
    run.go(10)
    run.steps_per_s = 12.0
    run.go(60)
    assert named(run) == ("running", "healthy")
    assert "collective-never-started" not in {one.failure for one in run.snapshots[-50:]}


RECOMPILES = (
    "W torch._dynamo hit config.recompile_limit (8)\nW torch._dynamo    function: 'forward'\n"
)
TUNED = "W torch._dynamo recompiling function forward: size of x changed from 512 to 640\n"


@pytest.mark.parametrize(
    ("words", "failure"),
    [(RECOMPILES, "recompile-limit"), (TUNED, "throughput-below-baseline")],
    ids=["given-up", "one-more"],
)
def test_a_function_given_up_by_the_compiler_explains_a_slow_run(words, failure):
    run = Timeline.training(30, options=PROMISED)
    run.say(words)
    run.tokens_per_s = 3000.0
    run.go(50)
    assert named(run) == ("slow", failure)


@pytest.mark.parametrize(
    "error", ["permission denied: ptrace_scope is 1", None], ids=["refused", "given"]
)
def test_a_silence_that_no_stack_may_explain_says_so(error):
    run = Timeline.foreign(30, crew=(), stacks_error=error)
    run.freeze()
    run.main_leaf = "train.py:odd"
    run.go(60)
    assert named(run) == ("stalled", "stacks-unavailable" if error else "unknown")


# -- the end -----------------------------------------------------------------------------------


def test_an_error_of_a_rank_after_which_steps_go_on_is_not_what_ended_the_run():
    run = Timeline.foreign(30, crew=())
    run.say(BARRIER)
    run.go(90)
    run.process, run.log_mode = "gone", "silent"
    run.go(20)
    assert named(run) == ("blind", "process-vanished")


@pytest.mark.parametrize("state", ["none", "gone"])
def test_a_run_that_never_was_is_told_from_one_that_is_gone(state):
    engine = Engine(RunOptions(), playbooks())
    for second in range(4):
        run = RunSample(state=state, how="match", note="no process matches train", gone_s=second)
        now = {"seq": second + 1, "t": T0 + second, "boot_s": 5000.0 + second}
        last = engine.advance(Frame(run=run, processes=(), **now))
    assert last.verdict == "blind"
    assert (last.failure == "no-run") is (state == "none")
