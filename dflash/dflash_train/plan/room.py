"""Checks of memory and time: the largest bucket measured once on each kind of worker.

The processor's memory is never found out by running out of it, since the kernel then ends the
process: one row is measured first, and all of them only where they will fit.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import torch

from dflash_train.data import Batch
from dflash_train.oom import OutOfRoomError, advice, room_for
from dflash_train.plan.bench import Bench, first_rows
from dflash_train.plan.check import Check, judged, passed, unknown
from dflash_train.replica import FeatureBatch

COPIES_OF_WEIGHTS = 7
"""Of a drafter's: weights, gradients of two steps, their mean, two moments, one in passing."""
FLOAT = 4
WORKSPACE_BYTES, IN_PIECES = 64 << 20, 1.15
"""On a GPU: what its libraries keep for a worker, and what the allocator holds in pieces."""
EXPECTED = "the largest bucket on every device, with plan.memory_margin to spare"


class Meter:
    """Most memory in use on a device since the meter was made, beyond what was in use then."""

    def __init__(self, device: str) -> None:
        self._device = device
        if device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats(device)
            self._before = torch.cuda.memory_allocated(device)
            return
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM
        self._before = _status_bytes("VmRSS")

    def peak(self) -> int:
        """Bytes."""
        if self._device.startswith("cuda"):
            return torch.cuda.max_memory_allocated(self._device) - self._before
        return max(0, _status_bytes("VmHWM") - self._before)


def memory(bench: Bench) -> Check:
    """Does the largest bucket fit, on every device with all its workers?"""
    rows = len(bench.largest.input_ids_BT)
    try:
        one = _peaks(bench, first_rows(bench.largest, 1))
        guessed = {role: peak * rows for role, peak in one.items()}
        if rows > 1 and not _missing(bench, guessed):
            guessed = _peaks(bench, bench.largest)
        lacking = _missing(bench, guessed)
    except OutOfRoomError as error:
        return judged(
            "memory", ok=False, observed=error.message, expected=EXPECTED, advice=error.hint or ""
        )
    except OSError as error:
        return unknown("memory", f"cannot be measured here: {error.strerror}", EXPECTED)
    bench.measured["memory"] = {
        name: {"needed_bytes": _needed(bench, name, guessed), "available_bytes": available(name)}
        for name in _devices(bench)
    }
    length = bench.largest.input_ids_BT.shape[1]
    said = "; ".join(
        f"{name}: {_needed(bench, name, guessed) / 1e9:.2f} of {available(name) / 1e9:.1f} GB"
        for name in _devices(bench)
    )
    return judged(
        "memory",
        ok=not lacking,
        observed=f"{rows} rows of {length} tokens: {said}",
        expected=EXPECTED,
        advice=advice(bench.config),
    )


def duration(bench: Bench) -> Check:
    """How long a step and the run will take, from the largest bucket measured again."""
    config, largest, source = bench.config, bench.largest, bench.materials.source
    target_s, drafter_s = _seconds(bench, largest)
    per_step = config.batches_per_step
    looked_at = [source.batch(i) for i in range(min(8, source.steps_per_epoch) * per_step)]
    size = sum(batch.input_ids_BT.numel() for batch in looked_at) / len(looked_at)
    tokens = sum(batch.num_tokens for batch in looked_at) / len(looked_at)
    busiest_s = max(_busy(bench, target_s, drafter_s).values())
    step_s = busiest_s * size / largest.input_ids_BT.numel()
    pace = per_step * tokens / max(step_s, 1e-9)
    whole_s = step_s * config.optim.steps
    bench.measured["time"] = {
        "target_s": target_s,
        "drafter_s": drafter_s,
        "step_s": step_s,
        "tokens_per_s": pace,
    }
    gpus = sum(name.startswith("cuda") for name in _devices(bench))
    said = (
        f"largest batch: target {target_s * 1e3:.1f} ms, drafter {drafter_s * 1e3:.1f} ms; at best"
        f" {pace:,.0f} tokens/s, {config.optim.steps} steps in {_span(whole_s)} or more"
        + (f", {whole_s * gpus / 3600:.1f} GPU-hours" if gpus else "")
        + f"; {source.steps_per_epoch} steps an epoch"
    )
    wanted = config.report.expected_tokens_per_s
    if wanted is None:
        return passed("time", said, "nothing given (report.expected_tokens_per_s)")
    return judged(
        "time",
        ok=pace >= wanted,
        observed=said,
        expected=f"{wanted:,.0f} tokens/s (report.expected_tokens_per_s)",
        advice="more devices for the slower kind of worker, or a lower expectation",
        weak=True,
    )


def _busy(bench: Bench, target_s: float, drafter_s: float) -> dict[str, float]:
    """Seconds of work of each device in one step of full largest batches."""
    config = bench.config
    busy = dict.fromkeys(_devices(bench), 0.0)
    for name in config.target.devices:
        busy[name] += target_s * config.batches_per_step / config.num_targets
    for name in config.drafter.devices:
        busy[name] += drafter_s * config.optim.accumulation
    if "cpu" in busy:
        workers = (*config.target.devices, *config.drafter.devices).count("cpu")
        busy["cpu"] /= max(1, min(workers, len(os.sched_getaffinity(0))))
    return busy


def available(device: str) -> int:
    """Bytes this process could still take, or on a GPU have in all."""
    if device.startswith("cuda"):
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device)
    free = psutil.virtual_memory().available
    limit, used = (_cgroup_bytes(name) for name in ("memory.max", "memory.current"))
    return free if limit is None or used is None else min(free, max(0, limit - used))


def _peaks(bench: Bench, batch: Batch) -> dict[str, int]:
    """Most bytes of one forward of a target and one backward of a drafter, beyond their weights."""
    target, replica, config = bench.target, bench.replica, bench.config
    meter = Meter(config.target.devices[0])
    with room_for(batch, config, config.target.devices[0]):
        features = target.features(batch.input_ids_BT, batch.attention_BT)
    of_target = meter.peak()
    meter = Meter(config.drafter.devices[0])
    with room_for(batch, config, config.drafter.devices[0]):
        replica.flat.begin_step(0)
        replica.accumulate(FeatureBatch(batch, features))
    return {"target": of_target, "drafter": meter.peak()}


def _missing(bench: Bench, peaks: dict[str, int]) -> list[str]:
    spare = 1.0 - bench.config.plan.memory_margin
    return [
        name for name in _devices(bench) if _needed(bench, name, peaks) > available(name) * spare
    ]


def _needed(bench: Bench, device: str, peaks: dict[str, int]) -> int:
    """Bytes of all workers of a device, and of its share of the queue."""
    config, materials, draft = bench.config, bench.materials, bench.replica.draft
    targets, drafters = (
        devices.count(device) for devices in (config.target.devices, config.drafter.devices)
    )
    tables = sum({t.data_ptr(): _bytes(t) for t in (draft.embedding_VD, draft.head_VD)}.values())
    weights = sum(_bytes(each) for each in materials.decoder.parameters())
    own = bench.replica.flat.weights.numel() * FLOAT * COPIES_OF_WEIGHTS
    if device == "cpu":  # the target is in memory already, its replicas share it
        tables = weights = 0
    width = len(config.target.layer_ids) * config.target.hidden_size
    slot = bench.largest.input_ids_BT.numel() * width * materials.embedding_VD.element_size()
    queued = slot * config.pipeline.queue_capacity * targets // config.num_targets
    in_hand = slot * (targets + drafters)  # what a target gave last, what a drafter works on
    of_targets = targets * (weights + peaks["target"])
    needed = of_targets + drafters * (own + tables + peaks["drafter"]) + queued + in_hand
    if device == "cpu":
        return needed
    return int(IN_PIECES * (needed + WORKSPACE_BYTES * (targets + drafters)))


def _seconds(bench: Bench, batch: Batch) -> tuple[float, float]:
    def since(start_s: float, device: str) -> float:
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        return time.perf_counter() - start_s

    start_s = time.perf_counter()
    features = bench.target.features(batch.input_ids_BT, batch.attention_BT)
    of_target = since(start_s, bench.config.target.devices[0])
    start_s = time.perf_counter()
    bench.replica.accumulate(FeatureBatch(batch, features))
    return of_target, since(start_s, bench.config.drafter.devices[0])


def _devices(bench: Bench) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*bench.config.target.devices, *bench.config.drafter.devices)))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(0, f"no {key} in /proc/self/status")


def _cgroup_bytes(name: str) -> int | None:
    try:
        text = (Path("/sys/fs/cgroup") / name).read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
