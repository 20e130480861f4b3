"""A run that spills every secret and every code: nothing of it in any file, any byte of output.

One hostile run on this machine, watched by everything there is to watch with, once; then each file
that was written and each byte that was printed is searched.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from watch.cli.conftest import FOLDERS, LONG_S, Bench, until

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from secrets_and_codes import SECRETS, failed_event  # noqa: E402 - shared with a bare script

RUN_NAME = "a $(touch pwned) `touch pwned`\x1b[31m[red]![i](x)"
HOOK = "import os, sys; open(sys.argv[1], 'a').write(repr(sorted(os.environ.items())))"
FORBIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)


class Seen(NamedTuple):
    """What came out."""

    printed: dict[str, str]
    """Command -> what it printed on both streams."""
    files: dict[str, str]
    """File -> its text, packed ones unpacked."""
    folder: Path


def contents(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            raw = path.read_bytes()
            raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
            found[str(path.relative_to(folder))] = raw.decode()
    return found


class Stage(Bench):
    """The hostile run, and watchers of it."""

    def hostile(self) -> None:
        self.run_dir = self.folder / "runs" / RUN_NAME
        self.run_dir.mkdir(parents=True)
        self.log = self.folder / "runs" / "run.log"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*FOLDERS, str(HERE)]),
            "PLANTED_API_KEY": SECRETS["environment"],
        }
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "hostile_run.py"), str(self.run_dir), "--api-key",
                 SECRETS["argv"]],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            )  # fmt: skip
        self._started.append(process)
        self.process = process
        until((self.run_dir / "run.json").exists, "the run")

    def finish(self, process: subprocess.Popen) -> str:
        """End a watcher; all that it printed."""
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=LONG_S)
        return (out or "") + (err or "")

    def dashboard(self, *words: str) -> str:
        """What the dashboard sends to a terminal until it has shown the stall."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-m", "dflash_watch.cli", *words], stdin=theirs, stdout=theirs,
            stderr=theirs, env={**self.environment, "TERM": "xterm-256color"}, cwd=self.folder,
            start_new_session=True,
        )  # fmt: skip
        self._started.append(process)
        os.close(theirs)
        shown, end_s = b"", time.monotonic() + LONG_S
        while not re.search(b"STALLED|CRASHED", shown) and time.monotonic() < end_s:
            if select.select([ours], [], [], 1.0)[0]:
                shown += os.read(ours, 65536)
        quiet_s = time.monotonic() + 2.0  # whatever is drawn next, some of it
        while time.monotonic() < quiet_s:
            if select.select([ours], [], [], 0.2)[0]:
                shown += os.read(ours, 65536)
        process.kill()
        os.close(ours)
        process.wait(LONG_S)
        return shown.decode("utf-8", "replace")

    def all_of(self, *words: str) -> str:
        done = self.watch(*words)
        assert "Traceback (most recent call last)" not in done.stderr, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    stage = Stage(tmp_path_factory.mktemp("hostile"))
    try:
        yield play(stage)
    finally:
        stage.end()


def play(stage: Stage) -> Seen:
    kept = stage.folder / "kept"
    kept.mkdir()
    stage.hostile()
    which = ["--run-dir", str(stage.run_dir)]
    hook = f'{sys.executable} -c "{HOOK}" {kept / "hook.txt"}'
    plain = stage.start("--plain", *which, "--incidents", str(kept / "a"), "--on-stall", hook)
    lines = stage.start(
        "--json", "--pid", str(stage.process.pid), "--incidents", str(kept / "b"),
        "--record", str(kept / "record.jsonl"),
    )  # fmt: skip
    served = stage.start("serve", "--name", "hostile", "--incidents", str(kept / "c"), *which)
    printed = {}
    until(lambda: " done\n" in stage.log.read_text(errors="replace"), "the torn line")
    printed["check"] = stage.all_of("check", *which)
    printed["check --json"] = stage.all_of("check", "--json", "--log", str(stage.log))
    for watcher in ("a", "b", "c"):
        until(lambda at=watcher: list((kept / at).glob("*/stacks-2.json")), f"stacks in {watcher}")
    until((kept / "hook.txt").exists, "the hook")
    with (stage.run_dir / "events.jsonl").open("a") as events:
        events.write(json.dumps(failed_event(time.time())) + "\n")
    until(lambda: list((kept / "a").glob("*-worker-died*/report.md")), "the second incident")
    printed["dump"] = stage.all_of("dump", *which)
    printed["dump --json"] = stage.all_of("dump", "--json", "--samples", "1", *which)
    viewer = stage.start("attach", "hostile", "--json")
    printed["dashboard"] = stage.dashboard("attach", "hostile")
    time.sleep(0.5)
    printed["attach --json"] = stage.finish(viewer)
    printed["serve"] = stage.finish(served)
    printed["watch --plain"] = stage.finish(plain)
    printed["watch --json"] = stage.finish(lines)
    stage.process.kill()
    at = ["--incidents", str(kept / "b")]
    for words in (
        ["incidents", *at], ["incidents", "last", *at], ["incidents", "last", "--json", *at],
        ["incidents", "--journal", *at], ["replay", "last", "--plain", *at],
        ["replay", str(kept / "record.jsonl"), "--plain"],
        ["replay", str(kept / "record.jsonl"), "--json"],
        ["diagnose", "--log", str(stage.log)], ["diagnose", "--json", "--log", str(stage.log)],
        ["check", "--run-dir", str(stage.run_dir)],
    ):  # fmt: skip
        printed[" ".join(words[:2])] = stage.all_of(*words)
    state = {f"state/{name}": text for name, text in contents(stage.folder / "state").items()}
    return Seen(printed, contents(kept) | state, stage.folder)


def places(seen: Seen) -> dict[str, str]:
    return {f"printed by {name}": text for name, text in seen.printed.items()} | seen.files


def test_all_that_is_kept_was_kept(seen: Seen) -> None:
    names = set(seen.files)
    for wanted in ("report.md", "verdict.json", "stacks-1.txt", "stacks-2.json", "window.jsonl.gz",
                   "log-tail.txt", "processes.txt", "host.txt", "journal.jsonl"):  # fmt: skip
        assert any(name.endswith(wanted) for name in names), wanted
    assert {"hook.txt", "record.jsonl"} <= names
    assert any(name.startswith("state/dflash-watch/limits/") for name in names)
    assert all(text.strip() for text in seen.printed.values()), seen.printed


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_in_any_file_or_any_output(seen: Seen, name: str) -> None:
    value = SECRETS[name]
    parts = [value] if name != "torn" else [value, value[:12], value[-12:]]
    found = {where for where, text in places(seen).items() if any(one in text for one in parts)}
    # The hook is the person's own program: it has the person's own environment.
    assert found - ({"hook.txt"} if name == "environment" else set()) == set()


def test_the_secrets_were_really_there_to_be_masked(seen: Seen) -> None:
    everything = "".join(places(seen).values())
    log = (seen.folder / "runs" / "run.log").read_text(errors="replace")
    assert sum(SECRETS[name] in log for name in SECRETS) >= 14
    for trace in ("login with *** and ***", "signed in with api_key=***", "--password ***",
                  "https://***@example.com", "PRIVATE KEY-----***", "Bearer ***"):  # fmt: skip
        assert trace in everything, trace


def test_no_code_or_invisible_character_is_in_any_file_or_any_output(seen: Seen) -> None:
    found = {
        where: FORBIDDEN.findall(text)[:5] for where, text in places(seen).items()
        if FORBIDDEN.search(text) and where != "printed by dashboard"
    }  # fmt: skip
    assert found == {}


def test_the_dashboard_sends_only_codes_of_its_own_to_the_terminal(seen: Seen) -> None:
    shown = seen.printed["dashboard"]
    assert re.search("STALLED|CRASHED", shown)
    strings = re.findall(r"\x1b[\]P_^X][^\x07\x1b]*", shown)
    assert not [one for one in strings if "evil" in one or "owned" in one or "52;c" in one]
    assert not re.search(r"[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\x80-\x9f]", shown)


def test_every_line_of_json_is_one_object(seen: Seen) -> None:
    jsons = {name: text for name, text in seen.printed.items() if "--json" in name}
    jsons |= {name: text for name, text in seen.files.items() if ".jsonl" in name}
    assert len(jsons) >= 6
    for name, text in jsons.items():
        lines = [line for line in text.splitlines() if not line.startswith("dflash-watch: ")]
        assert all(isinstance(json.loads(line), dict) for line in lines), name


def test_nothing_that_was_named_ran_or_became_a_path(seen: Seen) -> None:
    assert not list(seen.folder.rglob("pwned"))
    assert not Path("/tmp/pwned").exists()
    assert all(re.fullmatch(r"[\w.-]+", Path(name).name) for name in seen.files)
    for name, text in seen.files.items():
        if name.endswith("report.md"):
            outside = re.sub(r"(?ms)^(`{3,})$.*?^\1$", "", text)
            assert not re.search(r"(?<!\\)<img|\]\(http|```", outside), name


def test_steps_to_type_quote_what_the_run_named(seen: Seen) -> None:
    told = [
        step for text in seen.printed["watch --json"].splitlines() if text.startswith("{")
        for step in json.loads(text)["next"] if "touch pwned" in step
    ]  # fmt: skip
    for step in told:
        assert re.search(r"'[^']*\$\(touch pwned\)[^']*'", step), step
        assert "`touch pwned`" not in step
