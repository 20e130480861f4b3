"""A tmux pane read as a log, when that is where descriptor 1 points.

Tmux shows a screen, not a stream: new lines are what stands below the lines known from the last
look. The line with the cursor is unfinished (a progress bar): it is handed over after a carriage
return each time it has changed. Runs in a child, since a tmux server can be stuck.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

from dflash_watch.agent import tmux
from dflash_watch.agent.child import Child

FORMAT = "#{history_size} #{cursor_x} #{cursor_y} #{pane_dead}"
FIRST_LINES, LATER_LINES = 2000, 400
ANCHOR_LINES = 6
EVERY_S = 2.0
SEARCH_EVERY_S = 20.0
DEADLINE_S = 6.0
MAX_TEXT = 65536


class Screen(NamedTuple):
    """A capture: finished lines, the unfinished one, and how many rows have ever been."""

    lines: List[str]
    tail: str
    rows: int


def parse(text: str) -> Optional[Screen]:
    """The answer of `display-message` in FORMAT followed by `capture-pane -p -J`."""
    head, _, body = text.partition("\n")
    words = head.split()
    if len(words) < 3 or not all(word.isdigit() for word in words[:3]):
        return None
    history, cursor_x, cursor_y = (int(word) for word in words[:3])
    lines = [line.rstrip() for line in body.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    tail = lines.pop() if lines and cursor_x > 0 else ""
    return Screen(lines, tail, history + cursor_y)


def new_lines(known: List[str], screen: Screen, grown: int) -> List[str]:
    """Lines of the screen that are newer than the last known ones.

    Args:
        known: finished lines of the last look; empty: all are new.
        screen: what stands there now.
        grown: rows that came since, negative when the history was cut. Tells repeated lines apart.
    """
    anchor = known[-ANCHOR_LINES:]
    if not anchor:
        return screen.lines
    size = len(anchor)
    ends = [
        end
        for end in range(size, len(screen.lines) + 1)
        if screen.lines[end - size : end] == anchor
    ]
    if not ends:
        return screen.lines  # everything known has been cleared or scrolled away
    fitting = [end for end in ends if len(screen.lines) - end <= grown]
    end = min(fitting) if fitting and grown >= 0 else max(ends)
    return screen.lines[end:]


class PaneReader:
    """Panes by terminal, and what was last seen in each; lives in the child."""

    def __init__(self) -> None:
        self._panes: Dict[str, tmux.Pane] = {}
        self._searched_s = float("-inf")
        self._last: Dict[str, Screen] = {}
        self._sent: Dict[str, int] = {}

    def serve(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """`panes`: terminal -> new text, for each of the request's `ttys` that is a pane."""
        ttys = [tty for tty in request.get("ttys", ()) if isinstance(tty, str)]
        missing = [tty for tty in ttys if tty not in self._panes]
        if missing and request["now_s"] - self._searched_s >= SEARCH_EVERY_S:
            self._searched_s = request["now_s"]
            self._panes.update({pane.tty: pane for pane in tmux.panes()})
        return {"panes": {tty: self._read(tty) for tty in ttys if tty in self._panes}}

    def _read(self, tty: str) -> Dict[str, Any]:
        pane, last = self._panes[tty], self._last.get(tty)
        depth = FIRST_LINES if last is None else LATER_LINES
        at = ["-t", pane.name]
        show = ["display-message", "-p", *at, FORMAT, ";", "capture-pane", "-p", "-J", *at]
        screen = parse(tmux.ask(pane.socket, *show, "-S", str(-depth)) or "")
        if screen is None:
            del self._panes[tty]
            return {"via": "tmux " + pane.name}
        fresh = new_lines(
            last.lines if last else [], screen, screen.rows - (last.rows if last else 0)
        )
        text = "".join(line + "\n" for line in fresh)
        if screen.tail and (fresh or last is None or screen.tail != last.tail):
            text += "\r" + screen.tail
        self._last[tty] = screen
        skipped = max(0, len(text) - MAX_TEXT)
        offset = self._sent.get(tty, 0) + skipped
        self._sent[tty] = offset + len(text) - skipped
        return {
            "via": "tmux " + pane.name,
            "text": text[skipped:],
            "offset": offset,
            "skipped_bytes": skipped,
            "newlines": text.count("\n"),
            "carriage_returns": text.count("\r"),
        }


class PaneSource:
    """Panes seen from the agent; the child is made when the first terminal is to be read."""

    def __init__(self) -> None:
        self.child: Optional[Child] = None
        self._asked_s = float("-inf")
        self._via: Dict[str, str] = {}

    def ask(self, ttys: List[str], now_s: float) -> None:
        """Begin a reading when one is due."""
        if not ttys or now_s - self._asked_s < EVERY_S - 0.1:
            return
        if self.child is None:
            self.child = Child("tmux", PaneReader().serve, DEADLINE_S)
        self._asked_s = now_s
        self.child.ask({"ttys": ttys, "now_s": now_s}, now_s)

    def collect(self, now_s: float) -> Dict[str, Dict[str, Any]]:
        """Terminal -> keys of its `frame.LogSample`, of a reading that is there."""
        answer = self.child.collect(now_s, 0.0) if self.child else None
        panes: Dict[str, Dict[str, Any]] = (answer or {}).get("panes", {})
        self._via.update({tty: pane["via"] for tty, pane in panes.items()})
        return {tty: panes.get(tty, {"via": via}) for tty, via in self._via.items()}

    def gap(self, now_s: float) -> Optional[Dict[str, Any]]:
        """Why the panes cannot be read now."""
        return self.child.gap(now_s) if self.child else None

    def close(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.close()
