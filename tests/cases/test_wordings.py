"""Other wordings of the mechanisms in the cases, and texts that only look like them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from dflash_watch.pasted.files import read_folder
from dflash_watch.pasted.judge import judge_pasted
from dflash_watch.playbooks import load_playbooks

WORDINGS, REPORTS = (
    yaml.safe_load((Path(__file__).parent / name).read_text())
    for name in ("wordings.yaml", "reports.yaml")
)
FILES = {"log": "log.txt", "stacks": "stacks.txt", "gpus": "nvidia-smi.txt", "ps": "ps.txt"}
OBSERVED = {
    "alive": "process_alive", "silent": "silent_s", "steps": "steps_advancing",
    "first_step": "first_step_seen",
}  # fmt: skip
T0 = 1_790_000_000.0
books = cache(load_playbooks)


def paste(entry: dict[str, Any], folder: Path) -> Path:
    for key, name in FILES.items():
        if key in entry:
            steps = "".join(f"step {i + 2} loss 2.0\n" for i in range(entry.get("repeat_steps", 0)))
            (folder / name).write_text(entry[key] + steps)
    observed = {long: entry[short] for short, long in OBSERVED.items() if short in entry}
    facts: dict[str, Any] = {"observed": observed}
    if entry.get("gpu_table") == "empty":
        facts["gpu_processes"] = [[]]
    if "processes" in entry:
        facts["processes"] = entry["processes"]
    (folder / "context.yaml").write_text(yaml.safe_dump(facts))
    return folder


@pytest.mark.parametrize("entry", [*WORDINGS, *REPORTS], ids=lambda entry: entry["name"])
def test_a_wording_is_read_as_its_mechanism(entry, tmp_path):
    seen = judge_pasted(read_folder(paste(entry, tmp_path)), books(), T0)
    said = f"{seen.verdict}/{seen.failure}: {seen.summary}"
    assert seen.verdict == entry.get("verdict", seen.verdict), said
    assert seen.failure in entry.get("is", [seen.failure]), said
    assert seen.failure not in entry.get("not", []), said
    told = " ".join([seen.summary, *(one.text for one in seen.evidence)])
    assert entry.get("says", "") in told
    assert "never" not in entry or entry["never"] not in told
    against = " ".join(one.text for one in seen.evidence if one.kind == "against")
    assert entry.get("against", "") in against


def test_a_copied_log_that_ends_in_steps_is_not_held_for_a_sure_sign_of_life(tmp_path):
    entry = {"log": "".join(f"step {i} loss 2.0\n" for i in range(30))}
    seen = judge_pasted(read_folder(paste(entry, tmp_path)), books(), T0)
    assert (seen.verdict, seen.confidence) == ("running", "low")
    assert "silent_s" in " ".join(one.text for one in seen.evidence if one.kind == "missing")
    seen = judge_pasted(read_folder(paste({**entry, "steps": True}, tmp_path)), books(), T0)
    assert (seen.verdict, seen.confidence) == ("running", "high")


def test_most_reports_are_named_without_a_word_from_the_person(tmp_path):
    missed = []
    for number, entry in enumerate(REPORTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        bare = {key: value for key, value in entry.items() if key not in OBSERVED}
        seen = judge_pasted(read_folder(paste(bare, folder)), books(), T0)
        if seen.failure not in entry["is"]:
            missed.append(f"{entry['name']}: {seen.verdict}/{seen.failure}")
    assert len(missed) <= len(REPORTS) // 20, missed
