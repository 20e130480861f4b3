"""How long documents are: a histogram, the buckets with the least padding, and both as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

NUM_BUCKETS = 6
"""Few, since each is a shape that kernels are tuned and compiled for."""
_CELLS = 64
_FINEST, _COARSEST = 16, 128
_BAR_COLUMNS = 30


def choose_buckets(lengths: Mapping[int, int], num_buckets: int = NUM_BUCKETS) -> tuple[int, ...]:
    """At most `num_buckets` lengths, ascending, that pad these documents least.

    Exact, over multiples of a step: 1/64 of the longest, a power of two from 16 to 128 (attention
    kernels work in tiles of 128).

    Args:
        lengths: tokens of a document to how many have them; not empty.
        num_buckets: at least 1.
    """
    longest = max(lengths)
    step = _FINEST
    while step < _COARSEST and step * _CELLS < longest:
        step *= 2
    cells = Counter[int]()
    for length, count in lengths.items():
        cells[-(-length // step)] += count
    ends = sorted(cells)
    below = [0]
    for end in ends:
        below.append(below[-1] + cells[end])
    best = [[float("inf")] * (len(ends) + 1) for _ in range(num_buckets + 1)]
    cut = [[0] * (len(ends) + 1) for _ in range(num_buckets + 1)]
    best[0][0] = 0.0
    for used in range(1, num_buckets + 1):
        for last in range(1, len(ends) + 1):
            for first in range(last):
                padded = best[used - 1][first] + ends[last - 1] * (below[last] - below[first])
                if padded < best[used][last]:
                    best[used][last], cut[used][last] = padded, first
    used = min(range(1, num_buckets + 1), key=lambda n: best[n][-1])
    chosen, last = [], len(ends)
    while last:
        chosen.append(ends[last - 1] * step)
        used, last = used - 1, cut[used][last]
    return tuple(reversed(chosen))


def bucket_rows(lengths: Mapping[int, int], buckets: Sequence[int]) -> list[dict[str, int]]:
    """Of each bucket: the shortest and longest it takes, documents, tokens and padding."""
    rows, start = [], 1
    for bucket in buckets:
        inside = {length: n for length, n in lengths.items() if start <= length <= bucket}
        documents = sum(inside.values())
        tokens = sum(length * n for length, n in inside.items())
        rows.append(
            {
                "from": start,
                "to": bucket,
                "documents": documents,
                "tokens": tokens,
                "padding": documents * bucket - tokens,
            }
        )
        start = bucket + 1
    return rows


def histogram(lengths: Mapping[int, int]) -> list[dict[str, int]]:
    """Documents by length, in about sixteen classes of one width that people read easily."""
    longest, width = max(lengths), 1
    while width * 16 < longest:
        width *= 2
    counts = Counter[int]()
    for length, n in lengths.items():
        counts[length // width] += n
    return [
        {"from": place * width, "to": (place + 1) * width - 1, "documents": counts[place]}
        for place in range(min(counts), max(counts) + 1)
    ]


def render_lengths(
    classes: Sequence[Mapping[str, int]], buckets: Sequence[Mapping[str, int]]
) -> str:
    """Histogram and buckets as text."""
    most = max(one["documents"] for one in classes)
    total = sum(one["documents"] for one in classes)
    lines = [f"{'length in tokens':>17} {'documents':>11}"]
    for one in classes:
        bar = "#" * -(-one["documents"] * _BAR_COLUMNS // most)
        span = f"{one['from']}-{one['to']}"
        lines.append(f"{span:>17} {one['documents']:>11,} {bar}".rstrip())
    lines.append("")
    lines.append(f"{'bucket':>17} {'documents':>11} {'share':>7} {'tokens':>14} {'padding':>8}")
    for row in buckets:
        span = f"{row['from']}-{row['to']}"
        padded = row["tokens"] + row["padding"]
        padding = f"{row['padding'] / padded:.1%}" if padded else "-"
        share = f"{row['documents'] / total:.1%}"
        lines.append(
            f"{span:>17} {row['documents']:>11,} {share:>7} {row['tokens']:>14,} {padding:>8}"
        )
    return "\n".join(lines)
