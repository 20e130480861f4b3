"""A living run that says what is wrong and ends: its words name it, ordinary ones nothing."""

from __future__ import annotations

import pytest
from scenarios.timeline import Timeline

WORDS = {
    "autotuner-race": """\
Traceback (most recent call last):
  File "triton/runtime/autotuner.py", line 1, in run
    full_nargs = {**self.nargs, **kwargs}
TypeError: 'NoneType' object is not a mapping
""",
    "fx-trace-race": """\
Traceback (most recent call last):
  File "torch/_dynamo/eval_frame.py", line 1, in _fn
RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function.
""",
    "triton-cache-race": "ImportError: /h/.triton/cache/K/l.so: Stale file handle\n",
    "kernel-out-of-resources": "OutOfResources: out of resource: shared memory, Required: 147456\n",
    "collective-timeout": "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(9)\n",
    "network-fault": "NET/IB : Got completion from peer 10.0.0.2<39138> with error 12, opcode 0\n",
    "cuda-oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 270.00 MiB.\n",
    "gpu-lost": "NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.\n",
    "gpu-ecc": "RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
    "nvlink-fault": "RuntimeError: CUDA error: uncorrectable NVLink error detected\n",
    "kernel-fault": "RuntimeError: CUDA error: device-side assert triggered\n",
    "loss-scale-collapse": "Exception: Current loss scale already at minimum - cannot decrease\n",
    "disk-full": "OSError: [Errno 28] No space left on device: '/runs/a/checkpoints/9.pt'\n",
    "fd-exhausted": "OSError: [Errno 24] Too many open files: '/data/7.tar'\n",
}
ORDINARY = (
    "OutOfResources: out of resource: shared memory, Required: 262144. Ignoring this choice.\n"
    "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n"
    "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n"
    "Error logging is enabled; killed workers are restarted; timeout is 600 s\n"
    "Using /h/.cache/torch_extensions/py311_cu121 as PyTorch extensions root...\n"
    "wandb: Network error (ConnectTimeout), entering retry loop.\n"
    "found inf in gradients, skipping this step\n"
)
ALIKE = {
    "autotuner-race": "TypeError: 'NoneType' object is not a mapping\n",
    "fx-trace-race": "torch._dynamo.exc.Unsupported: Graph break in user code\n",
    "triton-cache-race": "OSError: [Errno 116] Stale file handle: '/data/7.tar'\n",
    "collective-timeout": "requests.exceptions.ReadTimeout: Read timed out. (read timeout=10)\n",
    "kernel-fault": "IndexError: index 512 is out of bounds for dimension 0 with size 512\n",
}
"""What the user's own code says in nearly the same words."""


@pytest.mark.parametrize("failure", ALIKE)
def test_the_same_words_of_a_users_own_code_are_not_that_failure(failure):
    run = Timeline.foreign(30, crew=())
    run.steps_per_s = 0.0
    run.say('Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n')
    run.say("    options = {**defaults, **given}\n" + ALIKE[failure])
    run.go(1)
    run.process = "gone"
    run.go(20)
    assert run.last.verdict == "crashed"
    assert run.last.failure != failure


@pytest.mark.parametrize("failure", WORDS)
def test_the_last_words_of_a_run_name_its_failure(failure):
    run = Timeline.foreign(0, crew=())
    run.go(30)
    run.steps_per_s = 0.0
    run.say(WORDS[failure])
    run.go(1)
    run.process = "gone"
    run.go(20)
    assert (run.last.verdict, run.last.failure) == ("crashed", failure), run.last.summary


def test_a_run_that_only_talks_of_such_things_stays_well():
    run = Timeline.foreign(0, crew=())
    run.go(30)
    run.say(ORDINARY)
    run.go(60)
    assert run.verdicts()[-1] == "running"
    assert run.incidents() == []
    assert not {one.failure for one in run.snapshots} - {"healthy", "unknown", "loading"}
