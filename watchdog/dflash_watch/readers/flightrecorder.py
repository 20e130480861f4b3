"""Dumps of PyTorch's flight recorder, as JSON.

Only JSON is read. What the recorder writes by itself are pickles: loading one runs whatever code
its writer put in, so they are refused with the command that turns a trusted one into JSON.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from dflash_watch.readers.collectives import RankState, Standing, Work, assess

WORKS_KEPT = 64
FRAMES_KEPT = 12
RANKS_LIMIT = 16_384
PICKLE = (
    "this is a pickle: reading one can run any code in it, so it is never loaded. Where its writer"
    ' is trusted: python -c "import json,pickle,sys;'
    " print(json.dumps(pickle.load(open(sys.argv[1],'rb')), default=str))\" FILE > FILE.json"
)

_PICKLE_HEAD = re.compile(r"[\x80\ufffd][\x02-\x05]")
_RANK_IN_NAME = re.compile(r"(?:rank[_-]?|trace[_-]?|_)(\d{1,6})(?:\.\w{1,8})?$")


def is_pickle(head: bytes) -> bool:
    """The first bytes of a file are those of a pickle (protocol 2 to 5)."""
    return len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= 5


def rank_in_name(name: str) -> int | None:
    """3 of `nccl_trace_rank_3`, `fr_rank3.json`."""
    found = _RANK_IN_NAME.search(name[-80:])
    return int(found.group(1)) if found else None


def parse_flight_recorder(text: str, *, rank: int | None = None) -> Standing:
    """Where the ranks stand, from one dump, a list of dumps, dumps by rank, or one a line.

    Args:
        text: JSON of `_dump_fr_trace_json`, or of a converted pickle.
        rank: of the dump, where the text does not say (its file name does: `rank_in_name`).

    Returns:
        Nothing but a `note` when the text is none of these.
    """
    states, note = read_states(text, rank=rank)
    return assess(states, note)


def read_states(text: str, *, rank: int | None = None) -> tuple[list[RankState], str | None]:
    """Ranks of a text, to be assessed together with those of other files; and what went wrong."""
    if _PICKLE_HEAD.match(text):
        return [], PICKLE
    states: list[RankState] = []
    for number, dump in _dumps(text):
        if len(states) < RANKS_LIMIT:
            states += _states(dump, number if number is not None else rank)
    if not states:
        return [], "no flight-recorder dump: expected JSON with entries, pg_config and pg_status"
    return states, None


def _dumps(text: str) -> list[tuple[int | None, dict[str, Any]]]:
    whole = _decode(text)
    if whole is None:
        whole = [_decode(line) for line in text.splitlines() if line.startswith("{")]
    if isinstance(whole, dict) and "entries" not in whole and "pg_status" not in whole:
        rows = [
            (_int(str(key).lower().replace("rank", "").strip("_- ")), one)
            for key, one in whole.items()
        ]
    else:
        rows = [(None, one) for one in (whole if isinstance(whole, list) else [whole])]
    return [
        (_int(one.get("rank")) if number is None else number, one)
        for number, one in rows
        if isinstance(one, dict) and ("entries" in one or "pg_status" in one)
    ]


def _decode(text: str) -> Any:  # noqa: ANN401 - JSON of strangers
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return None


def _states(dump: dict[str, Any], rank: int | None) -> list[RankState]:
    """One state a process group of the dump."""
    groups: dict[str, list[dict[str, Any]]] = {}
    entries = dump.get("entries")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and not entry.get("is_p2p"):
            groups.setdefault(str(entry.get("pg_id", "")), []).append(entry)
    status = dump.get("pg_status")
    status = status if isinstance(status, dict) else {}
    config = dump.get("pg_config")
    names = [str(key) for key in status] + [key for key in groups if key not in status]
    sizes = _sizes(config if isinstance(config, dict) else {})
    return [_state(name, groups.get(name, []), status.get(name), rank, sizes) for name in names]


def _state(
    name: str,
    entries: list[dict[str, Any]],
    told: object,
    rank: int | None,
    sizes: dict[str, int],
) -> RankState:
    told = told if isinstance(told, dict) else {}
    works = sorted((_work(entry) for entry in entries), key=lambda one: one.seq)
    completed = _int(told.get("last_completed_collective"))
    done = -1 if completed is None else completed
    open_works = [one for one in works if one.seq > done and one.state != "completed"]
    first = next(iter(entries), {})
    pair = first.get("process_group")
    group = [str(part) for part in pair] if isinstance(pair, list) else []
    enqueued = _int(told.get("last_enqueued_collective"))
    return RankState(
        rank=rank,
        group=f"{name}({group[1]})" if len(group) > 1 and group[1] else name,
        enqueued=enqueued
        if enqueued is not None
        else max((one.seq for one in works), default=None),
        started=_int(told.get("last_started_collective")),
        completed=completed,
        waits_in=open_works[0] if open_works else None,
        works=tuple(works[-WORKS_KEPT:]),
        timeout_s=_seconds(first.get("timeout_ms")),
        size=sizes.get(group[0] if group else name, sizes.get("")),
    )


def _work(entry: dict[str, Any]) -> Work:
    frames = entry.get("frames")
    return Work(
        seq=_int(entry.get("collective_seq_id")) or 0,
        op=str(entry.get("profiling_name", "?"))[:80],
        sizes=str(entry.get("input_sizes", ""))[:120],
        state=str(entry["state"])[:20] if "state" in entry else None,
        frames=tuple(
            f"{one.get('name')} {one.get('filename')}:{one.get('line')}"[:200]
            for one in (frames if isinstance(frames, list) else [])[:FRAMES_KEPT]
            if isinstance(one, dict)
        ),
    )


def _sizes(config: dict[str, Any]) -> dict[str, int]:
    """Number of ranks by group; written as text: `[0, 1]`."""
    found = {}
    for key, one in config.items():
        ranks = one.get("ranks") if isinstance(one, dict) else None
        if isinstance(ranks, list | str):
            number = (
                len(ranks) if isinstance(ranks, list) else len(re.findall(r"\d+", ranks[:200_000]))
            )
            found[str(key)] = number
    return found


def _int(value: object) -> int | None:
    """A count; -1 stands for none yet."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _seconds(value: object) -> float | None:
    number = _int(value)
    return None if number is None else number / 1000.0
