"""The four looks this product replaces, as somebody would have pasted them."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest
from dflash_watch.model import Snapshot
from dflash_watch.pasted.files import read_folder
from dflash_watch.pasted.judge import judge_pasted
from dflash_watch.playbooks import load_playbooks
from scenarios.test_field_reports import LOADING, NVIDIA_SMI

CAPTURES = Path(__file__).parents[1] / "scenarios" / "captures"
ROLES = "roles: {target: [0, 1, 2, 3, 4], drafter: [5, 6, 7]}\n"
PS = """\
  PID                 ELAPSED %CPU %MEM STAT CMD
24294      441077229-16:25:36  0.0 19.5 Sl   python train_opt.py
"""
T0 = 1_790_000_000.0
books = cache(load_playbooks)


def judge(folder: Path, **files: str) -> Snapshot:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return judge_pasted(read_folder(folder), books(), T0)


def texts(seen: Snapshot, kind: str) -> str:
    return " | ".join(one.text for one in seen.evidence if one.kind == kind)


def test_the_silent_restart_is_initialising_and_does_not_guess(tmp_path):
    context = ROLES + "observed: {silent_s: 600, first_step_seen: false}\n"
    seen = judge(tmp_path, gpus_csv=NVIDIA_SMI, context_yaml=context)
    assert (seen.verdict, seen.failure, seen.confidence) == ("initialising", "unknown", "low")
    uneven = [one.subject for one in seen.symptoms if one.name == "gpu-memory-uneven"]
    assert uneven == ["gpu5"]
    assert any("one sample" in one.missing for one in seen.inconclusive)
    assert "process list: not given" in texts(seen, "missing")
    assert seen.next


def test_the_eight_minute_log_is_stalled_by_its_tracebacks_and_ps_proves_nothing(tmp_path):
    shutil.copy(CAPTURES / "autotune-oom-two-of-three-targets.log", tmp_path / "log.txt")
    context = ROLES + "observed: {silent_s: 1200}\n"
    seen = judge(tmp_path, ps_txt=PS, context_yaml=context)
    assert (seen.verdict, seen.failure) == ("stalled", "triton-autotune-oom")
    assert seen.confidence == "medium"
    assert seen.subject == "target-1, target-2"
    told = " ".join(one.text for one in seen.evidence)
    assert "lxcfs" in told
    assert "idle" not in told
    assert "GPU figures: not given" in texts(seen, "missing")


def test_loading_is_named_with_its_target_and_claims_nothing_else(tmp_path):
    seen = judge(tmp_path, log_txt=LOADING)
    assert (seen.verdict, seen.failure, seen.subject) == ("initialising", "loading", "target-1")
    assert seen.board.tokens_per_s is None


@pytest.mark.parametrize(("rate", "verdict"), [("11000", "slow"), ("14000", "running")])
def test_a_slow_run_is_slow_against_what_was_promised(tmp_path, rate, verdict):
    log = "".join(f"step {i}/9000 loss 2.{i} tok/s {rate}\n" for i in range(100, 160))
    context = "expected_tokens_per_s: 14200\nobserved: {steps_advancing: true}\n"
    seen = judge(tmp_path, log_txt=log, context_yaml=context)
    assert seen.verdict == verdict
    if verdict == "slow":
        assert seen.failure == "throughput-below-baseline"
        assert "77 %" in seen.summary
