"""`--json`: one object a line, with keys that are stable and only added to."""

from __future__ import annotations

from typing import Any

import msgspec

from dflash_watch.model import GpuRow, Snapshot
from dflash_watch.readers.lines import escaped

SCHEMA = 1
HEARTBEAT_S = 60.0
ARRIVING_S = 15.0
"""A first connection that fails nowhere is no news for so long."""


def snapshot_object(snapshot: Snapshot) -> dict[str, Any]:
    """The public shape of a snapshot, as plain data."""
    limit = snapshot.limit
    incident = snapshot.incident
    return {
        "schema": SCHEMA,
        "run": snapshot.run,
        "t": snapshot.t,
        "verdict": snapshot.verdict.value,
        "since_s": round(max(snapshot.t - snapshot.since_t, 0.0), 3),
        "failure": snapshot.failure,
        "subject": snapshot.subject,
        "severity": snapshot.severity.value,
        "confidence": snapshot.confidence.value,
        "summary": snapshot.summary,
        "evidence": [
            {"kind": one.kind.value, "text": one.text, "source": one.source.value}
            for one in snapshot.evidence
        ],
        "explains": list(snapshot.explains),
        "candidates": [{"failure": one.failure, "score": one.score} for one in snapshot.candidates],
        "limit": None if limit is None else {"seconds": limit.seconds, "why": limit.why},
        "views": dict(snapshot.views),
        "next": list(snapshot.next),
        "playbook": snapshot.playbook,
        "incident": None if incident is None else incident.path,
        "acknowledged": None if incident is None else incident.acknowledged_t is not None,
        "gpus": [_gpu(row) for row in snapshot.board.gpus],
    }


def _gpu(row: GpuRow) -> dict[str, Any]:
    """One GPU: how it can be seen, what it does, and the figures of the newest seconds."""
    return {
        "index": row.index,
        "role": row.role,
        "state": row.state,
        "load": row.load,
        "utilization_ratio": row.utilization_ratio,
        "sm_ratio": row.sm_ratio,
        "power_watts": row.power_watts,
        "memory_used_bytes": row.memory_used_bytes,
        "clocks": row.clocks,
    }


def render_json(snapshot: Snapshot) -> str:
    """One line of JSON; numbers that are not finite become null."""
    return escaped(msgspec.json.encode(snapshot_object(snapshot)).decode())


class JsonLines:
    """A line when something changed that a program acts on, and a sign of life now and then.

    Args:
        heartbeat_s: longest time between two lines, by the watched host's clock.
    """

    def __init__(self, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._heartbeat_s = heartbeat_s
        self._said: tuple[object, ...] | None = None
        self._said_t = 0.0
        self._first_t: float | None = None

    def lines(self, snapshot: Snapshot) -> list[str]:
        """What this snapshot is worth: one line or none."""
        if self._is_arriving(snapshot):
            return []
        incident = snapshot.incident
        now = (
            snapshot.verdict,
            snapshot.failure,
            snapshot.subject,
            snapshot.severity,
            snapshot.explains,
            None
            if incident is None
            else (incident.key, incident.stage, incident.path, incident.acknowledged_t),
        )
        due = abs(snapshot.t - self._said_t) >= self._heartbeat_s
        if now == self._said and not due:
            return []
        self._said, self._said_t = now, snapshot.t
        return [render_json(snapshot)]

    def _is_arriving(self, snapshot: Snapshot) -> bool:
        """Before the first look there is no verdict worth the name: `blind` would be an alarm."""
        self._first_t = snapshot.t if self._first_t is None else self._first_t
        on_its_way = snapshot.data_t is None and snapshot.link.reason is None
        on_its_way = on_its_way and snapshot.link.state in ("connecting", "up")
        return on_its_way and abs(snapshot.t - self._first_t) < ARRIVING_S
