"""Real terminals: a tmux server of its own, and the environment of what runs in it."""

import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "TMUX"}}
    path = os.pathsep.join(str(ROOT / folder) for folder in ("dflash", "watchdog", "tui"))
    return {**kept, "PYTHONPATH": path, "TERM": "xterm-256color", **more}


def wait_until(holds, timeout_s: float = 90.0):
    deadline = time.monotonic() + timeout_s
    while not (answer := holds()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)
    return answer


class Tmux:
    """A tmux server of its own with one window."""

    def __init__(self, socket: Path, size: tuple[int, int], command: str, **env: str) -> None:
        self._base = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        place = ["-x", str(size[0]), "-y", str(size[1])]
        start = ["new-session", "-d", "-s", "s", *place, command]
        subprocess.run([*self._base, *start], check=True, env=environment(**env), timeout=90)

    def tell(self, *words: str) -> str:
        done = subprocess.run(
            [*self._base, *words], capture_output=True, text=True, check=True, timeout=90
        )
        return done.stdout

    def seen(self) -> str:
        return self.tell("capture-pane", "-t", "s", "-p")

    def shows(self, *texts: str) -> str:
        """The screen once it holds all of these; the last row, `q quit`, is painted last."""

        def whole() -> str | None:
            now = self.seen()
            return now if all(text in now for text in texts) else None

        return wait_until(whole)

    def painted(self, wanted: str) -> str:
        """The whole screen with its escape codes, once it is there and holds this."""
        self.shows("STALLED", "q quit")
        ask = ("capture-pane", "-t", "s", "-p", "-e")
        return wait_until(lambda: wanted in (now := self.tell(*ask)) and now)

    def close(self) -> None:
        subprocess.run([*self._base, "kill-server"], check=False, capture_output=True, timeout=90)
