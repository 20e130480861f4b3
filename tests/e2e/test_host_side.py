"""The host of the container is looked at too: what it tells, and that nothing is left there."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from e2e.faults import check_kept
from e2e.places.fixtures import Proxmox
from e2e.recorded import records
from e2e.watched import Watch, Watched, until

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]


def host_agents(watch: Watch) -> list[int]:
    """Numbers of the agents on the host so far, as the journal has them."""
    path = watch.folder / "incidents" / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    done = [json.loads(line) for line in lines if line.endswith("\n")]
    begun = [line for line in done if (line["action"], line["outcome"]) == ("agent", "started")]
    return [line["pid"] for line in begun if "beside" in line]


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def sees_host(watch: Watch) -> bool:
    return any(record["type"] == "host-frame" for record in records(watch.capture))


def test_a_kill_at_the_containers_limit_that_takes_the_agent_first_is_host_oom(
    watched: Watched,
) -> None:
    watch = watched.watch(watched.tiny())
    watch.until_running()
    until(lambda: sees_host(watch), "a word of the host")
    watched.container.limit_memory(watched.container.memory() + (8 << 20))
    hog = "import time; x = bytearray(64 << 20); time.sleep(1)"
    watched.container.run([watched.container.python, "-S", "-c", hog])
    kept = watch.until_kept("host-oom")
    check_kept(kept, "crashed", "host-oom", "run", samples=0)
    told = kept.report
    assert "kernel of the host: " in told or "out-of-memory counter of its cgroup rose" in told
    assert watch.replayed()[-1][:2] == ("crashed", "host-oom")


def test_no_agent_is_left_on_the_host_by_a_cut_a_kill_or_an_end(
    watched: Watched, proxmox: Proxmox
) -> None:
    run = watched.tiny()
    watch = watched.watch(run)
    until(lambda: host_agents(watch), "an agent on the host")
    (first,) = host_agents(watch)
    proxmox.sshd.cut()
    until(lambda: is_gone(first), "its end after the cut")
    until(lambda: len(host_agents(watch)) == 2, "another one")
    second = host_agents(watch)[-1]
    os.kill(watch.process.pid, signal.SIGKILL)
    until(lambda: is_gone(second), "its end after the watcher was killed")
    again = watched.watch(run)
    until(lambda: host_agents(again), "an agent on the host")
    (third,) = host_agents(again)
    assert again.stop() == 0
    until(lambda: is_gone(third), "its end after the watcher's")
