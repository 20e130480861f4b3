"""Which rank the others wait for, from flight recorders and from the log's own words."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from dflash_watch.readers.collectivelog import parse_collective_log
from dflash_watch.readers.collectives import RankState, Work, assess
from dflash_watch.readers.flightrecorder import (
    is_pickle,
    parse_flight_recorder,
    rank_in_name,
    read_states,
)

HERE = Path(__file__).parent


def recorded(rank: int) -> str:
    return (HERE / "collectives" / f"fr_rank{rank}.json").read_text("utf-8")


def test_the_rank_that_did_not_come_is_named_from_real_dumps() -> None:
    states = [one for rank in (0, 1) for one in read_states(recorded(rank), rank=rank)[0]]
    seen = assess(states)
    assert [(s.rank, s.enqueued, s.completed) for s in seen.ranks] == [(0, 6, 5), (1, 5, 5)]
    assert [(one.rank, one.certain) for one in seen.suspects] == [(1, True)]
    assert seen.ranks[0].waits_in is not None
    assert (seen.ranks[0].waits_in.seq, seen.ranks[0].waits_in.op) == (6, "gloo:all_reduce")
    assert seen.ranks[1].waits_in is None
    assert seen.ranks[0].size == 2
    assert (seen.mismatch, seen.together) == (None, False)


def test_dumps_of_several_ranks_may_stand_in_one_text() -> None:
    zero, one = json.loads(recorded(0)), json.loads(recorded(1))
    texts = [
        json.dumps({"0": zero, "1": one}),
        json.dumps({"rank_0": zero, "rank_1": one}),
        json.dumps([{"rank": 0, **zero}, {"rank": 1, **one}]),
        json.dumps({"rank": 0, **zero}) + "\n" + json.dumps({"rank": 1, **one}) + "\n",
    ]
    for text in texts:
        assert [one.rank for one in parse_flight_recorder(text).suspects] == [1]


def test_one_dump_alone_blames_only_the_rank_it_does_not_hear_of() -> None:
    seen = parse_flight_recorder(recorded(0), rank=0)
    assert [(one.rank, one.certain) for one in seen.suspects] == [(1, False)]
    alone = parse_flight_recorder(recorded(1), rank=1)
    assert alone.suspects == ()


def test_a_different_collective_at_one_number_is_a_mismatch() -> None:
    other = json.loads(recorded(1))
    other["entries"][3]["profiling_name"] = "gloo:broadcast"
    states = read_states(recorded(0), rank=0)[0] + read_states(json.dumps(other), rank=1)[0]
    mismatch = assess(states).mismatch
    assert mismatch is not None
    assert "collective 4" in mismatch
    assert "broadcast" in mismatch


def test_a_pickle_is_refused_with_the_way_out() -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return exec, ("raise SystemExit('code was run')",)

    for raw in (pickle.dumps(Evil()), pickle.dumps({"entries": []})):
        assert is_pickle(raw)
        for text in (raw.decode("latin-1"), raw.decode("utf-8", "replace")):
            seen = parse_flight_recorder(text)
            assert seen.note is not None
            assert "never loaded" in seen.note
            assert seen.ranks == ()
    assert not is_pickle(b'{"entries"')


def test_anything_else_is_said_to_be_something_else() -> None:
    for text in ("", "[]", "{}", "[1, 2]", '{"entries": 3}', "[" * 100_000, '{"a": ' * 5000):
        seen = parse_flight_recorder(text)
        assert seen.ranks == ()
        if text != '{"entries": 3}':
            assert seen.note is not None


@pytest.mark.parametrize(
    ("name", "rank"),
    [("nccl_trace_rank_3", 3), ("fr_rank0.json", 0), ("dump_12", 12), ("stacks.txt", None)],
)
def test_ranks_in_names_of_files(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


HANG = (HERE / "logs" / "nccl-hang-two-ranks.log").read_text("utf-8")


def test_the_recorded_hang_names_the_rank_that_enqueued_nothing() -> None:
    seen = parse_collective_log(HANG)
    assert {s.rank: (s.enqueued, s.completed) for s in seen.ranks} == {
        0: (4807, 4799),
        1: (4799, 4799),
    }
    assert [one.rank for one in seen.suspects] == [1]
    waits = seen.ranks[0].waits_in
    assert waits is not None
    assert (waits.seq, waits.op, waits.sizes) == (4800, "ALLREDUCE", "16781312")
    assert (seen.ranks[0].waited_s, seen.ranks[0].timeout_s) == (40.052, 40.0)


TIMEOUT = (
    "[rank{r}]:[E1206 18:44:12.7 ProcessGroupNCCL.cpp:607] [Rank {r}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum={n}, OpType=_REDUCE_SCATTER_BASE, NumelIn=8, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600061 milliseconds before timing out.\n"
)
COUNTS = (
    "[rank{r}]:[E1206 18:44:12.7 ProcessGroupNCCL.cpp:1664] [PG 1 Rank {r}] Exception (either an "
    "error or timeout) detected by watchdog at work: {n}, last enqueued NCCL work: {e}, "
    "last completed NCCL work: {c}.\n"
)


def test_all_ranks_in_one_collective_blames_none_of_them() -> None:
    text = "".join(
        TIMEOUT.format(r=r, n=7753) + COUNTS.format(r=r, n=7753, e=7755, c=7752) for r in range(4)
    )
    seen = parse_collective_log(text)
    assert (seen.suspects, seen.together, len(seen.ranks)) == ((), True, 4)
    assert {one.group for one in seen.ranks} == {"1"}
    assert (seen.unheard, seen.remarks) == ((), ())


def test_ranks_that_report_nothing_are_listed() -> None:
    text = "".join(TIMEOUT.format(r=r, n=469508) for r in (1, 3, 2, 6))
    seen = parse_collective_log(text)
    assert (seen.unheard, seen.together) == ((0, 4, 5), True)
    assert parse_collective_log(TIMEOUT.format(r=3, n=5)).unheard == ()


def test_old_lines_without_counts_name_the_rank_far_behind() -> None:
    line = (
        "[E ProcessGroupNCCL.cpp:458] [Rank {r}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, Timeout(ms)=1800000) "
        "ran for 25624887 milliseconds\n"
    )
    text = line.format(r=0, n=96120) + line.format(r=0, n=96117) + line.format(r=7, n=64088)
    seen = parse_collective_log(text)
    assert [one.rank for one in seen.suspects] == [7]
    assert "cannot date the hang" in seen.remarks[0]
    assert next(s for s in seen.ranks if s.rank == 0).waits_in.seq == 96117  # type: ignore[union-attr]


def test_a_line_with_what_was_started_is_read() -> None:
    text = (
        "[rank0]:[E] [PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected by watchdog at work "
        "sequence id: 8 PG status: last enqueued work: 9, last started work: 8, "
        "last completed work: 7\n"
    )
    state = parse_collective_log(text).ranks[0]
    assert (state.enqueued, state.started, state.completed, state.group) == (
        9,
        8,
        7,
        "0(default_pg)",
    )


def test_a_rank_that_the_log_itself_blames_is_taken_over() -> None:
    text = "RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 10000 ms\n"
    assert [one.rank for one in parse_collective_log(text).suspects] == [1, 3]
    text = (
        "   - [0] joined but didn't finish collective #5 (count from 1)\n"
        "   - [2, 6] finished collective #4, but didn't join collective #5 (count from 1)\n"
    )
    assert [one.rank for one in parse_collective_log(text).suspects] == [2, 6]


def test_groups_are_judged_apart() -> None:
    def state(rank: int, group: str, enqueued: int, waits: int | None = None) -> RankState:
        work = None if waits is None else Work(seq=waits, op="ALLREDUCE")
        return RankState(rank=rank, group=group, enqueued=enqueued, waits_in=work)

    seen = assess([state(0, "dp", 900, 900), state(1, "dp", 900, 900), state(0, "tp", 3)])
    assert (seen.suspects, seen.together) == ((), True)
    assert assess([state(0, "dp", 900, 900)]).suspects == ()
    assert assess([]).together is False


def test_plain_words_about_collectives_are_no_states() -> None:
    assert (
        parse_collective_log("NCCL version 2.7.8\n[0] NCCL INFO Using network Socket\n").ranks == ()
    )
