"""What the agent on the host of a container costs, and how soon it sees a freeze and a thaw.

    python tests/bench/bench_host_agent.py [--processes 200] [--seconds 60] [--freezes 10]

A real LXC container with so many sleeping processes beside the one it is found by; no GPUs, since
those are read there only while the container cannot. Root only.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).parents[1]),
    *(str(Path(__file__).parents[2] / name) for name in ("watchdog", "dflash", "tui")),
]

from bench_agent import family, pss_bytes  # noqa: E402 - runs without an install
from dflash_watch.agent import proc  # noqa: E402 - the path comes first
from e2e.places.bench import proxmox  # noqa: E402 - the path comes first
from e2e.places.container import Container, Spawned  # noqa: E402 - the path comes first
from watch.agent.driving import AgentProcess  # noqa: E402 - the path comes first

CORE_PERCENT, PSS_MB = 1.0, 30.0


def start(container: Container, folder: Path, processes: int) -> tuple[AgentProcess, Spawned]:
    """The agent, and the process by which it finds the container."""
    crowd = f"for i in $(seq {processes}); do sleep 100000 & done; wait"
    inside = container.spawn(["/bin/sh", "-c", crowd], output=folder / "out")
    stat = proc.read_stat("/proc", inside.host_pid)
    assert stat is not None
    named = {"name": "container", "agent_pid": inside.pid, "agent_start_ticks": stat.start_ticks}
    return AgentProcess({}, role="host", container=named, every_s=1.0, max_life_s=3600), inside


def cost(agent: AgentProcess, seconds: float) -> tuple[float, float, float]:
    """Percent of a core, megabytes, bytes a second, over a steady stretch."""
    first = last = agent.until(lambda one: one["type"] == "host-frame" and one["seq"] >= 2)
    wire = agent.wire_bytes
    while last["boot_s"] - first["boot_s"] < seconds:
        last = agent.until(lambda one: one["type"] == "host-frame")
    wall = last["boot_s"] - first["boot_s"]
    ticks = last["cost"]["cpu_ticks"] - first["cost"]["cpu_ticks"]  # with its children
    memory = sum(map(pss_bytes, family(agent.process.pid))) / 1e6
    return ticks / os.sysconf("SC_CLK_TCK") / wall * 100, memory, (agent.wire_bytes - wire) / wall


def delay_s(agent: AgentProcess, act: object, *, frozen: bool) -> float:
    """Seconds from the act to the look that shows it."""
    begun = time.monotonic()
    act()  # type: ignore[operator]  # a bound method
    agent.until(lambda one: (one.get("container") or {}).get("frozen") is frozen)
    return time.monotonic() - begun


def main() -> int:
    """Measure, print, compare; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--freezes", type=int, default=10)
    options = parser.parse_args()
    with proxmox() as place:
        box = place.container
        agent, inside = start(box, box.share, options.processes)
        try:
            core, memory, wire = cost(agent, options.seconds)
            freezes = []
            for number in range(2 * options.freezes):
                act, frozen = (box.thaw, False) if number % 2 else (box.freeze, True)
                freezes.append(delay_s(agent, act, frozen=frozen))
        finally:
            agent.kill()
            inside.end()
    print(f"core {core:.2f} % (<= {CORE_PERCENT:g}), PSS {memory:.1f} MB (<= {PSS_MB:g})")
    print(f"wire {wire:.0f} bytes/s")
    seen = f"{statistics.median(freezes):.2f} s, at worst {max(freezes):.2f} s"
    print(f"freeze or thaw seen after {seen}")
    return int(core > CORE_PERCENT or memory > PSS_MB)


if __name__ == "__main__":
    raise SystemExit(main())
