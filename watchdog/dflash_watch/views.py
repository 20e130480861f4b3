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
    views.update(_by_host(window, views))
    if window.samples.error is not None:
        views["stacks"] = f"gap: {window.samples.error}"
    else:
        views["stacks"] = "ok" if window.samples.order else "none: not taken so far"
    link = window.sight.link
    views["link"] = "ok" if link.state == "up" else f"gap: {link.reason or link.step or link.state}"
    if link.state == "up" and window.frozen_t() is not None:
        views["link"] = f"gap: {window.hostside.frozen_text()}"
    return views


def _by_host(window: Window, views: dict[str, str]) -> dict[str, str]:
    """What a second agent on the container's host makes up for; nothing where there is none."""
    host = window.hostside
    if host.newest is None:
        return {}
    told = {"container-host": "ok"}
    if host.gap is not None:
        kind = "gap" if host.has_answered else "none"
        told["container-host"] = f"{kind}: {host.gap.reason}"
    if host.reads_kernel and views["kernel"] != "ok":
        told["kernel"] = "ok, read on the host"
    if host.gpus_gap is not None:
        told["gpu"] = f"ok, read on the host (in the container: {host.gpus_gap.reason})"
    return told


def _is_broken(reason: str) -> bool:
    return any(word in reason.lower() for word in ("mismatch", "refused", "no answer", "hung"))
