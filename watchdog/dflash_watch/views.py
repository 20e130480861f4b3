"""How well each source can be seen: `ok`, `gap: why`, `none: why`."""

from __future__ import annotations

from dflash_watch.window import Window

SOURCES = ("process", "threads", "log", "gpu", "events", "beats", "host", "kernel")


def views_of(window: Window) -> dict[str, str]:
    """Source -> how it is seen, for every source there is."""
    views = {}
    for source in SOURCES:
        gap = window.gaps.get(source)
        if gap is not None:
            kind = "gap" if source in window.answered or _is_broken(gap.reason) else "none"
            views[source] = f"{kind}: {gap.reason}"
        elif source in window.answered:
            views[source] = "ok"
        else:
            views[source] = "none: not seen so far"
    if window.samples.error is not None:
        views["stacks"] = f"gap: {window.samples.error}"
    else:
        views["stacks"] = "ok" if window.samples.order else "none: not taken so far"
    link = window.sight.link
    views["link"] = "ok" if link.state == "up" else f"gap: {link.reason or link.step or link.state}"
    return views


def _is_broken(reason: str) -> bool:
    return any(word in reason.lower() for word in ("mismatch", "refused", "no answer", "hung"))
