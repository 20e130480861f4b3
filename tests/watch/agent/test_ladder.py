"""Which way a stack sample is taken, why others are passed over, and what is never done."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import pythons
from dflash_watch.agent import faultdump, proc
from dflash_watch.agent.aftermath import tracer_of
from dflash_watch.agent.means import Declared, Means, declared_in
from dflash_watch.agent.stacks import take_stacks
from watch.agent.driving import AgentProcess, state_of, typed, wait_for
from watch.agent.test_stacks import bare_python
from watch.agent.test_states import d_state  # noqa: F401 - a fixture

Start = Callable[..., AgentProcess]
HERE = str(Path(sys.executable).parent)
WAITS = """
import os, signal, sys, threading, time
def wait_for_ever():
    time.sleep(1000)
threading.Thread(target=wait_for_ever, name="drafter-1", daemon=True).start()
if len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])
    from dflash_events.stack_signal import Armed
    armed = Armed(sys.argv[2], number=int(sys.argv[3]), rank=int(sys.argv[4]))
print("up", flush=True)
time.sleep(1000)
"""
DECLARES = """
import sys, time
sys.path.insert(0, sys.argv[1])
from dflash_events.adapters.context import watched_run
with watched_run(sys.argv[2], stack_signal=40) as loop:
    loop.step(1)
    print("up", flush=True)
    time.sleep(1000)
"""
EVENTS = str(Path(__file__).parents[3] / "dflash")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become other users")


def take(pid: int, **means) -> dict:
    return take_stacks("/proc", pid, "A", Means(**means))


def outcomes(sample: dict) -> dict[str, str]:
    return {rung["tool"]: rung["outcome"] for rung in sample["ladder"]}


@pytest.fixture
def waits(program):
    run = program(WAITS, stdout=subprocess.PIPE)
    run.stdout.readline()
    wait_for(lambda: rests(run.pid))
    return run


@pytest.fixture
def armed(program, tmp_path):
    """Armed faulthandler, and what run.json would declare."""
    number = signal.SIGRTMIN + 6
    words = (EVENTS, str(tmp_path / "run"), str(number))
    run = program(WAITS, *words, "0", stdout=subprocess.PIPE)
    run.stdout.readline()
    wait_for(lambda: rests(run.pid))
    return run, Declared(number, str(tmp_path / "run" / "stacks.txt"))


def test_the_rung_that_was_taken_says_where_the_tool_is_from(waits):
    (rung,) = typed(take(waits.pid)).ladder
    assert (rung.tool, rung.outcome) == ("py-spy", "taken")
    assert rung.how.endswith("/py-spy")


def test_without_py_spy_the_runs_own_pystack_is_used(waits, tmp_path):
    (tmp_path / "pystack").symlink_to(shutil.which("pystack", path=HERE))
    sample = take(waits.pid, directories=[str(tmp_path)])
    assert (sample["tool"], sample["mode"]) == ("pystack", "non-blocking")
    assert "no py-spy here" in outcomes(sample)["py-spy"]
    stuck = next(one for one in sample["threads"] if one["frames"][0][0] == "wait_for_ever")
    assert stuck["call"] in ("clock_nanosleep", "pselect6")
    assert stuck["state"] == "S"
    assert typed(sample).raw.startswith("Traceback for thread")


def test_pystack_as_a_module_is_found_without_its_script(waits, tmp_path):
    folder = tmp_path / "env" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    package = tmp_path / "env" / "lib" / "python3.11" / "site-packages" / "pystack"
    package.mkdir(parents=True)
    (package / "__main__.py").touch()
    assert take(waits.pid, directories=[str(folder)])["tool"] == "pystack"


@pytest.mark.parametrize("tool", ["py-spy", "pystack"])
def test_a_sampler_that_does_not_start_says_nothing_of_the_process(waits, tmp_path, tool):
    (tmp_path / tool).write_text("#!/no/such/interpreter\n")
    (tmp_path / tool).chmod(0o755)
    outcome = outcomes(take(waits.pid, directories=[str(tmp_path)]))[tool]
    assert outcome.startswith("cannot be started: ")


def test_a_declared_faulthandler_is_asked_where_no_sampler_is(armed):
    run, declared = armed
    sample = take(run.pid, directories=[], declared=declared)
    assert (sample["tool"], sample["mode"]) == ("faulthandler", f"signal {declared.number}")
    assert sample["did"] == [
        f"sent signal {declared.number}, which run.json declares for faulthandler"
    ]
    assert {thread["tid"] for thread in sample["threads"]} == tids_of(run.pid)
    assert any(one["frames"][0][0] == "wait_for_ever" for one in sample["threads"])
    assert run.poll() is None


def rests(pid: int) -> bool:
    """All its threads sleep."""
    return {state_of(tid) for tid in tids_of(pid)} == {"S"}


def tids_of(pid: int) -> set[int]:
    return {int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()}


def test_the_agent_reads_the_declaration_in_run_json(agent: Start, program, tmp_path):
    bare = bare_python()
    if bare is None:
        pytest.skip("needs a second Python without py-spy beside it")
    run_dir = tmp_path / "run"
    target = program(DECLARES, EVENTS, str(run_dir), python=bare, stdout=subprocess.PIPE)
    assert target.stdout.readline() == b"up\n"
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    watcher = agent({"run_dir": str(run_dir)}, env=env, python=bare)
    watcher.frame(lambda frame: frame["run"]["state"] == "found")
    watcher.ask("stacks", pid=target.pid, label="A")
    sample = watcher.until(lambda record: record["type"] == "stacks")
    assert sample["tool"] == "faulthandler", sample
    assert [rung["tool"] for rung in sample["ladder"]] == ["py-spy", "pystack", "faulthandler"]
    main = next(thread for thread in sample["threads"] if thread["tid"] == target.pid)
    assert (main["name"], main["frames"][-1][0]) == ("MainThread", "<module>")


def test_another_rank_is_read_from_the_file_that_it_writes_itself(program, tmp_path):
    words = (EVENTS, str(tmp_path / "run"), "40", "3")
    run = program(WAITS, *words, stdout=subprocess.PIPE)
    run.stdout.readline()
    declared = Declared(40, str(tmp_path / "run" / "stacks.txt"))
    assert take(run.pid, directories=[], declared=declared)["tool"] == "faulthandler"
    assert (tmp_path / "run" / "stacks-3.txt").stat().st_size > 0
    assert not (tmp_path / "run" / "stacks.txt").exists()


def test_a_dump_that_goes_to_a_log_is_read_from_there(program, tmp_path):
    text = "import faulthandler, time\nfaulthandler.register(40, all_threads=True)\n"
    with (tmp_path / "train.log").open("ab") as log:
        run = program(text + "print('up', flush=True); time.sleep(1000)", stdout=log, stderr=log)
    wait_for(lambda: (tmp_path / "train.log").read_bytes() == b"up\n")
    sample = take(run.pid, directories=[], declared=Declared(40, None))
    assert (sample["tool"], len(sample["threads"])) == ("faulthandler", 1)
    assert sample["threads"][0]["tid"] == run.pid


def test_a_second_dump_is_not_mistaken_for_the_first(armed):
    run, declared = armed
    for _ in range(2):
        sample = take(run.pid, directories=[], declared=declared)
        assert len(sample["threads"]) == 2
        assert sample["raw"].count("most recent call first") == 2


def test_no_signal_is_sent_to_a_process_that_would_die_of_it(waits, tmp_path):
    declared = Declared(int(signal.SIGUSR1), str(tmp_path / "stacks.txt"))
    with (tmp_path / "stacks.txt").open("w"):
        sample = take(waits.pid, directories=[], declared=declared)
    assert "does not have open" in outcomes(sample)["faulthandler"]
    start_ticks = proc.read_stat("/proc", waits.pid).start_ticks
    refused = faultdump.refusal("/proc", waits.pid, int(signal.SIGUSR1), start_ticks)
    assert "does not catch it: it would die" in refused
    assert waits.poll() is None


def test_no_signal_is_sent_without_a_declaration(armed):
    run, declared = armed
    before = Path(declared.path).read_bytes()
    sample = take(run.pid, directories=[])
    assert "declares no signal" in outcomes(sample)["faulthandler"]
    assert sample["tool"] == "kernel"
    assert Path(declared.path).read_bytes() == before


def test_no_signal_is_sent_to_a_stopped_process_or_another_owner_of_its_number(armed):
    run, declared = armed
    start_ticks = proc.read_stat("/proc", run.pid).start_ticks
    assert faultdump.refusal("/proc", run.pid, declared.number, start_ticks) is None
    assert "gone" in faultdump.refusal("/proc", run.pid, declared.number, start_ticks + 1)
    run.send_signal(signal.SIGSTOP)
    wait_for(lambda: state_of(run.pid) == "T")
    assert "state T" in faultdump.refusal("/proc", run.pid, declared.number, start_ticks)


@pytest.mark.parametrize(
    ("manifest", "declared"),
    [
        (None, None),
        ({}, None),
        ({"faulthandler_signal": None}, None),
        ({"faulthandler_signal": True}, None),
        ({"faulthandler_signal": 0}, None),
        ({"faulthandler_signal": 65}, None),
        ({"faulthandler_signal": "10"}, None),
        ({"faulthandler_signal": 10}, Declared(10, None)),
        ({"faulthandler_signal": 10, "faulthandler_file": "/r/stacks.txt"},
         Declared(10, "/r/stacks.txt")),
    ],
)  # fmt: skip
def test_only_a_number_of_a_signal_is_a_declaration(manifest, declared):
    assert declared_in(manifest) == declared


def test_the_kernels_view_names_the_call_and_what_it_waits_on(program):
    reader, writer = os.pipe()
    text = f"import os; print('up', flush=True); os.read({reader}, 1)"
    run = program(text, stdout=subprocess.PIPE, pass_fds=[reader])
    run.stdout.readline()
    wait_for(lambda: state_of(run.pid) == "S")
    (thread,) = typed(take(run.pid, directories=[])).threads
    os.close(reader)
    os.close(writer)
    assert thread.call == "read"
    assert thread.call_on.startswith(f"fd {reader}, pipe:[")


@needs_root
def test_root_also_gets_the_kernels_own_stack(waits):
    sample = take(waits.pid, directories=[])
    assert all("sleep" in " ".join(one["kernel_stack"]) for one in sample["threads"])


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="dflash-open-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(answer: Callable[[], dict]) -> dict:
    """What `answer` gives in a process that is user 65534's."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writing, json.dumps(answer()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read()
    os.waitpid(child, 0)
    return json.loads(said)


@needs_root
def test_a_process_of_another_user_is_refused_with_both_users_named(waits, open_folder):
    shutil.copy(shutil.which("py-spy", path=HERE), open_folder / "py-spy")
    sample = as_nobody(lambda: take(waits.pid, directories=[str(open_folder)]))
    assert "the process is uid 0's and the agent uid 65534" in sample["error"]
    assert outcomes(sample)["pystack"] == "needs the same right"
    assert [thread["state"] for thread in sample["threads"]] == ["S", "S"]


@needs_root
def test_a_process_that_hidepid_hides_is_not_called_gone(waits, open_folder):
    mounting = ["mount", "-t", "proc", "-o", "hidepid=2", "proc", str(open_folder)]
    subprocess.run(mounting, check=True)
    try:
        sample = as_nobody(lambda: take_stacks(str(open_folder), waits.pid, "A", Means()))
    finally:
        subprocess.run(["umount", str(open_folder)], check=True)
    assert "hidden from this user (hidepid)" in sample["error"]


@needs_root
def test_root_runs_what_others_could_have_planted_as_the_runs_own_user(program, open_folder):
    """A py-spy in the environment of a user must not become a way to root."""
    tool = open_folder / "py-spy"
    tool.write_text(f"#!/bin/sh\nid -u > {open_folder}/uid; exit 1\n")
    tool.chmod(0o755)
    for path in (open_folder, tool):
        os.chown(path, 65534, 65534)
    # What it imports may lie where only root can read.
    become = "import os, signal, sys, threading, time\n"
    become += "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    run = program(become + WAITS, stdout=subprocess.PIPE)
    assert run.stdout.readline() == b"up\n"
    sample = take(run.pid, directories=[str(open_folder)])
    assert (open_folder / "uid").read_text().strip() == "65534"
    assert sample["tool"] == "kernel"


def test_native_frames_are_refused_while_a_thread_is_in_d(d_state):  # noqa: F811 - a fixture
    sample = take(d_state.pid, native=True)
    assert "refused: 1 thread in state D" in outcomes(sample)["py-spy --native"]
    assert (sample["tool"], sample["mode"]) == ("py-spy", "non-blocking")
    assert "did" not in sample


def test_native_frames_come_on_request_and_what_was_done_is_said(waits):
    sample = take(waits.pid, native=True)
    assert sample["mode"] == "blocking, native"
    assert sample["did"] == ["stopped all its threads for the time of a native dump"]
    names = [frame[0] for thread in sample["threads"] for frame in thread["frames"]]
    assert any("nanosleep" in name or "select" in name for name in names)
    wait_for(lambda: rests(waits.pid))


def test_a_stopped_process_is_not_stopped_again_for_native_frames(waits):
    waits.send_signal(signal.SIGSTOP)
    wait_for(lambda: state_of(waits.pid) == "T")
    sample = take(waits.pid, native=True)
    assert "stopped already" in outcomes(sample)["py-spy --native"]
    assert state_of(waits.pid) == "T"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_process_that_another_tool_traces_is_read_and_never_stopped_nor_signalled(waits):
    tracer = subprocess.Popen(
        ["strace", "-p", str(waits.pid), "-o", "/dev/null"], stderr=subprocess.DEVNULL
    )
    wait_for(lambda: tracer_of("/proc", waits.pid) == tracer.pid)
    sample = take(waits.pid, native=True, directories=[HERE])
    assert (sample["tool"], sample["mode"]) == ("py-spy", "non-blocking")
    assert f"{tracer.pid} traces it" in outcomes(sample)["py-spy --native"]
    alone = take(waits.pid, directories=[], declared=Declared(signal.SIGINT, None))
    assert f"{tracer.pid} traces it" in outcomes(alone)["faulthandler"]
    tracer.kill()
    tracer.wait()
    assert waits.poll() is None


def test_a_zombie_is_said_to_have_ended(program):
    run = program("raise SystemExit(3)", stderr=subprocess.DEVNULL)
    wait_for(lambda: state_of(run.pid) == "Z")
    assert "has ended" in take(run.pid)["error"]


@pytest.mark.parametrize("version", ["3.8", "3.10"])
def test_threads_of_an_old_python_get_their_numbers_and_states(program, version):
    """py-spy knows no thread numbers there without blocking, and calls every thread active."""
    run = program(WAITS, python=pythons.python(version), stdout=subprocess.PIPE)
    run.stdout.readline()
    wait_for(lambda: rests(run.pid))
    sample = take(run.pid, directories=[HERE])
    assert {thread["tid"] for thread in sample["threads"]} == tids_of(run.pid)
    assert {thread["state"] for thread in sample["threads"]} == {"S"}
    main = next(thread for thread in sample["threads"] if thread["name"] == "MainThread")
    assert main["tid"] == run.pid


def test_an_agent_on_the_oldest_python_takes_stacks(agent: Start, waits):
    watcher = agent({"pid": waits.pid}, python=pythons.python("3.8"))
    watcher.frame()
    watcher.ask("stacks", pid=waits.pid, label="A")
    sample = watcher.until(lambda record: record["type"] == "stacks")
    assert sample["tool"] == "py-spy", sample


def test_processes_are_sampled_one_after_the_other(agent: Start, program):
    runs = [program(WAITS, name=f"p{n}.py", stdout=subprocess.PIPE) for n in range(3)]
    for run in runs:
        run.stdout.readline()
    watcher = agent({"pid": runs[0].pid})
    watcher.frame()
    for run in runs:
        watcher.ask("stacks", pid=run.pid, label="round")
    samples = [watcher.until(lambda record: record["type"] == "stacks") for _ in runs]
    assert [sample["pid"] for sample in samples] == [run.pid for run in runs]
    ends = [sample["t"] + sample["duration_s"] for sample in samples]
    assert all(end <= later["t"] + 0.01 for end, later in zip(ends, samples[1:], strict=False))


def test_more_requests_than_are_taken_are_refused(agent: Start, waits):
    watcher = agent({"pid": waits.pid})
    watcher.frame()
    for pid in range(4_000_000, 4_000_070):
        watcher.ask("stacks", pid=pid, label="flood")
    refused = watcher.until(
        lambda record: record["type"] == "reply" and "under way" in (record.get("error") or "")
    )
    assert "64 samples" in refused["error"]
