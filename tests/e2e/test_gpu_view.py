"""A GPU driver that loses a card, hangs, refuses or mismatches beside a run that is well."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.faults import measure
from e2e.places.container import Container
from e2e.recorded import frames, gaps, snapshots
from e2e.watched import Watch, Watched
from fake_nvml import FakeNvml

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]
PLACE = f"/usr/lib/{platform.machine()}-linux-gnu"
REFUSED, MISMATCH = 4, 18
"""NVML's codes for no permission, and for a library newer than the loaded driver."""


@pytest.fixture
def driver(container: Container, fake_nvml_build: Path) -> Iterator[FakeNvml]:
    """Eight busy GPUs in the container, the library where container tools mount the real one."""
    folder = container.share / f"nvml-{time.monotonic_ns()}"
    folder.mkdir()
    shutil.copy2(fake_nvml_build, folder)
    nvml = FakeNvml(folder)
    nvml.reset()
    for index in range(8):
        nvml.gpu(index, util=97, power_mw=600_000 + index, sm=90, used=(70 + index) << 30)
    names = (nvml.library.name, nvml.state.name)
    for name in names:
        assert container.run(["ln", "-s", str(folder / name), f"{PLACE}/{name}"]).returncode == 0
    yield nvml
    container.run(["rm", *(f"{PLACE}/{name}" for name in names)])


def states(watch: Watch) -> dict[int, str]:
    """State of each GPU in the newest frame that has any."""
    newest = [frame["gpus"] for frame in frames(watch.capture) if frame.get("gpus")][-1]
    return {row["index"]: row.get("state", "ok") for row in newest}


def check_running_all_along(watch: Watch, *hardware: str) -> None:
    """Whatever the driver says, the run runs: no other verdict, no incident, nothing critical.

    Args:
        watch: of the run.
        hardware: failures of a card, which are alarms though the run runs.
    """
    told = watch.told()
    assert watch.verdicts() in (["initialising", "running"], ["running"]), told
    assert {line["failure"] for line in watch.lines} <= {
        "unknown", "loading", "healthy", "compile-in-progress", "gpu-view-lost", *hardware,
    }, told  # fmt: skip
    assert {kept.verdict["failure"] for kept in watch.incidents()} <= {*hardware}, told
    alarmed = {line["failure"] for line in watch.lines if line["severity"] == "critical"}
    assert alarmed <= {*hardware}, told


def test_a_lost_gpu_keeps_its_row_and_a_call_that_never_returns_stops_nothing(
    watched: Watched, driver: FakeNvml
) -> None:
    run = watched.tiny()
    watch = watched.watch(run)
    watch.until_running()
    assert states(watch) == dict.fromkeys(range(8), "ok")

    driver.xid(2, 45)  # the kernel log is closed here: only the driver's event tells it
    watch.goes_on(3)
    told = [one for shot in snapshots(watch.capture) for one in shot.symptoms]
    assert {(one.name, one.subject) for one in told if "Xid 45" in one.summary} == {
        ("xid-told", "gpu2")
    }

    lost_t = time.time()
    driver.lose(3)
    line = watch.becomes("gpu-lost")
    measure("GPU lost", watch, "running", "gpu-lost", lost_t)
    assert (line["verdict"], line["severity"], line["subject"]) == ("running", "critical", "gpu3")
    assert "lost" in line["summary"].lower()
    watch.goes_on(3)
    assert states(watch) == {**dict.fromkeys(range(8), "ok"), 3: "lost"}
    driver.gpu(3, lost=0)
    watch.becomes("healthy")

    hung_t = time.time()
    driver.hang("nvmlDeviceGetPowerUsage", 5)
    line = watch.becomes("gpu-view-lost")
    measure("NVML call never returns", watch, "running", "gpu-view-lost", hung_t)
    assert (line["verdict"], line["severity"], line["subject"]) == ("running", "warning", "host")
    assert "no answer" in line["summary"]
    assert line["views"]["gpu"].startswith("gap: ")
    watch.goes_on(20)  # the first child has been killed meanwhile, and another one hangs
    rows = list(snapshots(watch.capture))[-1].board.gpus
    assert [row.index for row in rows] == list(range(8))
    driver.heal("nvmlDeviceGetPowerUsage", 5)
    watch.becomes("healthy")
    assert states(watch) == dict.fromkeys(range(8), "ok")
    check_running_all_along(watch, "gpu-lost")


@pytest.mark.parametrize(
    ("call", "code", "says"),
    [
        ("nvmlInit", MISMATCH, "mismatch"),
        ("nvmlDeviceGetCount", REFUSED, "permission"),
    ],
)
def test_a_driver_that_does_not_let_us_in_is_named_and_the_run_runs(
    watched: Watched, driver: FakeNvml, call: str, code: int, says: str
) -> None:
    if call == "nvmlInit":
        driver.init_error(code)
    else:
        driver.refuse(call, code)
    run = watched.foreign("plain_loop.py", "--steps", 100_000)
    watch = watched.watch(run)
    line = watch.until_verdict("running", "gpu-view-lost")
    assert (line["severity"], line["subject"]) == ("warning", "host")
    assert says in line["summary"].lower()
    assert all(says in reason.lower() for reason in gaps(watch.capture, "gpu")[-3:])
    watch.goes_on(5)
    check_running_all_along(watch)
