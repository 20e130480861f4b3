"""What a server costs with viewers and without, how soon it ends, and what a kill loses.

Run: python tests/bench/bench_serve.py [SECONDS] [KILLS]. A scripted run is watched at 1 Hz; 10
viewers read, 5 have stopped reading. Then it is ended by SIGTERM with all of them there, and killed
at odd moments: what was on disk is read and its age taken. Prints a table and one JSON line.
"""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT / name) for name in ("dflash", "watchdog", "tui")]
LOOP = ROOT / "tests" / "e2e" / "scripts" / "plain_loop.py"
READING, STALLED = 10, 5
TARGETS = {"end_s": 2.0, "lost_s": 2.5, "viewers_cpu_percent": 3.0, "grown_mib": 16.0}
TICKS = os.sysconf("SC_CLK_TCK")


class Place:
    """A run, folders, and servers one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runtime = folder, folder / "runtime"
        self.runtime.mkdir(mode=0o700)
        self.environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(FOLDERS),
            "XDG_RUNTIME_DIR": str(self.runtime), "XDG_STATE_HOME": str(folder / "state"),
        }  # fmt: skip
        with (folder / "run.log").open("wb") as log:
            self.run = subprocess.Popen(
                [sys.executable, str(LOOP), "--steps", "1000000", "--step-s", "0.1"], stdout=log
            )

    def serve(self) -> subprocess.Popen:
        """A server that has seen its first frame."""
        server = subprocess.Popen(
            [sys.executable, "-m", "dflash_watch.cli", "serve", "--pid", str(self.run.pid)],
            env=self.environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        while "RUNNING" not in server.stderr.readline():
            assert server.poll() is None
        threading.Thread(target=server.stderr.read, daemon=True).start()
        return server

    def come(self) -> socket.socket:
        """A viewer."""
        link = socket.socket(socket.AF_UNIX)
        folder = os.open(self.runtime / "dflash-watch", os.O_RDONLY)
        link.connect(f"/proc/self/fd/{folder}/pid-{self.run.pid}.sock")
        os.close(folder)
        return link

    def kept_t(self) -> float:
        """The newest moment that a killed server left on disk; the run's clock is this one's."""
        (path,) = (self.folder / "state" / "dflash-watch" / "watches").glob("*.json")
        (limits,) = (self.folder / "state" / "dflash-watch" / "limits").glob("*.json")
        json.loads(limits.read_text())
        return json.loads(path.read_text())["remembered"]["t"]


def cpu_s(pid: int) -> float:
    """Processor time of a process, without its agent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid: int) -> float:
    """Memory in use."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def drain(link: socket.socket) -> None:
    """Read until the end."""
    while link.recv(1 << 18):
        pass


def share(pid: int, seconds: float) -> float:
    """Percent of a core over a while."""
    before, began_s = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - began_s)


def main() -> int:
    """Measure; 0 when the targets are met."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    with tempfile.TemporaryDirectory() as name:
        place = Place(Path(name))
        try:
            figures = measure(place, seconds, kills)
        finally:
            place.run.kill()
            place.run.wait()
    for key, value in figures.items():
        print(f"{key:<22} {value:8.2f}   target {TARGETS.get(key, '')}")
    print(json.dumps({"figure": "serve", **figures}))
    return 0 if all(figures[key] <= most for key, most in TARGETS.items()) else 1


def measure(place: Place, seconds: float, kills: int) -> dict[str, float]:
    """All figures."""
    server = place.serve()
    time.sleep(3)
    alone, alone_mib = share(server.pid, seconds), resident_mib(server.pid)
    links = [place.come() for _ in range(READING + STALLED)]
    for link in links[:READING]:
        threading.Thread(target=drain, args=(link,), daemon=True).start()
    with_viewers, mib = share(server.pid, seconds), resident_mib(server.pid)
    began_s = time.monotonic()
    server.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    end_s = time.monotonic() - began_s
    lost = []
    for number in range(kills):
        server = place.serve()
        time.sleep(2.0 + 0.37 * number % 1.3)
        server.kill()
        killed_t = time.time()
        server.wait()
        lost.append(killed_t - place.kept_t())
    return {
        "alone_cpu_percent": alone, "viewers_cpu_percent": with_viewers - alone,
        "alone_mib": alone_mib, "grown_mib": mib - alone_mib, "end_s": end_s,
        "lost_s": max(lost), "lost_median_s": statistics.median(lost),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
