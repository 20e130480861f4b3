"""The pipeline as a picture: target GPUs, the queue between, drafter GPUs; workers where no GPU is.

Power is the history drawn, not utilisation: a card that spins reads 100 % busy at idle power.
"""

from __future__ import annotations

from collections.abc import Sequence

from dflash_watch.model import Board, GpuRow, QueueRow, Snapshot

from dflash_tui.cells import Ink, Row, Span, clean, cut, fit, row_width
from dflash_tui.panels import gpurow, workers
from dflash_tui.panels.frame import middle, title
from dflash_tui.phrases import rate, window
from dflash_tui.plot import bar
from dflash_tui.state import Choices, Panel
from dflash_tui.theme import State
from dflash_tui.view import View

TWO_COLUMNS_FROM = 158


def ordered(gpus: Sequence[GpuRow]) -> tuple[list[GpuRow], list[GpuRow], list[GpuRow]]:
    """Targets, drafters, and those without such a role, each by index."""
    by_index = sorted(gpus, key=lambda gpu: gpu.index)
    targets = [gpu for gpu in by_index if gpu.role == "target"]
    drafters = [gpu for gpu in by_index if gpu.role == "drafter"]
    others = [gpu for gpu in by_index if gpu.role not in {"target", "drafter"}]
    return targets, drafters, others


def rows_wanted(board: Board, cells: int) -> int:
    """Rows that show everything, the head line included."""
    queue = 1 if board.queue is not None else 0
    if not board.gpus:
        return (max(len(board.workers), 1) if board.workers else 2) + queue
    head = 1 if cells >= gpurow.WIDE_FROM else 0
    if len(board.gpus) > 8 and cells >= TWO_COLUMNS_FROM:
        groups = (group for group in ordered(board.gpus) if group)
        return queue + sum((len(group) + 1) // 2 for group in groups)
    return head + len(board.gpus) + queue


def pipeline_title(view: View, choices: Choices) -> Row:
    """`GPUs  5 target → queue → 3 drafter`, and the host's load."""
    focused = choices.focus is Panel.PIPELINE
    if view.snapshot is None or view.state is State.CONNECTING:
        return title("GPUs", focused=focused)
    board = view.snapshot.board
    if board.gpus:
        targets, drafters, others = map(len, ordered(board.gpus))
        flow = [f"{targets} target" if targets else "", "queue" if board.queue else ""]
        flow += [f"{drafters} drafter" if drafters else ""]
        rest = " → ".join(part for part in flow if part) if targets or drafters else ""
        rest += f"{' + ' if rest else ''}{others}" if others else ""
        name = "GPUs"
    else:
        name, rest = ("Workers", str(len(board.workers))) if board.workers else ("GPUs", "")
    host = f"   {clean(board.host_line)}" if board.host_line else ""
    return title(name, (rest + host).strip(), focused=focused)


def pipeline(view: View, choices: Choices, cells: int, height: int) -> list[Row]:
    """The panel's rows, without its frame."""
    snapshot = view.snapshot
    if snapshot is None or view.state is State.CONNECTING:
        return [middle("no sample yet", cells)]
    if not snapshot.board.gpus:
        return _without_gpus(snapshot, view, cells)
    rows = _gpu_rows(snapshot.board, choices, cells)
    if choices.zoom is Panel.PIPELINE:
        rows += [(), *workers.worker_rows(snapshot.board, view.elapsed_s, cells)]
        return rows[min(choices.scroll, max(len(rows) - height, 0)) :]
    return rows if len(rows) <= height else _summary(snapshot.board, choices, cells, height)


def _without_gpus(snapshot: Snapshot, view: View, cells: int) -> list[Row]:
    board = snapshot.board
    rows = workers.worker_rows(board, view.elapsed_s, cells)
    if not rows:
        said = snapshot.views.get("gpu", "")
        reason = clean(said.removeprefix("none: "))
        unseen = f"no GPU seen: {reason}"
        text = "no GPU, no worker seen" if reason in {"", "ok"} else unseen
        rows = [middle(text, cells)]
    if board.queue is None:
        return rows
    split = sum(1 for worker in board.workers if worker.role in workers.UPSTREAM)
    return [*rows[:split], queue_row(board.queue, cells), *rows[split:]]


def _gpu_rows(board: Board, choices: Choices, cells: int) -> list[Row]:
    """Head line where it fits, then groups with the queue between them."""
    targets, drafters, others = ordered(board.gpus)
    two = len(board.gpus) > 8 and cells >= TWO_COLUMNS_FROM
    share = _history_share(board, choices)

    def drawn(group: list[GpuRow]) -> list[Row]:
        if not two:
            return [gpurow.gpu_row(gpu, cells, share) for gpu in group]
        half = (len(group) + 1) // 2
        left = [gpurow.gpu_row(gpu, cells // 2, share) for gpu in group[:half]]
        right = [gpurow.gpu_row(gpu, cells - cells // 2, share) for gpu in group[half:]]
        return [
            (*row, *(right[index] if index < len(right) else ())) for index, row in enumerate(left)
        ]

    rows = (
        []
        if two or cells < gpurow.WIDE_FROM
        else [gpurow.head_row(cells, _history(board, choices))]
    )
    rows += drawn(targets)
    if board.queue is not None:
        rows.append(queue_row(board.queue, cells))
    return rows + drawn(drafters) + drawn(others)


def _history_share(board: Board, choices: Choices) -> float:
    """Share of the power history that the chosen window covers."""
    if choices.window_s is None or not board.window_s > 0:
        return 1.0
    return min(max(choices.window_s / board.window_s, 0.0), 1.0)


def _history(board: Board, choices: Choices) -> str:
    return window(board.window_s * _history_share(board, choices))


def _summary(board: Board, choices: Choices, cells: int, height: int) -> list[Row]:
    """A line a group, then cards as far as they fit: those unlike the others first."""
    share, rows = _history_share(board, choices), []
    groups = [group for group in ordered(board.gpus) if group]
    for group in groups:
        rows.append(gpurow.gpu_row(gpurow.mean_of(group), cells, share, count=len(group)))
        if group is groups[0] and board.queue is not None:
            rows.append(queue_row(board.queue, cells))
    cards = [gpu for group in groups for gpu in group]
    cards.sort(key=lambda gpu: gpu.state == "ok" and not gpu.marks)
    shown = cards[: max(height - len(rows) - 1, 0)]
    rows += [gpurow.gpu_row(gpu, cells, share) for gpu in shown]
    note = f"{len(cards) - len(shown)} more of {len(cards)} GPUs: z on this panel shows them"
    return [*rows[: max(height - 1, 0)], (Span(f"  {note}", Ink.DIM),)]


def queue_row(queue: QueueRow, cells: int) -> Row:
    """Fill, depth and capacity, flow, trend, and who waits."""
    wide = cells >= gpurow.WIDE_FROM
    lead = "  │   queue     " if wide else "  Q  "
    size = gpurow.bar_cells(cells)
    depth, capacity = queue.depth, queue.capacity
    ratio = depth / capacity if depth is not None and capacity else None
    full, empty = bar(ratio, size)
    amount = f"{'–' if depth is None else depth}/{'–' if capacity is None else capacity}"
    trend = fit(clean(queue.trend or ""), 8)
    flow = f"in {rate(queue.in_per_s)} out {rate(queue.out_per_s)}"
    loud = queue.trend in {"FULL", "EMPTY"}
    row: Row = (
        Span(lead, Ink.QUEUE),
        Span(full, Ink.QUEUE),
        Span(empty, Ink.RULE),
        Span(f"  {cut(amount, 15)} ", Ink.STRONG),
        Span(trend, Ink.WARN if loud else Ink.TEXT),
        Span(f" {flow}", Ink.TEXT),
    )
    waiting = clean(queue.waiting or "")
    if waiting:
        row = (*row, Span(f"   {waiting}", Ink.WARN if loud else Ink.DIM))
    if wide and row_width(row) + 16 <= cells:
        row = (*row, Span("   hidden states", Ink.DIM))
    return row
