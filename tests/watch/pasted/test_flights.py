"""Dumps of flight recorders beside, or instead of, a log."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

from dflash_watch.model import EvidenceKind, Snapshot, Verdict
from dflash_watch.pasted.files import read_folder
from dflash_watch.pasted.judge import judge_pasted
from dflash_watch.playbooks import load_playbooks
from dflash_watch.readers.collectivelog import parse_collective_log, render_ranks
from dflash_watch.readers.collectives import RankState, Work, assess

DUMPS = Path(__file__).parents[1] / "readers" / "collectives"


def judged(folder: Path) -> Snapshot:
    return judge_pasted(read_folder(folder), load_playbooks(), 1_790_000_000.0)


def test_dumps_alone_name_the_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    for rank in (0, 1):
        shutil.copy(DUMPS / f"fr_rank{rank}.json", tmp_path)
    seen = judged(tmp_path)
    assert (seen.verdict, seen.failure, seen.subject) == (
        Verdict.STALLED, "collective-wait", "rank-1",
    )  # fmt: skip


def test_dumps_beside_a_log_that_timed_out_turn_the_victim_into_the_cause(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(
        "step 5 loss 2.0\n[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=6, OpType=ALLREDUCE) ran for 600061 milliseconds before timing out.\n"
    )
    assert judged(tmp_path).subject == "rank-0"
    for rank in (0, 1):
        shutil.copy(DUMPS / f"fr_rank{rank}.json", tmp_path / f"nccl_trace_rank_{rank}")
    seen = judged(tmp_path)
    assert (seen.failure, seen.subject) == ("collective-timeout", "rank-1")


def test_a_pickle_among_them_is_told_and_not_loaded(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return exec, ("raise SystemExit('code was run')",)

    shutil.copy(DUMPS / "fr_rank0.json", tmp_path)
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(Evil()))
    missing = [e.text for e in judged(tmp_path).evidence if e.kind is EvidenceKind.MISSING]
    assert [text for text in missing if "nccl_trace_rank_1" in text and "never loaded" in text]


def test_states_survive_the_way_through_text() -> None:
    waits = Work(seq=6, op="gloo:all_reduce")
    states = [
        RankState(rank=0, group="0(default_pg)", enqueued=6, completed=5, waits_in=waits),
        RankState(rank=1, group="0(default_pg)", enqueued=5, started=5, completed=5),
        RankState(rank=0, group="3", enqueued=9),
    ]
    again = parse_collective_log(render_ranks(states))
    assert list(again.ranks) == states
    assert again.suspects == assess(states).suspects
