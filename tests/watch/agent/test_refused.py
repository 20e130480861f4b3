"""A process of somebody else: what may not be read is said, and nothing is made up for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from dflash_watch.agent.writers import refusal

LOOK = """
import os, sys
from dflash_watch.agent.writers import refusal
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(refusal("/proc", [int(pid) for pid in sys.argv[1:]]))
"""


def test_what_can_be_listed_is_not_refused_nor_is_a_process_that_has_gone() -> None:
    assert refusal("/proc", [os.getpid()]) is None
    assert refusal("/proc", [2**22 + 1]) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_told_who_may_look() -> None:
    command = [sys.executable, "-c", LOOK, str(os.getpid())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert "not allowed to see where the run writes" in done.stdout
    assert "uid 65534" in done.stdout
