"""CPU, memory and bytes of the dashboard at 1 Hz, against an app of one label in the same run.

    python tests/bench/bench_dashboard.py [--seconds 20]

Targets: at most 2 % of a core and 64 MiB at 120x40. The ratio to the label holds on slow machines.
"""

import argparse
import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
LABEL = """
from textual.app import App
from textual.widgets import Static
class One(App):
    ENABLE_COMMAND_PALETTE = False
    n = 0
    def compose(self):
        yield Static("0")
    def on_mount(self):
        self.set_interval(1.0, self.tick)
    def tick(self):
        self.n += 1
        self.query_one(Static).update(str(self.n))
One().run()
"""
DASHBOARD = """
import socket, sys
from dflash_tui.app import SocketFeed, run
run(SocketFeed(socket.socket(fileno=int(sys.argv[1]))))
"""
PUBLISHER = """
import socket, sys, time
import msgspec
from datetime import UTC
from dflash_tui.demo.feed import DemoFeed
link, feed = socket.socket(fileno=int(sys.argv[1])), DemoFeed(zone=UTC, name="running")
while True:
    link.sendall(msgspec.json.encode(feed.latest()) + b"\\n")
    time.sleep(1.0)
"""


def environment() -> dict[str, str]:
    folders = (str(ROOT / name) for name in ("dflash", "watchdog", "tui"))
    kept = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    return {**kept, **colours, "PYTHONPATH": os.pathsep.join(folders)}


def measure(
    code: str, size: tuple[int, int], seconds: float, *words: str, fds=(), keys=b""
) -> dict:
    """CPU share of a core, RSS and bytes a second of a program on a pty, after it has settled."""
    master, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    command = [sys.executable, "-c", code, *words]
    program = subprocess.Popen(
        command, stdin=side, stdout=side, stderr=side, env=environment(), pass_fds=fds
    )
    try:
        drain(master, 4.0)
        os.write(master, keys)
        drain(master, 1.0)
        process = psutil.Process(program.pid)
        before, begin = process.cpu_times(), time.monotonic()
        sent = drain(master, seconds)
        after, wall = process.cpu_times(), time.monotonic() - begin
        used = after.user + after.system - before.user - before.system
        memory = process.memory_info().rss / 2**20
        return {
            "cpu_percent": round(100 * used / wall, 2),
            "rss_mib": round(memory, 1),
            "kib_per_s": round(sent / wall / 1024, 1),
        }
    finally:
        program.send_signal(signal.SIGTERM)
        drain(master, 1.5)
        program.kill()
        program.wait()
        os.close(master)
        os.close(side)


def drain(master: int, seconds: float) -> int:
    """Reads what comes, as a terminal does; how many bytes."""
    end, got = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        if select.select([master], [], [], left)[0]:
            try:
                got += len(os.read(master, 65536))
            except OSError:
                return got
    return got


def dashboard(size: tuple[int, int], seconds: float, keys: bytes = b"") -> dict:
    """The dashboard on snapshots that another process publishes once a second."""
    ours, theirs = socket.socketpair()
    publisher = subprocess.Popen(
        [sys.executable, "-c", PUBLISHER, str(theirs.fileno())],
        env=environment(),
        pass_fds=(theirs.fileno(),),
        stderr=subprocess.DEVNULL,
    )
    theirs.close()
    try:
        fd = ours.fileno()
        return measure(DASHBOARD, size, seconds, str(fd), fds=(fd,), keys=keys)
    finally:
        ours.close()
        publisher.kill()
        publisher.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    label = measure(LABEL, (120, 40), seconds)
    results = {
        "label_120x40": label,
        "dashboard_120x40": dashboard((120, 40), seconds),
        "dashboard_80x24": dashboard((80, 24), seconds),
        "dashboard_200x60": dashboard((200, 60), seconds),
        "paused_120x40": dashboard((120, 40), seconds, keys=b" "),
    }
    for name, found in results.items():
        ratio = found["cpu_percent"] / max(label["cpu_percent"], 0.05)
        found["cpu_to_label"] = round(ratio, 1)
        found["rss_to_label"] = round(found["rss_mib"] / label["rss_mib"], 2)
        sys.stdout.write(json.dumps({"what": name, **found}) + "\n")
    main_one = results["dashboard_120x40"]
    fits = main_one["cpu_percent"] <= 2.0 and main_one["rss_mib"] <= 64.0
    sys.stdout.write(f"targets (2 % of a core, 64 MiB): {'met' if fits else 'missed'}\n")
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
