"""Every playbook is whole: its data names things that exist, its text can be followed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from dflash_watch.detectors import catalogue
from dflash_watch.frame import LogSample
from dflash_watch.model import Severity, Verdict
from dflash_watch.playbooks import GROUPS, load_playbooks
from dflash_watch.readers.facts import Signature, SignatureSeen
from dflash_watch.readers.logtext import LogReader
from dflash_watch.readers.signatures import Matcher
from dflash_watch.steps import NAMES

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "playbooks").glob("*.md"))
LOGS = ROOT / "tests/watch/readers/logs"
SECTIONS = ["Meaning", "Diagnosis", "Mitigation", "Look-alikes"]
KEYS = {
    "title", "severity", "verdicts", "requires", "supports", "contradicts", "explains",
    "incident", "stacks", "summary", "next", "signature", "action",
}  # fmt: skip
FAILURES = {
    "acceptance-gap", "autotuner-race", "checkpoint-in-progress", "code-changed",
    "collective-never-started", "collective-timeout", "collective-wait", "compile-in-progress",
    "cuda-oom", "cuda-oom-fragmented", "dataloader-stuck", "dataloader-worker-died", "disk-full",
    "drafter-idle", "drafter-starved", "driver-stuck", "eval-in-progress", "exit-hang",
    "fd-exhausted", "file-lock-wait", "fork-after-threads", "fx-trace-race", "gil-contention",
    "gil-held", "gpu-ecc", "gpu-lost", "gpu-memory-foreign", "gpu-throttled", "gpu-view-lost",
    "healthy", "host-oom", "input-starved", "kernel-fault", "kernel-out-of-resources",
    "kernel-stuck", "kernels-missing", "loading", "log-moved", "log-no-newline", "log-not-flushed",
    "logger-blocked", "loss-scale-collapse", "main-process-died", "memory-leak", "memory-uneven",
    "memory-volatile", "nan-loss", "network-fault", "no-run", "nvlink-fault", "pipeline-deadlock",
    "process-stopped", "process-vanished", "ps-clock-artefact", "recompile-limit", "shm-full",
    "stacks-unavailable", "storage-stuck", "target-blocked", "target-idle",
    "throughput-below-baseline", "triton-autotune-oom", "triton-cache-race", "unknown",
    "watch-lost", "worker-died", "wrong-process",
}  # fmt: skip
"""All that can be named; docs/verdicts.md explains them."""
FAMILIES = ("logged", "stacked", "log-end")
"""Symptoms by text are called `<family>-<failure>`, by the place of the signature."""
PASTED_ONLY = {"gpu-memory-unowned", "log-without-steps"}
"""Symptoms that only pasted evidence shows."""
SYMPTOMS = set(catalogue()) - set(FAMILIES) | PASTED_ONLY
GROUPED = {one for group in GROUPS.values() for one in group}
"""A group may name what other playbooks are still to bring."""
WORDS = {"subject", "since", "detail", "others"}
KNOWN = set(NAMES)
PLACEHOLDER = re.compile(r"\{(\w*)\}")
COMMAND = re.compile(
    r"^(?:awk|cat|cp|dflash-\w+|dmesg|grep|kill|ls|lxc-\w+|nvidia-smi|pct|ping|ps|py-spy|ssh|tail"
    r"|tmux|tr|PYTHONUNBUFFERED=1) "
)


def load(path: Path) -> tuple[dict[str, object], str]:
    before, front, body = path.read_text(encoding="utf-8").split("+++\n", 2)
    assert before == ""
    return tomllib.loads(front), body


FRONTS = {path.stem: load(path)[0] for path in FILES}
BODIES = {path.stem: load(path)[1] for path in FILES}
each = pytest.mark.parametrize("name", FRONTS)


def sections(body: str) -> dict[str, str]:
    parts = re.split(r"(?m)^## (.+)$", body)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def commands(body: str) -> list[str]:
    spans = re.findall(r"`([^`\n]+)`", body)
    return [span for span in spans if COMMAND.match(span)]


def test_the_loader_of_the_diagnosis_takes_them_all() -> None:
    assert set(load_playbooks()) == set(FRONTS)


def test_every_failure_that_can_be_named_has_a_playbook_and_no_other_has() -> None:
    assert set(FRONTS) == FAILURES


@each
def test_the_front_matter_has_known_keys_and_values(name: str) -> None:
    front = FRONTS[name]
    assert set(front) <= KEYS
    assert str(front["title"]).strip()
    assert front["severity"] in list(Severity)
    assert set(front["verdicts"]) <= set(Verdict)
    assert front["verdicts"]


@each
def test_all_symptoms_and_failures_named_exist(name: str) -> None:
    front = FRONTS[name]
    symptoms = SYMPTOMS | {f"{family}-{failure}" for family in FAMILIES for failure in FAILURES}
    required = {one for group in front["requires"] for one in group.split("|")}
    for named in (required, set(front["supports"]), set(front["contradicts"])):
        assert named <= symptoms
    explains = set(load_playbooks()[name].explains)
    assert explains - FAILURES <= symptoms | GROUPED
    assert name not in explains
    assert not required & set(front["contradicts"])


@each
def test_a_signature_that_is_required_is_there(name: str) -> None:
    needs = {one for group in FRONTS[name]["requires"] for one in group.split("|")}
    needs -= {"stacked-pipeline-deadlock"}  # read off all threads together, not off one
    for family, where in zip(FAMILIES, ("log", "stacks", "end"), strict=True):
        for failure in (one for one in FRONTS if f"{family}-{one}" in needs):
            assert any(one.where == where for one in load_playbooks()[failure].signatures())


@each
def test_a_signature_leads_to_some_diagnosis(name: str) -> None:
    asked = {
        one
        for book in load_playbooks().values()
        for group in (*book.requires, *book.supports)
        for one in group.split("|")
    }
    if name in {"nan-loss", "kernels-missing"}:  # their detectors look for the text themselves
        return
    for signature in load_playbooks()[name].signatures():
        family = dict(zip(("log", "stacks", "end"), FAMILIES, strict=True))[signature.where]
        assert f"{family}-{name}" in asked


def test_every_symptom_matters_to_some_failure() -> None:
    named = {
        one
        for front in FRONTS.values()
        for key in ("requires", "supports", "contradicts", "explains")
        for group in front[key]
        for one in group.split("|")
    }
    assert named >= SYMPTOMS


def test_no_two_failures_require_the_same() -> None:
    asked = Counter(
        tuple(sorted(front["requires"])) for front in FRONTS.values() if front["requires"]
    )
    assert [key for key, count in asked.items() if count > 1] == []


@each
def test_the_text_has_its_four_sections_and_nothing_left_to_write(name: str) -> None:
    told = sections(BODIES[name])
    assert list(told) == SECTIONS
    assert all(told.values())
    assert not re.search(r"\b(?:TODO|TBD|FIXME|XXX)\b", BODIES[name])


@each
def test_placeholders_are_those_that_get_filled(name: str) -> None:
    front = FRONTS[name]
    assert set(PLACEHOLDER.findall(front["summary"])) <= WORDS
    assert "{detail}" in front["summary"]
    for step in front["next"]:
        assert set(PLACEHOLDER.findall(step)) <= KNOWN
        assert step.format_map(dict.fromkeys(KNOWN, "1"))
    assert set(PLACEHOLDER.findall(BODIES[name])) <= KNOWN


@each
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is what parses the commands")
def test_commands_in_the_text_parse(name: str) -> None:
    found = commands(BODIES[name] + "\n".join(f"`{step}`" for step in FRONTS[name]["next"]))
    for command in found:
        filled = PLACEHOLDER.sub("7", command)
        said = subprocess.run(
            ["bash", "-n", "-c", filled], capture_output=True, text=True, check=False
        )
        assert (said.returncode, said.stderr) == (0, ""), command


@each
def test_look_alikes_point_at_playbooks_that_exist(name: str) -> None:
    told = sections(BODIES[name])["Look-alikes"]
    heads = re.findall(r"(?m)^- ((?:`[\w-]+`(?:, )?)+):", told)
    assert {word for head in heads for word in re.findall(r"`([\w-]+)`", head)} <= FAILURES


def signatures() -> list[Signature]:
    return [
        Signature(failure=name, **one)
        for name, front in FRONTS.items()
        for one in front.get("signature", [])
    ]


def logged(text: str) -> set[tuple[str, str]]:
    seen = LogReader(signatures()).feed(LogSample(path="log", via="fd 1", text=text), 0.0)
    return {(fact.failure, fact.subject) for fact in seen if isinstance(fact, SignatureSeen)}


def test_all_signatures_are_regular_expressions() -> None:
    Matcher(signatures())
    Matcher(signatures(), where="stacks")


def test_the_recorded_tuning_failure_is_recognised_in_the_thread_that_tuned() -> None:
    text = (LOGS / "autotune-oom-two-of-three-targets.log").read_text()
    tuned = {subject for failure, subject in logged(text) if failure == "triton-autotune-oom"}
    assert tuned == {"target-1"}


PLAIN_SHORTAGE = """\
Traceback (most recent call last):
  File "train.py", line 9, in <module>
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 130.00 MiB.\n",
        PLAIN_SHORTAGE,
        "OutOfResources: out of resource: shared memory, Required: 147456. Ignoring this choice\n",
        "autotuner.py: tuned l2norm_fwd_kernel in 9.1 s\n",
        "Killed\n",
        (LOGS / "nccl-hang-two-ranks.log").read_text(),
    ],
)
def test_other_shortages_of_memory_are_not_taken_for_it(text: str) -> None:
    assert "triton-autotune-oom" not in {failure for failure, _ in logged(text)}


def test_a_launch_without_memory_during_tuning_is_recognised() -> None:
    text = (
        '  File "helion/autotuner/base_search.py", line 125, in _compute_baseline\n'
        '  File "triton/backends/nvidia/driver.py", line 712, in __call__\n'
        "RuntimeError: Triton Error [CUDA]: out of memory\n"
    )
    assert logged(text) == {("triton-autotune-oom", "unknown")}
