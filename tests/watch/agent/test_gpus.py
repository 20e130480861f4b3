"""GPUs through the fake driver's real ABI: the sampler alone, and the whole agent for hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest
from dflash_watch.agent.nvmlerrors import explain
from dflash_watch.agent.nvmlgpu import thinned
from fake_nvml import FakeNvml
from watch.agent.driving import AgentProcess, wait_for

Start = Callable[..., AgentProcess]
SAMPLER = """
import json, sys, time
from dflash_watch.agent.nvml import Sampler
sampler = Sampler("/proc", sys.argv[1])
pids = json.loads(sys.argv[2])
for line in sys.stdin:
    print(json.dumps(sampler.read(pids)), flush=True)
"""


class SamplerProcess:
    """The GPU sampler in an interpreter of its own: the binding loads a library only once."""

    def __init__(self, library: Path | str, pids: list[int]) -> None:
        here = Path(__file__).parents[3]
        path = os.pathsep.join([str(here / "watchdog"), str(here / "dflash")])
        self.process = subprocess.Popen(
            [sys.executable, "-c", SAMPLER, str(library), json.dumps(pids)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )

    def read(self) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def until(self, wanted: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def look() -> bool:
            found.update(self.read())
            return bool(wanted(found))

        wait_for(look, 20.0)
        return found


@pytest.fixture
def sampler(fake_nvml: FakeNvml):
    started = []

    def start(*pids: int, library: Path | str = fake_nvml.library) -> SamplerProcess:
        started.append(SamplerProcess(library, list(pids)))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
        each.process.stdin.close()
        each.process.stdout.close()


def test_eight_gpus_come_with_every_fast_field(fake_nvml, sampler):
    fake_nvml.gpu(2, util=99, power_mw=690_000, temp_c=61, sm_mhz=1980, reasons=0, used=70 << 30)
    answer = sampler().read()
    gpu = answer["gpus"][2]
    assert [row["index"] for row in answer["gpus"]] == list(range(8))
    assert answer["gpu_driver"] == "580.159.04"
    assert (gpu["utilization_ratio"], gpu["power_watts"], gpu["temperature_celsius"]) == (
        0.99,
        690,
        61,
    )
    assert (gpu["sm_clock_mhz"], gpu["clock_reasons"]) == (1980, 0)
    assert (gpu["memory_used_bytes"], gpu["memory_total_bytes"]) == (70 << 30, 150754820096)
    assert gpu["power_limit_watts"] == 700
    assert gpu["errors"] == {}


def test_history_is_read_once_and_never_twice(fake_nvml, sampler):
    fake_nvml.gpus(1)
    fake_nvml.gpu(0, util=80)
    run = sampler()
    first = run.read()["gpus"][0]["utilization_history"]
    again = run.until(lambda answer: "utilization_history" in answer["gpus"][0])["gpus"][0]
    assert set(first) == {0.8}
    assert 65 <= len(first) <= 71
    assert len(again["utilization_history"]) <= 35


def test_bursts_that_the_point_sample_hides_show_in_the_history(fake_nvml, sampler):
    fake_nvml.gpu(0, util=99, burst_ms=600, power_mw=690_000)
    gpu = sampler().read()["gpus"][0]
    assert gpu["utilization_ratio"] == 0.99
    assert {0.0, 0.99} == set(gpu["utilization_history"])
    assert min(gpu["power_history_watts"]) < 130 < 600 < max(gpu["power_history_watts"])
    assert len(gpu["power_history_watts"]) <= 10


def test_gpm_tells_a_spin_from_work(fake_nvml, sampler):
    fake_nvml.gpu(0, util=100, power_mw=120_000, sm=0.8, tensor=0, dram=0)
    run = sampler()
    gpu = run.until(lambda answer: "sm_ratio" in answer["gpus"][0])["gpus"][0]
    assert (gpu["utilization_ratio"], gpu["sm_ratio"], gpu["tensor_ratio"]) == (1.0, 0.008, 0.0)


def test_a_card_without_gpm_says_so_and_keeps_the_rest(fake_nvml, sampler):
    fake_nvml.gpu(0, gpm=0)
    gpu = sampler().read()["gpus"][0]
    assert gpu["errors"] == {"gpm": "not supported"}
    assert "sm_ratio" not in gpu
    assert gpu["power_watts"] == pytest.approx(78.3)


def test_a_refused_field_is_named_and_never_zero(fake_nvml, sampler):
    fake_nvml.refuse("nvmlDeviceGetPowerUsage", 4)
    run = sampler()
    gpu = run.read()["gpus"][0]
    assert "power_watts" not in gpu
    assert gpu["errors"]["power_watts"] == "no permission"
    fake_nvml.heal("nvmlDeviceGetPowerUsage")
    assert run.read()["gpus"][0]["errors"] == {}


def test_a_lost_gpu_keeps_its_row_and_its_name(fake_nvml, sampler):
    run = sampler()
    run.read()
    fake_nvml.lose(3)
    rows = run.read()["gpus"]
    assert rows[3] == {
        "index": 3,
        "uuid": "GPU-fa4e0000-0000-4000-8000-000000000003",
        "name": "NVIDIA H200",
        "pci": "00000000:13:00.0",
        "state": "lost",
        "errors": {"device": "GPU is lost"},
    }
    assert all(row.get("state", "ok") == "ok" for row in rows if row["index"] != 3)


def test_a_gpu_that_left_the_count_keeps_its_row(fake_nvml, sampler):
    run = sampler()
    run.read()
    fake_nvml.lose(7)
    fake_nvml.gpus(7)
    assert run.read()["gpus"][7]["state"] == "lost"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4, "no permission"),
        (9, "driver is not loaded"),
        (18, "version mismatch"),
        (999, "unknown error"),
    ],
)
def test_each_refusal_at_the_door_has_words_for_people(fake_nvml, sampler, code, words):
    fake_nvml.init_error(code)
    run = sampler()
    assert words in run.read()["problem"]
    fake_nvml.init_error(0)
    assert len(run.read()["gpus"]) == 8


def test_a_version_mismatch_names_both_versions(fake_nvml, sampler, tmp_path):
    """Which side to bring up to the other: the module's word, and the library file's own name."""
    fake_nvml.init_error(18)
    real = fake_nvml.library.rename(fake_nvml.library.with_name("libnvidia-ml.so.550.54.14"))
    fake_nvml.library.symlink_to(real.name)
    module = tmp_path / "driver" / "nvidia"
    module.mkdir(parents=True)
    (module / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
    )
    assert "library 550.54.14)" in sampler().read()["problem"]
    assert "mismatch (kernel module 580.159.04" in explain(pynvml.NVMLError(18), str(tmp_path))


def test_without_a_library_it_says_that_there_is_none(sampler, tmp_path):
    assert "no NVIDIA library" in sampler(library=tmp_path / "nothing.so").read()["problem"]


def test_a_process_number_is_checked_before_it_is_believed(fake_nvml, sampler):
    """Finding 12: whose numbers a driver gives depends on the driver."""
    fake_nvml.process(0, os.getpid(), 9 << 30)
    fake_nvml.process(0, 4_000_000, 1 << 30)
    processes = sampler(os.getpid()).read()["gpus"][0]["processes"]
    assert [row["pid"] for row in processes] == [os.getpid(), 4_000_000]
    assert processes[0]["pid_space"] in ("container", "host")
    assert processes[1]["pid_space"] == "unknown"
    assert processes[0]["memory_bytes"] == 9 << 30


def test_thinning_keeps_the_newest_and_the_spread():
    assert thinned(list(range(50)), 10) == [4, 9, 14, 19, 24, 29, 34, 39, 44, 49]
    assert thinned([1.0, 2.0], 10) == [1.0, 2.0]


def test_a_driver_that_never_returns_is_a_gap_and_frames_keep_coming(
    agent: Start, trainer, fake_nvml
):
    run = agent({"pid": trainer.pid}, gpu_library=str(fake_nvml.library))
    run.frame(lambda frame: frame.get("gpus"))
    fake_nvml.hang("nvmlDeviceGetPowerUsage", 2)
    stuck = run.frame(lambda frame: any(gap["source"] == "gpu" for gap in frame["gaps"]))
    gap = next(gap for gap in stuck["gaps"] if gap["source"] == "gpu")
    assert "no answer" in gap["reason"]
    assert "state S" in gap["reason"]
    assert gap["since_s"] >= 3
    assert "gpus" not in stuck
    assert stuck["processes"]


def test_a_call_held_in_the_kernel_is_told_with_its_place_there(agent: Start, trainer, fake_nvml):
    run = agent({"pid": trainer.pid}, gpu_library=str(fake_nvml.library))
    run.frame(lambda frame: frame.get("gpus"))
    fake_nvml.hold("nvmlDeviceGetPowerUsage", 2)
    stuck = run.frame(lambda frame: any(gap["source"] == "gpu" for gap in frame["gaps"]))
    gap = next(gap for gap in stuck["gaps"] if gap["source"] == "gpu")
    assert gap["cause"] == "no-answer"
    assert "the call is in state D" in gap["reason"]
    assert ("(kernel: " in gap["reason"]) is (os.geteuid() == 0)


@pytest.mark.slow
def test_a_driver_that_answers_again_ends_the_gap_without_piling_up(
    agent: Start, trainer, fake_nvml
):
    run = agent({"pid": trainer.pid}, gpu_library=str(fake_nvml.library))
    pid = run.agent_pid()
    run.frame(lambda frame: frame.get("gpus"))
    fake_nvml.hang("nvmlDeviceGetPowerUsage")
    run.frame(lambda frame: any(gap["source"] == "gpu" for gap in frame["gaps"]))
    children = Path(f"/proc/{pid}/task/{pid}/children")
    # One for the driver, and at times one that reads command lines.
    assert len(children.read_text().split()) <= 2
    fake_nvml.heal("nvmlDeviceGetPowerUsage")
    healed = run.until(lambda record: record.get("gpus"), 60.0)
    assert not [gap for gap in healed["gaps"] if gap["source"] == "gpu"]
    assert len(children.read_text().split()) <= 2


def test_an_agent_that_is_killed_leaves_no_stuck_child(agent: Start, trainer, fake_nvml):
    fake_nvml.hang("nvmlDeviceGetPowerUsage")
    run = agent({"pid": trainer.pid}, gpu_library=str(fake_nvml.library))
    pid = run.agent_pid()
    run.frame(lambda frame: frame["seq"] >= 1)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert children
    os.kill(pid, signal.SIGKILL)
    run.process.wait()
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children), 5.0)


def test_the_normal_search_path_finds_the_library(agent: Start, trainer, fake_nvml):
    run = agent({"pid": trainer.pid}, env=fake_nvml.environment(os.environ))
    assert len(run.frame(lambda frame: frame.get("gpus"))["gpus"]) == 8


def test_a_link_to_the_library_finds_the_same_state(fake_nvml, sampler, tmp_path):
    fake_nvml.gpus(3)
    link = tmp_path / "libnvidia-ml.so.1"
    link.symlink_to(fake_nvml.library)
    assert len(sampler(library=link).read()["gpus"]) == 3


def test_a_library_that_the_run_itself_has_loaded_is_used(agent: Start, program, fake_nvml):
    text = (
        f"import ctypes, time; ctypes.CDLL({str(fake_nvml.library)!r})\n"
        "print('up', flush=True); time.sleep(60)"
    )
    run = program(text, stdout=subprocess.PIPE)
    run.stdout.readline()
    watch = agent({"pid": run.pid})
    assert len(watch.frame(lambda frame: frame.get("gpus"))["gpus"]) == 8


def test_links_that_are_up_are_counted_and_a_card_without_any_says_nothing(fake_nvml, sampler):
    fake_nvml.gpu(1, links=17)
    fake_nvml.gpu(2, links=-1)
    rows = sampler().read()["gpus"]
    assert [row.get("nvlinks_active") for row in rows[:3]] == [18, 17, None]
    assert rows[2]["errors"] == {}


def test_an_xid_comes_once_with_the_card_it_is_about_and_none_from_before(fake_nvml, sampler):
    fake_nvml.xid(2, 31)
    run = sampler()
    assert not any("xids" in row for row in run.read()["gpus"])
    fake_nvml.xid(5, 79)
    fake_nvml.xid(5, 45)
    rows = run.read()["gpus"]
    assert [row.get("xids") for row in rows] == [None] * 5 + [[79, 45]] + [None] * 2
    assert not any("xids" in row for row in run.read()["gpus"])


def test_a_card_that_comes_back_is_not_registered_for_events_twice(fake_nvml, sampler):
    run = sampler()
    run.read()
    fake_nvml.lose(3)
    run.read()
    fake_nvml.gpu(3, lost=0)
    run.read()
    fake_nvml.xid(3, 94)
    assert run.read()["gpus"][3]["xids"] == [94]


def test_the_last_word_of_a_lost_card_is_told_with_its_row(fake_nvml, sampler):
    run = sampler()
    run.read()
    fake_nvml.xid(3, 79)
    fake_nvml.lose(3)
    row = run.read()["gpus"][3]
    assert (row["state"], row["xids"]) == ("lost", [79])


def test_without_events_the_rest_is_read_and_the_refusal_is_told(fake_nvml, sampler):
    fake_nvml.refuse("nvmlDeviceRegisterEvents", 3)
    row = sampler().read()["gpus"][0]
    assert row["errors"] == {"xids": "not supported"}
    assert row["power_watts"] == pytest.approx(78.3)


def test_a_card_in_instances_says_so_and_what_it_cannot_tell_is_no_zero(fake_nvml, sampler):
    fake_nvml.gpu(1, mig=1, util=90)
    whole, cut = sampler().read()["gpus"][:2]
    assert cut["mig"]
    assert "mig" not in whole
    assert "utilization_ratio" not in cut
    assert {
        cut["errors"][name] for name in ("utilization_ratio", "utilization_history", "gpm")
    } == {"not supported"}
    assert cut["power_watts"] == pytest.approx(78.3)


def test_sixteen_cards_are_read_and_cards_that_differ_differ_in_what_they_tell(fake_nvml, sampler):
    fake_nvml.gpus(16)
    fake_nvml.gpu(7, gpm=0, links=-1)
    rows = sampler().read()["gpus"]
    assert [row["index"] for row in rows] == list(range(16))
    assert [row["index"] for row in rows if row["errors"]] == [7]
