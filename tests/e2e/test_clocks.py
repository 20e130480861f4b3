"""In a container `ps` tells nonsense about age and CPU (lxcfs rewrites its clock); we do not."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest
from e2e.recorded import frames
from e2e.watched import Run, Watched

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]
TICKS_PER_S = 100.0


def host_ticks(run: Run) -> int:
    """CPU ticks used so far, as the host's kernel counts them."""
    fields = Path(f"/proc/{run.process.host_pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_where_ps_prints_ages_of_a_million_years_our_age_and_cpu_figures_are_right(
    watched: Watched,
) -> None:
    run = watched.foreign("plain_loop.py", "--steps", 100_000, "--busy-ratio", 0.5)
    watch = watched.watch(run)
    watch.until_running()
    words = ["ps", "-p", str(run.process.pid), "-o", "etime=,pcpu="]
    age, cpu = watched.container.run(words).stdout.split()
    assert re.fullmatch(r"4410772\d\d-\d\d:\d\d:\d\d", age), (
        "ps tells the truth: which lxcfs is it?"
    )
    assert cpu == "0.0"

    first = frames(watch.capture)[-1]["processes"][0]
    least = host_ticks(run)
    watch.goes_on(8)
    last = frames(watch.capture)[-1]
    most = host_ticks(run)
    process = last["processes"][0]
    assert first["cpu_ticks"] <= least <= process["cpu_ticks"] <= most
    assert process["cpu_ticks"] > first["cpu_ticks"]
    started_t = psutil.Process(run.process.host_pid).create_time()
    assert last["t"] - process["age_s"] == pytest.approx(started_t, abs=2.0)
    line = watch.lines[-1]
    assert line["verdict"] == "running", watch.told()
