"""What the watchdogs of process groups print: NCCL's time-outs and counts, gloo's barrier, desyncs.

Lines in, the state of each rank out; several lines about one rank complete one another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from dflash_watch.readers.collectives import RankState, Standing, Suspect, Work, assess

STATES_LIMIT = 16_384

_WHO = re.compile(r"\[(?:PG (?:ID )?(\d{1,6})(?: PG GUID ([^\]\s]{1,80}))? )?Rank (\d{1,6})\]")
_PREFIX = re.compile(r"\[rank(\d{1,6})\]|\[default(\d{1,6})\]")
_TIMED_OUT = re.compile(
    r"Watchdog caught collective operation timeout: Work\w{1,20}\(([^\n]{0,400})"
)
_FIELD = re.compile(r"(SeqNum|OpType|NumelIn|NumelOut|Timeout\(ms\))=([\w\-]{1,40})")
_RAN = re.compile(r"ran for (\d{1,15}) milliseconds")
_LAST = re.compile(
    r"(?i)last enqueued (?:NCCL )?work: (-?\d{1,12})"
    r"(?:, last started (?:NCCL )?work: (-?\d{1,12}))?, last completed (?:NCCL )?work: (-?\d{1,12})"
)
_WAITS = re.compile(r"waits in NCCL (\S{1,80}) (\d{1,12})$")
_BARRIER = re.compile(r"Ranks? ([\d, ]{1,2000}) failed to pass monitoredBarrier")
_DESYNC = re.compile(
    r"\[([\d, ]{1,2000})\] (?:(joined but didn't finish)"
    r"|finished collective #\d{1,12}, but didn't join) collective #(\d{1,12})"
)
_HINT = ("NCCL", "collective", "monitoredBarrier", "enqueued work")


class CollectiveLines:
    """Lines of one log, or of several logs of one run."""

    def __init__(self) -> None:
        self._states: dict[tuple[int, str], RankState] = {}
        self._named: list[Suspect] = []
        self._found: Standing | None = None

    def feed(self, line: str) -> bool:
        """Take a line; True when it said something about a rank."""
        if not any(word in line for word in _HINT):
            return False
        self._found = None
        line = line[:2000]
        if self._named_by_tool(line):
            return True
        who = _WHO.search(line)
        prefix = _PREFIX.search(line[:80])
        if who is not None:
            rank = int(who.group(3))
        elif prefix is not None:
            rank = int(prefix.group(1) or prefix.group(2))
        else:
            return False
        group = (who.group(2) or who.group(1) or "") if who else ""
        changes: dict[str, object] = {}
        changes.update(_timed_out(line))
        changes.update(_counts(line))
        if not changes:
            return False
        self._put(rank, group, changes)
        return True

    def standing(self) -> Standing:
        """All ranks, with those that the text itself blames first."""
        if self._found is None:
            found = assess(_settled(self._states.values()))
            if self._named:
                suspects = (*self._named, *found.suspects)
                found = msgspec.structs.replace(found, suspects=suspects, together=False)
            self._found = found
        return self._found

    def _put(self, rank: int, group: str, changes: dict[str, object]) -> None:
        key = (rank, group)
        # A line without its group belongs to the group that the rank is known in.
        if key not in self._states and not group:
            key = next((one for one in self._states if one[0] == rank), key)
        elif key not in self._states and (rank, "") in self._states:
            self._states[key] = msgspec.structs.replace(self._states.pop((rank, "")), group=group)
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= STATES_LIMIT:
                return
            state = RankState(rank=rank, group=group)
        waits = changes.get("waits_in")
        if isinstance(waits, Work) and state.waits_in and state.waits_in.seq <= waits.seq:
            changes = {key: value for key, value in changes.items() if key != "waits_in"}
        self._states[key] = msgspec.structs.replace(state, **changes)

    def _named_by_tool(self, line: str) -> bool:
        found = _BARRIER.search(line)
        why = "did not come to monitoredBarrier"
        if found is None:
            found = _DESYNC.search(line)
            if found is None or found.group(2):
                return found is not None
            why = f"did not join collective {found.group(3)}"
        for text in found.group(1).split(",")[:64]:
            if text.strip().isdecimal():
                rank = int(text)
                suspect = Suspect(rank=rank, group="", why=f"rank {rank} {why}, as the log says")
                if suspect not in self._named:
                    self._named.append(suspect)
        return True


def parse_collective_log(text: str) -> Standing:
    """Where the ranks stand, from a log's lines; no ranks where it says nothing."""
    lines = CollectiveLines()
    for line in text.splitlines():
        lines.feed(line)
    return lines.standing()


def render_ranks(states: Iterable[RankState]) -> str:
    """The states as lines that `CollectiveLines` reads, one a rank and group."""
    return "".join(
        f"[rank{one.rank}]: [PG ID {one.group.partition('(')[0] or 0} PG GUID {one.group or 0}"
        f" Rank {one.rank}] flight recorder: {_in_words(one)}\n"
        for one in states
        if one.rank is not None
    )


def _in_words(one: RankState) -> str:
    numbers = (-1 if n is None else n for n in (one.enqueued, one.started, one.completed))
    enqueued, started, completed = numbers
    waits = f", waits in NCCL {one.waits_in.op} {one.waits_in.seq}" if one.waits_in else ""
    return (
        f"last enqueued work: {enqueued}, last started work: {started},"
        f" last completed work: {completed}{waits}"
    )


def _timed_out(line: str) -> dict[str, object]:
    found = _TIMED_OUT.search(line)
    if found is None:
        return {}
    fields = dict(_FIELD.findall(found.group(1)))
    changes: dict[str, object] = {"timed_out": True}
    if fields.get("SeqNum", "").isdecimal():
        changes["waits_in"] = Work(
            seq=int(fields["SeqNum"]),
            op=fields.get("OpType", "?"),
            sizes=fields.get("NumelIn", ""),
        )
    if fields.get("Timeout(ms)", "").isdecimal():
        changes["timeout_s"] = int(fields["Timeout(ms)"]) / 1000.0
    ran = _RAN.search(line)
    if ran:
        changes["waited_s"] = int(ran.group(1)) / 1000.0
    return changes


def _counts(line: str) -> dict[str, object]:
    found = _LAST.search(line)
    if found is None:
        return {}
    names = ("enqueued", "started", "completed")
    numbers = zip(names, found.groups(), strict=True)
    counts: dict[str, object] = {name: int(n) for name, n in numbers if n and int(n) >= 0}
    if waits := _WAITS.search(line):
        counts["waits_in"] = Work(seq=int(waits.group(2)), op=waits.group(1))
    return counts


def _settled(states: Iterable[RankState]) -> list[RankState]:
    """A rank that has enqueued more than it completed waits, though it does not say so."""
    made = []
    for one in states:
        behind = (
            one.enqueued is not None and one.completed is not None and one.enqueued > one.completed
        )
        if one.waits_in is None and behind and one.completed is not None:
            work = Work(seq=one.completed + 1, op="a collective")
            made.append(msgspec.structs.replace(one, waits_in=work))
        else:
            made.append(one)
    return made
