"""Whose line it is, when a launcher or a log collector wrote something before it."""

from __future__ import annotations

import pytest
from dflash_watch.frame import LogSample
from dflash_watch.readers import facts, numbers
from dflash_watch.readers.logtext import LogReader
from dflash_watch.readers.prefix import split_prefix
from dflash_watch.readers.stackparse import parse_dumps

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 12, in <module>',
    "    main()",
    "RuntimeError: CUDA error",
]


def died(*prefixes: str) -> list[tuple[str, str, int | None]]:
    """Who raised what, when each line comes once from each process."""
    text = "".join(f"{prefix}{line}\n" for line in TRACEBACK for prefix in prefixes)
    sample = LogSample(path="a.log", via="fd 1", text=f"{text}the end\n")
    seen = LogReader().feed(sample, 1.0)
    told = [fact for fact in seen if isinstance(fact, facts.TracebackSeen)]
    return [(fact.subject, fact.exception, fact.rank) for fact in told]


@pytest.mark.parametrize(
    ("prefix", "subject", "rank"),
    [
        ("", "main", None),
        ("[rank3]: ", "rank-3", 3),
        ("[default3]:", "rank-3", 3),
        ("[default0]:[rank5]: ", "rank-5", 5),
        ("5: ", "rank-5", 5),
        ("[1,5]<stderr>:", "rank-5", 5),
        ("(RayTrainWorker pid=123, ip=10.0.0.1) ", "RayTrainWorker pid 123", None),
        ("trainer-1  | ", "trainer-1", None),
        ("2026-11-29T10:00:00.123456789Z ", "main", None),
        ("2026-11-29T10:00:00.1+01:00 stderr F ", "main", None),
        ("Nov 29 10:00:00 box python[123]: ", "main", None),
        ("trainer-1  | [rank2]: ", "rank-2", 2),
    ],
)
def test_a_traceback_is_put_together_behind_any_prefix(
    prefix: str, subject: str, rank: int | None
) -> None:
    assert died(prefix) == [(subject, "RuntimeError", rank)]


def test_processes_that_print_into_one_another_are_kept_apart() -> None:
    assert died("(W pid=1) ", "(W pid=2) ", "0: ", "1: ") == [
        ("W pid 1", "RuntimeError", None),
        ("W pid 2", "RuntimeError", None),
        ("rank-0", "RuntimeError", 0),
        ("rank-1", "RuntimeError", 1),
    ]


def test_stacks_of_several_processes_are_kept_apart_by_their_prefixes() -> None:
    lines = ["Thread 0x00ab (most recent call first):", '  File "q.py", line 1 in get']
    text = "".join(f"(W pid={pid}) {line}\n" for line in lines for pid in (7, 8))
    assert [(s.pid, len(s.threads)) for s in parse_dumps(text).samples] == [(7, 1), (8, 1)]


def test_moments_do_not_make_another_process() -> None:
    one, _ = split_prefix("2026-11-29T10:00:00Z [rank1]: a")
    two, body = split_prefix("2026-11-29T10:00:01Z [rank1]: b")
    assert (one, body) == (two, "b")


@pytest.mark.parametrize("line", ["", "step 5", "RuntimeError: 3", "Epoch 3: 5", "1e5: x", "| a |"])
def test_a_line_without_a_prefix_stays_as_it_is(line: str) -> None:
    prefix, body = split_prefix(line)
    assert (prefix.key, body) == ("", line)


def test_the_rank_of_the_job_counts_and_not_the_one_on_the_node() -> None:
    assert numbers.rank_of("[default0]:[rank5]: step 3") == 5
    assert numbers.rank_of("[default2]: step 3") == 2
    assert numbers.rank_of("local_rank=1 step 3") == 1
    assert numbers.rank_of("step 3") is None
