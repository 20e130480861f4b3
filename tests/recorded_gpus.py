"""Rows recorded on real GPUs, as the samples that the agent would have sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dflash_watch.frame import GpuProcess, GpuSample

FOLDER = Path(__file__).parent / "recorded/gpu"
HANG = FOLDER / "nccl-hang-two-ranks"
LIMIT_W = 700.0


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def loads(*, gpm: bool = True, histories: bool = True) -> Iterator[tuple[str, float, GpuSample]]:
    """(scene, moment, sample) of one card under known loads."""
    for row in rows(FOLDER / "nvml-h200.jsonl"):
        yield row["scene"], row["t"], _sample(row, gpm=gpm, histories=histories)


def _sample(row: dict[str, Any], *, gpm: bool, histories: bool) -> GpuSample:
    seen: dict[str, Any] = {}
    if histories:
        watts = [value / 1000 for value in row["power_hist"]["values"]]
        seen["power_history_watts"] = tuple(watts[:: max(len(watts) // 10, 1)])
        seen["utilization_history"] = tuple(value / 100 for value in row["util_hist"]["values"])
    if gpm:
        seen |= ratios(row["gpm"])
    return GpuSample(
        index=0, memory_used_bytes=row["mem_used_mib"] << 20, memory_total_bytes=143771 << 20,
        utilization_ratio=row["util"] / 100, power_watts=row["power_mw"] / 1000,
        power_limit_watts=LIMIT_W, sm_clock_mhz=row["sm_mhz"], clock_reasons=row["reasons"],
        temperature_celsius=float(row["temp_c"]), **seen,
    )  # fmt: skip


def hang(*, gpm: bool = True) -> Iterator[tuple[float, tuple[GpuSample, ...]]]:
    """(moment, both cards) of two ranks of which one stops coming."""
    for row in rows(HANG / "frames.jsonl"):
        yield row["t"], tuple(_rank(card, gpm=gpm) for card in row["gpus"])


def _rank(card: dict[str, Any], *, gpm: bool) -> GpuSample:
    held = card["mem_used_mib"] << 20
    listed = tuple(
        GpuProcess(pid=pid, memory_bytes=held - (600 << 20), pid_space="container")
        for pid in card["pids"]
    )
    return GpuSample(
        index=card["index"], memory_used_bytes=held, memory_total_bytes=143771 << 20,
        utilization_ratio=card["util"] / 100, power_watts=float(card["power_w"]),
        power_limit_watts=LIMIT_W, sm_clock_mhz=card["sm_mhz"], processes=listed,
        **(ratios(card["gpm"]) if gpm else {}),
    )  # fmt: skip


def ratios(gpm: dict[str, float]) -> dict[str, float]:
    return {
        "sm_ratio": gpm["sm_util"] / 100,
        "tensor_ratio": gpm["tensor_any"] / 100,
        "dram_ratio": gpm["dram_bw"] / 100,
    }
