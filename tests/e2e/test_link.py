"""The way to the run breaks: blind with the reason, then as before, and nothing is alarmed."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from e2e.faults import measure
from e2e.places.fixtures import Proxmox
from e2e.recorded import check_no_frame_twice, records
from e2e.watched import Watch, Watched, until

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]


def check_as_before(watch: Watch, watched: Watched) -> int:
    """Running, never anything but blind between; one agent; no frame twice; how many agents."""
    watch.goes_on(12)
    told = watch.told()
    assert watch.lines[-1]["verdict"] == "running", told
    assert watch.lines[-1]["failure"] == "healthy", told
    assert {line["verdict"] for line in watch.lines} <= {"initialising", "running", "blind"}, told
    assert watch.incidents() == [], told
    assert "critical" not in {line["severity"] for line in watch.lines}, told
    until(lambda: len(watched.agents()) == 1, "one agent, not more")
    return check_no_frame_twice(watch.capture)


def blind_for(
    watch: Watch, row: str, seconds: float, reason: str, back: Callable[[], None]
) -> None:
    """Wait for `watch-lost` with its reason, be blind for a while, then mend it."""
    since_t = time.time()
    line = watch.becomes("watch-lost")
    measure(row, watch, "blind", "watch-lost", since_t)
    assert (line["verdict"], line["subject"]) == ("blind", "link")
    watch.until(
        lambda line: line["failure"] == "watch-lost" and reason in line["summary"],
        f"the reason {reason!r}",
    )
    time.sleep(seconds)
    assert watch.lines[-1]["verdict"] == "blind", watch.told()
    back()
    watch.becomes("healthy")


def test_sshd_that_is_frozen_is_blindness_and_afterwards_all_is_as_before(
    watched: Watched, proxmox: Proxmox
) -> None:
    watch = watched.watch(watched.tiny())
    watch.until_running()
    proxmox.sshd.freeze()
    blind_for(watch, "sshd frozen", 12, "no answer", proxmox.sshd.thaw)
    assert check_as_before(watch, watched) == 2


def test_a_frozen_container_is_blindness_and_its_run_did_not_stall(
    watched: Watched, proxmox: Proxmox
) -> None:
    watch = watched.watch(watched.tiny())
    watch.until_running()
    proxmox.container.freeze()
    blind_for(watch, "container frozen", 20, "until it is thawed", proxmox.container.thaw)
    assert check_as_before(watch, watched) == 1  # the host said why: nothing was given up
    assert "lost" not in {one.get("state") for one in records(watch.capture)}


def test_cut_connections_are_made_again_and_a_host_that_refuses_is_blindness(
    watched: Watched, proxmox: Proxmox
) -> None:
    watch = watched.watch(watched.tiny())
    watch.until_running()
    for _ in range(2):
        hellos = check_no_frame_twice(watch.capture)
        proxmox.sshd.cut()
        until(lambda: check_no_frame_twice(watch.capture) > hellos, "another agent")  # noqa: B023
        watch.goes_on(3)
    watch.becomes("healthy")
    proxmox.sshd.down()
    blind_for(watch, "connection cut", 10, "refuse", proxmox.sshd.up)
    assert check_as_before(watch, watched) == 4
