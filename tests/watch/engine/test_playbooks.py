"""The loader of playbooks refuses what the diagnosis could not use."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from contract.test_playbooks import FAILURES
from dflash_watch.detectors import catalogue
from dflash_watch.errors import UsageError
from dflash_watch.playbooks import GROUPS, SECTIONS, load_playbooks, parse_playbook

GOOD = """+++
title = "x"
severity = "critical"
verdicts = ["stalled"]
requires = ["work-still"]
+++
## Meaning
a
## Diagnosis
b
"""


def test_front_matter_and_sections_are_read():
    book = parse_playbook("x", GOOD)
    assert book.requires == ("work-still",)
    assert book.sections == {"Meaning": "a", "Diagnosis": "b"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("## Meaning\n", "front matter"),
        (GOOD.replace('"critical"', '"terrible"'), "terrible"),
        (GOOD.replace('["stalled"]', '["hanging"]'), "hanging"),
        (GOOD.replace("requires", "require"), "unknown key 'require'"),
        (GOOD.replace('title = "x"', "title = "), "playbook x"),
        (GOOD.replace("+++\n## M", "[[signature]]\nwhere = 3\n+++\n## M"), "playbook x"),
    ],
)
def test_what_is_no_playbook_is_refused_with_its_name_and_reason(text, told):
    with pytest.raises(UsageError, match=re.escape(told)):
        parse_playbook("x", text)


def test_every_symptom_that_a_playbook_names_has_a_detector_or_a_signature():
    books = load_playbooks()
    families = ("logged", "stacked", "log-end")
    known = set(catalogue()) | set(FAILURES)
    known |= {f"{one}-{name}" for one in families for name in FAILURES}
    known |= {"gpu-memory-unowned", "log-without-steps"}  # of pasted evidence
    for name, book in books.items():
        named = {one for group in book.requires for one in group.split("|")}
        named |= {*book.supports, *book.contradicts}
        assert named <= known, name
        grouped = {one for group in GROUPS.values() for one in group}
        assert set(book.explains) - grouped <= known | set(books) | {"exit-hang"}, name
        assert set(SECTIONS) <= set(book.sections), name


def test_every_symptom_is_used_by_some_playbook():
    used: set[str] = set()
    for book in load_playbooks().values():
        used |= {one for group in book.requires for one in group.split("|")}
        used |= {*book.supports, *book.contradicts, *book.explains}
    assert set(catalogue()) - {"logged"} <= used


def texts():
    for name, book in load_playbooks().items():
        yield name, "\n".join([*book.next, *book.sections.values()])


def test_no_step_lowers_the_hard_limit_of_a_running_process():
    commands = [found for _, text in texts() for found in re.findall(r"--nofile=\S*?\d+(.)", text)]
    assert commands
    assert set(commands) == {":"}


def test_the_look_for_the_writer_of_a_log_names_its_pid(tmp_path):
    text = load_playbooks()["wrong-process"].sections["Diagnosis"]
    command = re.search(r"`(find /proc[^`]+)`", text).group(1)
    with (tmp_path / "my-train.log").open("w"):
        told = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60
        ).stdout
    assert f"/proc/{os.getpid()}/fd/" in told


def test_nobody_is_promised_a_checkpoint_by_a_signal_that_only_our_trainer_handles():
    promises = [
        line for _, text in texts() for line in text.splitlines()
        if "kill -TERM" in line and re.search(r"ends? with one|writes? (?:a checkpoint|one)", line)
    ]  # fmt: skip
    assert promises
    assert all("dflash-train" in line or "of this toolkit" in line for line in promises)
