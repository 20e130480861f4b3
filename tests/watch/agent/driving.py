"""Runs the real agent as its watcher would: over pipes, by its stub or its entry script."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dflash_watch.agent.bundle import build_agent
from dflash_watch.agent.stub import ENTRY_SCRIPT, STUB
from dflash_watch.frame import Frame, Hello, StackSample, parse_record

NONCE = "00c0ffee00c0ffee"
PATIENCE_S = 90.0


class AgentProcess:
    """One agent, its records as they come, and requests to it.

    Every frame, hello and stack sample goes through `parse_record`: a record that does not fit the
    contract fails the test that reads it.
    """

    def __init__(
        self,
        target: dict[str, Any],
        *,
        python: str | None = None,
        env: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        script: str = ENTRY_SCRIPT,
        **config: Any,
    ) -> None:
        code, _ = build_agent()
        keys = {"protocol": 1, "nonce": NONCE, "every_s": 0.2, "max_life_s": 120, "target": target}
        packed = json.dumps({**keys, **config}).encode()
        inner = [python, "-I", "-S", "-B", "-c", STUB] if python else ["/bin/sh", "-c", script]
        self.process = subprocess.Popen(
            [*prefix, *inner],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )
        self.write(b"%d %d\n" % (len(code), len(packed)) + code + packed)
        self._inflate = zlib.decompressobj()
        self._buffer = b""
        self.noise = b""
        self.wire_bytes = 0
        self._id = 0

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def ask(self, op: str, raw: bytes = b"", **keys: Any) -> int:
        self._id += 1
        request = json.dumps({"id": self._id, "op": op, **keys}).encode()
        self.write(b"%d\n" % len(request) + request + raw)
        return self._id

    def record(self, patience_s: float = PATIENCE_S) -> dict[str, Any] | None:
        """The next record as plain JSON, None at the end of output."""
        deadline = time.monotonic() + patience_s
        while True:
            whole = self._take_record()
            if whole is not None:
                record = json.loads(whole)
                if record["type"] != "reply":
                    parse_record(whole)
                return record
            assert self.process.stdout
            left = deadline - time.monotonic()
            assert left > 0, f"no record; stderr: {self.stderr_now()!r}"
            ready, _, _ = select.select([self.process.stdout], [], [], left)
            if not ready:
                continue
            part = os.read(self.process.stdout.fileno(), 65536)
            if not part:
                return None
            self._buffer += part
            self.wire_bytes += len(part)

    def _take_record(self) -> bytes | None:
        mark = f"\nDFLASH {NONCE} ".encode()
        place = self._buffer.find(mark)
        if place < 0:
            return None
        end = self._buffer.find(b"\n", place + 1)
        if end < 0:
            return None
        self.noise += self._buffer[:place]
        _seq, size = self._buffer[place + len(mark) : end].split()
        if len(self._buffer) < end + 1 + int(size):
            return None
        packed = self._buffer[end + 1 : end + 1 + int(size)]
        self._buffer = self._buffer[end + 1 + int(size) :]
        return self._inflate.decompress(packed)

    def until(
        self, wanted: Callable[[dict[str, Any]], Any], patience_s: float = PATIENCE_S
    ) -> dict[str, Any]:
        """The first record that satisfies `wanted`."""
        deadline = time.monotonic() + patience_s
        last = None
        while time.monotonic() < deadline:
            record = self.record(max(0.1, deadline - time.monotonic()))
            assert record is not None, f"the agent ended; stderr: {self.stderr_now()!r}"
            if wanted(record):
                return record
            last = record
        raise AssertionError(f"never came; last: {json.dumps(last)[:3000]}")

    def agent_pid(self) -> int:
        """The agent's own process; its entry script waits above it. Before any frame is read."""
        return int(self.until(lambda record: record["type"] == "hello")["agent_pid"])

    def frame(
        self, wanted: Callable[[dict[str, Any]], Any] = lambda _frame: True
    ) -> dict[str, Any]:
        """The first frame that satisfies `wanted`."""
        return self.until(lambda record: record["type"] == "frame" and wanted(record))

    def stderr_now(self) -> bytes:
        assert self.process.stderr
        ready, _, _ = select.select([self.process.stderr], [], [], 0.1)
        return os.read(self.process.stderr.fileno(), 65536) if ready else b""

    def end(self, patience_s: float = PATIENCE_S) -> int:
        """Close the agent's input and wait for its end."""
        assert self.process.stdin
        if not self.process.stdin.closed:
            self.process.stdin.close()
        return self.process.wait(patience_s)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream and not stream.closed:
                stream.close()


def typed(record: dict[str, Any]) -> Frame | Hello | StackSample:
    """A record as the watcher's own type."""
    parsed = parse_record(json.dumps(record))
    assert isinstance(parsed, Frame | Hello | StackSample)
    return parsed


def wait_for(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("never came true")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
