"""The way to the run is lost, or frames no longer come.

Sees:       the link's own state, for how long no frame came, on the watcher's clock, and what the
            host of a container says of its freezer.
Means:      the view is broken; says nothing about the run.
Wrong when: the watched machine is so busy that the agent cannot send within the limit.
Source:     docs/verdicts.md, "blind".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import T0, example, frames
from dflash_watch.frame import LinkChange, Tick
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration

THAW = (
    "{on_host}grep lock: /etc/pve/lxc/{ct}.conf: a backup or snapshot thaws the container itself",
    "{on_host}lxc-unfreeze -n {ct}, once it is sure that nobody froze it on purpose",
    "{on_host}docker unpause {docker}, once it is sure that nobody paused it on purpose",
    "{on_host}podman unpause {podman}, once it is sure that nobody paused it on purpose",
)
"""What a frozen container calls for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    lost_s: float = 2.0
    """A shorter loss is a hiccup."""
    frozen_s: float = 1.0
    """A shorter freeze of the container is a snapshot's."""
    silent_s: float = 10.0
    """Least silence of frames that counts."""
    paces: float = 4.0
    """And at least so many usual distances of frames."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Lost link, or silence over an open one."""
    sight, window = view.window.sight, view.window
    since_t = window.frame.t if window.frame is not None else window.now_t
    if sight.lost_watcher_t is not None or sight.link.state == "closed":
        if sight.lost_s >= params.lost_s or sight.link.state == "closed" or window.frame is None:
            reason = sight.lost_reason or sight.link.reason or "no reason given"
            state = "closed" if sight.link.state == "closed" else "lost"
            text = f"link {state}: {reason}"
            yield symptom("link", Severity.WARNING, since_t, text, Source.LINK)
    elif _is_frozen(view, params):
        text = window.hostside.frozen_text()
        frozen_t = window.frozen_t() or since_t
        told = symptom("link", Severity.WARNING, frozen_t, text, Source.HOST)
        yield msgspec.structs.replace(told, next=THAW)
    elif window.frame is not None:
        limit_s = max(params.silent_s, params.paces * (sight.pace_s or params.silent_s / 2))
        if sight.silent_s > limit_s:
            text = f"no frame for {duration(sight.silent_s)} (limit {duration(limit_s)})"
            if sight.link.reason:
                text += f"; {sight.link.reason}"
            yield symptom("link", Severity.WARNING, since_t, text, Source.LINK)


def _is_frozen(view: View, params: Params) -> bool:
    """By the host's word, and for a moment after the thaw until frames come."""
    window, since_t = view.window, view.window.frozen_t()
    if since_t is None or view.now_t - since_t < params.frozen_s:
        return False
    thawed_t = window.thawed_t()
    return thawed_t is None or view.now_t - thawed_t < params.silent_s


def firing() -> Example:
    """The link is cut."""
    cut = LinkChange(t=T0 + 100, state="lost", reason="connection reset")
    return example(frames(3), cut, Tick(t=T0 + 103), subject="link")


def clear() -> Example:
    """A short silence of the watched side."""
    return example(frames(5), Tick(t=T0 + 7), Tick(t=T0 + 9))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
