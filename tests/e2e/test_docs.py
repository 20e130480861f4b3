"""The commands of the pages that need a host: on a real sshd and a container, nothing changed.

Only the container's number is another one here, and the host's address leads to the loopback.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys

import pytest
from commands_in_docs import PAGES, Given, given
from e2e.watched import PACKAGES, Watched, until

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]
DEADLINE_S = 150.0
ON_A_HOST = {
    one.line.partition("  #")[0].rstrip(): one
    for one in given(PAGES)
    if "10.1.2.6 --ct 200" in one.line
}
SHORT = ("dflash-watch check", "dflash-watch dump", "dflash-watch rights")


class Typed:
    """One line typed into a shell on this machine."""

    def __init__(self, line: str, watched: Watched) -> None:
        tools = watched.folder / "bin"
        tools.mkdir()
        program = tools / "dflash-watch"
        config = shlex.quote(watched.proxmox.sshd.ssh_config)
        program.write_text(
            f'#!/bin/sh\nexec {sys.executable} -m dflash_watch.cli "$@" --ssh-config {config}\n'
        )
        program.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(PACKAGES),
            "XDG_STATE_HOME": str(watched.folder / "state"),
        }
        self._said = watched.folder / "said.txt"
        line = line.replace("--ct 200", f"--ct {watched.container.id}")
        with self._said.open("wb") as out:
            self.process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"], env=environment, cwd=watched.folder,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def said(self) -> str:
        return self._said.read_text()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()


@pytest.mark.parametrize("one", ON_A_HOST.values(), ids=lambda one: one.line)
def test_a_command_of_the_pages_works_on_a_real_host(watched: Watched, one: Given) -> None:
    run = watched.tiny()
    run.says("step=3")
    typed = Typed(one.line, watched)
    try:
        if one.line.startswith(SHORT):
            typed.process.wait(DEADLINE_S)
            assert typed.process.returncode == 0, typed.said()
        else:
            until(lambda: "RUNNING" in typed.said(), f"a verdict: {typed.said()}")
    finally:
        typed.end()
    assert typed.process.returncode == 0, typed.said()
    assert typed.said().startswith({"check": "DFLASH OK", "dump": "== process"}.get(
        one.line.split()[1], ""))  # fmt: skip
    assert "Traceback" not in typed.said()


def test_the_readme_gives_all_three_ways_to_look() -> None:
    assert {line.split()[1] for line in ON_A_HOST} >= {"--host", "check", "dump"}
