"""The whole agent as a real child process, by its stub or its entry script."""

from __future__ import annotations

import array
import fcntl
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import pythons
from dflash_watch.agent.bundle import build_agent
from dflash_watch.agent.stub import ENTRY_SCRIPT, EXIT_AGENT_FAILED, EXIT_NO_PYTHON, STUB
from dflash_watch.frame import PROTOCOL, PROTOCOL_MIN
from watch.agent.driving import AgentProcess, typed, wait_for

Start = Callable[..., AgentProcess]


@pytest.mark.parametrize("version", pythons.VERSIONS)
def test_every_python_from_3_8_says_hello_and_sends_frames_that_parse(
    version, agent: Start, trainer
):
    run = agent({"pid": trainer.pid}, python=pythons.python(version))
    hello = typed(run.until(lambda record: True))
    frame = run.frame(lambda frame: frame["run"]["state"] == "found" and frame["seq"] >= 2)
    assert (hello.protocol_min, hello.protocol) == (PROTOCOL_MIN, PROTOCOL)
    assert hello.code_sha256 == build_agent()[1]
    assert hello.agent_pid == run.process.pid
    assert [sample["pid"] for sample in frame["processes"]] == [trainer.pid]
    assert frame["logs"][0]["text"].startswith("step=") or "step=" in frame["logs"][0]["text"]
    assert {gap["source"] for gap in frame["gaps"]} <= {"gpu", "kernel"}
    assert run.end() == 0


def test_frames_count_up_by_one_and_the_clock_moves(agent: Start, trainer):
    run = agent({"pid": trainer.pid})
    frames = [run.frame() for _ in range(5)]
    assert [frame["seq"] for frame in frames] == [0, 1, 2, 3, 4]
    assert all(a["boot_s"] < b["boot_s"] for a, b in itertools.pairwise(frames))


def test_end_of_input_ends_it_at_once_and_leaves_no_process(agent: Start, trainer):
    run = agent({"pid": trainer.pid})
    pid = run.agent_pid()
    run.frame(lambda frame: frame["seq"] >= 1)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert run.end() == 0
    assert all(not Path(f"/proc/{pid}").exists() or gone(pid) for pid in children)


def gone(pid: str) -> bool:
    return bool(wait_for(lambda: not Path(f"/proc/{pid}").exists()))


def test_it_ends_when_its_life_is_over(agent: Start, trainer):
    run = agent({"pid": trainer.pid}, max_life_s=1.0)
    while run.record() is not None:
        pass
    assert run.process.wait(60) == 0


def test_it_ends_when_nobody_reads_any_more(agent: Start, trainer):
    run = agent({"pid": trainer.pid})
    run.frame()
    assert run.process.stdout
    run.process.stdout.close()
    assert run.process.wait(60) == 0


def test_it_ends_when_the_watcher_falls_silent_though_its_output_is_taken(agent: Start, trainer):
    """A half-open connection: a middlebox takes every frame, and nobody is there."""
    run = agent({"pid": trainer.pid}, every_s=0.1, watcher_patience_s=1.0)
    while run.record() is not None:
        pass
    assert run.process.wait(60) == 0


def test_stop_ends_it(agent: Start, trainer):
    run = agent({"pid": trainer.pid})
    run.frame()
    run.ask("stop")
    while run.record() is not None:
        pass
    assert run.process.wait(60) == 0


def test_ping_is_answered_by_its_number(agent: Start, trainer):
    run = agent({"pid": trainer.pid})
    number = run.ask("ping")
    assert run.until(lambda record: record["type"] == "reply") == {
        "type": "reply",
        "id": number,
        "ok": True,
    }


def test_an_unknown_request_is_refused_by_name(agent: Start, trainer):
    run = agent({"pid": trainer.pid})
    run.ask("dance")
    reply = run.until(lambda record: record["type"] == "reply")
    assert not reply["ok"]
    assert "dance" in reply["error"]


def test_the_pace_changes_on_request(agent: Start, trainer):
    run = agent({"pid": trainer.pid}, every_s=60)
    run.frame()
    run.ask("pace", every_s=0.1)
    # Less than the old pace, so that a request that was ignored fails here.
    assert run.until(lambda record: record["type"] == "frame", 50.0)["seq"] == 1


def test_garbage_instead_of_a_request_ends_it(agent: Start, trainer):
    run = agent({"pid": trainer.pid})
    run.frame()
    run.write(b"this is no request at all, it has no length\n")
    while run.record() is not None:
        pass
    assert run.process.wait(60) == 0


def test_a_reader_that_stops_costs_looks_but_never_the_stream(agent: Start, program, tmp_path):
    talk = (
        "import os, time\nwhile True:\n    print(os.urandom(9000).hex(), flush=True)\n"
        "    time.sleep(0.01)"
    )
    with (tmp_path / "talk.log").open("wb") as log:
        talker = program(talk, stdout=log)
        run = agent({"pid": talker.pid}, every_s=0.1)
        run.frame()
        pipe = run.process.stdout
        assert pipe
        wait_for(
            lambda: (
                run.process.poll() is None
                and unread(pipe.fileno()) > 60000
                and asleep_for_a_while()
            )
        )
        frame = run.frame(lambda frame: frame["cost"]["frames_left_out"] > 0)
        later = run.frame(lambda later: later["seq"] > frame["seq"] + 2)
    assert later["run"]["state"] == "found"


def test_a_reader_that_never_comes_back_leaves_no_agent(agent: Start, program, tmp_path):
    talk = "import os, time\nwhile True:\n    print(os.urandom(9000).hex(), flush=True)\n"
    with (tmp_path / "talk.log").open("wb") as log:
        talker = program(talk + "    time.sleep(0.01)", stdout=log)
    run = agent({"pid": talker.pid}, every_s=0.1, reader_patience_s=1.0)
    assert run.process.wait(60) == 0
    assert b"taken nothing for 1 s" in run.stderr_now()


def unread(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def asleep_for_a_while() -> bool:
    time.sleep(1.0)
    return True


def test_two_watchers_of_one_run_each_get_the_whole_log(agent: Start, trainer):
    runs = [agent({"pid": trainer.pid}) for _ in range(2)]
    texts = []
    for run in runs:
        text = ""
        while "step=40 " not in text:
            text += run.frame()["logs"][0].get("text", "")
        texts.append(text)
    lines = [
        [line for line in text.splitlines() if line.startswith("step=")][:40] for text in texts
    ]
    assert [line.split()[0] for line in lines[0]] == [f"step={step}" for step in range(1, 41)]
    assert [line.split()[0] for line in lines[1]] == [f"step={step}" for step in range(1, 41)]


def test_the_agent_and_its_children_give_way_have_bounds_and_are_killed_first(
    agent: Start, trainer, fake_nvml
):
    run = agent({"pid": trainer.pid}, gpu_library=str(fake_nvml.library), max_life_s=600)
    pid = run.agent_pid()
    run.frame(lambda frame: frame.get("gpus"))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert children
    for each in (pid, *map(int, children)):
        assert os.getpriority(os.PRIO_PROCESS, each) == os.getpriority(os.PRIO_PROCESS, 0) + 5
        assert os.sched_getscheduler(each) == os.SCHED_BATCH
        assert Path(f"/proc/{each}/oom_score_adj").read_text() == "1000\n"
        assert resource.prlimit(each, resource.RLIMIT_DATA)[0] == 1 << 30
        assert resource.prlimit(each, resource.RLIMIT_CPU)[0] == 180
        assert resource.prlimit(each, resource.RLIMIT_CORE)[0] == 0


def test_noise_of_shell_start_up_files_does_no_harm(agent: Start, trainer):
    noisy = ("sh", "-c", 'echo "Welcome! DFLASH 123 1 2"; echo; exec "$@"', "sh")
    run = agent({"pid": trainer.pid}, prefix=noisy)
    assert run.frame()["run"]["state"] == "found"
    assert b"Welcome!" in run.noise


def without_usual_places(script: str) -> str:
    """The entry script on a machine that has no Python where Pythons usually are."""
    return (
        script.replace("/usr/", "/nowhere/")
        .replace("/opt/", "/nowhere/")
        .replace("/root/", "/nowhere/")
    )


def bare_environment(folder: Path) -> dict[str, str]:
    """A PATH with `readlink` on it and no Python."""
    readlink = shutil.which("readlink")
    assert readlink
    (folder / "bin").mkdir()
    (folder / "bin" / "readlink").symlink_to(readlink)
    return {"PATH": str(folder / "bin"), "HOME": str(folder)}


def test_without_a_python_the_script_says_so(tmp_path):
    script = without_usual_places(ENTRY_SCRIPT).replace("/proc/", "/nowhere/")
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env=bare_environment(tmp_path),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=90,
        check=False,
    )
    assert done.returncode == EXIT_NO_PYTHON
    assert b"DFLASH-NO-PYTHON" in done.stderr


def test_a_python_is_found_through_a_running_one_when_path_has_none(
    agent: Start, program, tmp_path
):
    runner = program()
    script = without_usual_places(ENTRY_SCRIPT)
    run = agent({"pid": runner.pid}, script=script, env=bare_environment(tmp_path))
    assert run.frame()["run"]["state"] == "found"


@pytest.mark.parametrize("status", [1, 2, 95, 126])
def test_a_python_that_will_not_do_is_passed_over_with_the_input_unread(
    agent: Start, program, tmp_path, status
):
    (tmp_path / "bin").mkdir()
    for name, text in (("python3", f"exit {status}"), ("python", f'exec {sys.executable} "$@"')):
        wrapper = tmp_path / "bin" / name
        wrapper.write_text(f"#!/bin/sh\n{text}\n")
        wrapper.chmod(0o755)
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
    run = agent({"pid": program().pid}, env=env)
    assert run.frame()["run"]["state"] == "found"


def test_a_failing_agent_is_no_reason_to_try_the_next_python(tmp_path):
    script = ENTRY_SCRIPT.replace("end = main(c, d)", "end = main(1 / 0)")
    code, _ = build_agent()
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        input=b"%d 2\n%b{}" % (len(code), code),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == EXIT_AGENT_FAILED
    assert done.stderr.count(b"ZeroDivisionError: ") == 1


def test_broken_input_is_refused_with_a_mark():
    done = subprocess.run(
        [sys.executable, "-I", "-c", STUB], input=b"garbage\n", capture_output=True, check=False
    )
    assert done.returncode == 98
    assert b"DFLASH-BROKEN-INPUT" in done.stderr


def test_the_agent_starts_where_memory_files_cannot_be_made(agent: Start, trainer, tmp_path):
    wrapper = tmp_path / "python-without-memfd"
    stub = STUB.replace("os.memfd_create(", "os.no_such_function(")
    (tmp_path / "stub.py").write_text(stub)
    wrapper.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S -B {tmp_path}/stub.py\n")
    wrapper.chmod(0o755)
    run = agent({"pid": trainer.pid}, python=str(wrapper))
    assert run.frame()["run"]["state"] == "found"


def test_the_stub_holds_no_single_quote_and_the_script_is_one_argument():
    assert "'" not in STUB
    assert len(ENTRY_SCRIPT) < 128 * 1024
    json.dumps(ENTRY_SCRIPT).encode("ascii")
