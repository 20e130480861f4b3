"""Which thread is which: numbers of another PID namespace, and pthread addresses.

py-spy names threads as their own namespace counts them; for Python 3.8 to 3.10 without blocking,
and faulthandler always, by the address of pthread_self. That address lies at the top of the
thread's own stack, and the kernel tells where the stack pointer of a thread that sleeps is.
"""

from __future__ import annotations

import bisect
from typing import Dict, List, Optional, Tuple

from dflash_watch.agent import proc
from dflash_watch.agent.memory import read_maps

Span = Tuple[int, int]


def inner_tids(root: str, pid: int, tids: List[int]) -> Optional[Dict[int, int]]:
    """Number in its own namespace -> number here; None when they are the same."""
    if len(proc.inner_numbers(f"{root}/{pid}/status")) < 2:
        return None
    found = {}
    for tid in tids:
        numbers = proc.inner_numbers(f"{root}/{pid}/task/{tid}/status")
        if numbers:
            found[numbers[-1]] = tid
    return found


def by_stack(
    root: str, pid: int, idents: List[int], tids: List[int], main: Optional[int]
) -> Dict[int, int]:
    """Address of pthread_self -> thread number, of those that sleep and of one left over.

    Args:
        root: `/proc`.
        pid: the process.
        idents: addresses of pthread_self.
        tids: its threads.
        main: the main thread's address, which lies on no stack; None when it is not known.
    """
    pointers = {tid: _stack_pointer(root, pid, tid) for tid in tids if tid != pid}
    spans = writable_spans(read_maps(root, pid))
    places = {tid: place for tid, place in pointers.items() if place is not None}
    found = match([one for one in idents if one != main], places, spans)
    if main in idents and pid in tids:
        found[main] = pid
    taken = set(found.values())
    idents_left = [ident for ident in idents if ident not in found]
    tids_left = [tid for tid in tids if tid not in taken]
    if len(idents_left) == len(tids_left) == 1:
        found[idents_left[0]] = tids_left[0]
    return found


def match(idents: List[int], places: Dict[int, int], spans: List[Span]) -> Dict[int, int]:
    """Each address with the thread whose stack pointer is nearest below, in the same mapping."""
    by_place = sorted((place, tid) for tid, place in places.items())
    only = [place for place, _tid in by_place]
    found: Dict[int, int] = {}
    taken = set()
    for ident in sorted(idents):
        at = bisect.bisect_left(only, ident) - 1
        if at < 0:
            continue
        place, tid = by_place[at]
        if tid not in taken and _same_span(place, ident, spans):
            found[ident] = tid
            taken.add(tid)
    return found


def _same_span(one: int, other: int, spans: List[Span]) -> bool:
    at = bisect.bisect_right(spans, (one, 1 << 63)) - 1
    return at >= 0 and spans[at][0] <= one < spans[at][1] and spans[at][0] <= other < spans[at][1]


def _stack_pointer(root: str, pid: int, tid: int) -> Optional[int]:
    """Of a thread that does not run; None of one that does, or where nobody may know."""
    words = (proc.read_text(f"{root}/{pid}/task/{tid}/syscall", 256) or "").split()
    if len(words) < 3:
        return None
    try:
        return int(words[-2], 16)
    except ValueError:
        return None


def writable_spans(maps: str) -> List[Span]:
    """Private writable mappings, by address."""
    spans = []
    for line in maps.splitlines():
        place, _, rest = line.partition(" ")
        first, dash, last = place.partition("-")
        if dash and rest[:2] == "rw":
            try:
                spans.append((int(first, 16), int(last, 16)))
            except ValueError:
                continue
    return sorted(spans)
