"""Code that was changed under a running run: told, and never in the way of what matters more."""

from __future__ import annotations

from typing import Any

import msgspec
from dflash_watch.frame import CodeFile, CodeSample
from scenarios.timeline import Timeline

CHANGED = CodeFile(path="/w/mask.py", change="differs", age_s=30.0)


class Edited(Timeline):
    """A run whose sources are checked; the check is in one frame of many."""

    code: CodeSample | None = None

    def frame(self) -> Any:
        checked, self.code = self.code, None
        return msgspec.structs.replace(super().frame(), code=checked)


def check(run: Edited, *changed: CodeFile, how: str = "hashes") -> None:
    run.code = CodeSample(how=how, num_files=60, num_changed=len(changed), changed=changed)
    run.go(5)


def test_a_file_copied_in_later_is_told_with_its_name_and_worries_nobody():
    run = Edited.training(20)
    check(run, CHANGED)
    assert (run.last.failure, run.last.severity) == ("code-changed", "info")
    assert run.last.summary.startswith("mask.py on disk is not what it loaded (1 of 60 files")
    check(run)
    assert run.last.failure == "healthy"


def test_of_a_foreign_run_it_is_said_that_times_tell_it():
    run = Edited.foreign(20)
    check(run, msgspec.structs.replace(CHANGED, change="newer"), how="times")
    assert "mask.py changed after it began" in run.last.summary


def test_files_that_are_as_loaded_are_nothing():
    run = Edited.training(20)
    check(run)
    assert run.last.failure == "healthy"


def test_a_stall_is_named_by_its_cause_and_not_by_an_edit():
    run = Edited.training(30)
    check(run, CHANGED)
    run.freeze()
    run.wait("drafter-0", "lock", on="drafter-1")
    run.wait("drafter-1", "lock", on="drafter-0")
    run.go(40)
    assert (run.last.verdict, run.last.failure) == ("stalled", "pipeline-deadlock")
