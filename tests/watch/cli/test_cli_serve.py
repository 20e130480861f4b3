"""A server, its viewers and its end, as real processes on a real run."""

import json
import os
import signal
import socket
import subprocess

import pytest
from watch.cli.conftest import LONG_S, Bench, is_gone, until

LOOP = ("plain_loop.py", "--steps", "100000", "--step-s", "0.05")


@pytest.fixture
def serving(bench: Bench):
    """A run, and a server that watches it."""
    runtime = bench.folder / "runtime"
    runtime.mkdir(mode=0o700)
    bench.environment["XDG_RUNTIME_DIR"] = str(runtime)
    bench.environment.pop("NOTIFY_SOCKET", None)
    run = bench.run(*LOOP)
    return bench, run


def serve(bench: Bench, *words: str) -> tuple[subprocess.Popen, str]:
    """A server once it has its name, and that name."""
    server = bench.start("serve", *words)
    line = server.stderr.readline()
    assert line.startswith("dflash-watch: serving this machine"), line
    return server, line.split()[-1]


def stopped(process: subprocess.Popen, number: int = signal.SIGTERM) -> tuple[str, str]:
    process.send_signal(number)
    return process.communicate(timeout=LONG_S)


def first_object(viewer: subprocess.Popen) -> dict:
    return json.loads(viewer.stdout.readline())


def test_viewers_attach_see_the_same_and_leave_and_the_server_goes_on(serving):
    bench, run = serving
    server, name = serve(bench, "--pid", str(run.pid))
    viewers = [bench.start("attach", name, "--json") for _ in range(2)]
    assert [first_object(one)["verdict"] for one in viewers] == ["running", "running"]
    for one in viewers:
        stopped(one)
        assert one.returncode == 0
    assert "RUNNING" in bench_line(bench.start("attach", "--plain"))
    assert server.poll() is None
    _, told = stopped(server)
    assert server.returncode == 0
    assert "RUNNING" in told
    assert list((bench.folder / "runtime" / "dflash-watch").iterdir()) == []


def bench_line(viewer: subprocess.Popen) -> str:
    line = viewer.stdout.readline()
    stopped(viewer)
    return line


def test_a_viewer_that_is_stopped_holds_up_nobody(serving):
    bench, run = serving
    _, name = serve(bench, "--pid", str(run.pid), "--every-s", "0.2")
    still, other = (bench.start("attach", name, "--json") for _ in range(2))
    first_object(still)
    still.send_signal(signal.SIGSTOP)
    first_object(other)
    run.send_signal(signal.SIGSTOP)
    assert first_object(other)["failure"] == "process-stopped"
    still.send_signal(signal.SIGCONT)
    assert first_object(still)["failure"] == "process-stopped"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTTOU, signal.SIGTTIN])
def test_a_terminal_that_goes_does_not_end_it(serving, number):
    bench, run = serving
    server, name = serve(bench, "--pid", str(run.pid))
    server.send_signal(number)
    assert first_object(bench.start("attach", name, "--json"))["verdict"] == "running"
    assert server.poll() is None


def test_a_second_server_of_the_same_run_is_refused_in_one_line_that_names_the_first(serving):
    bench, run = serving
    server, name = serve(bench, "--pid", str(run.pid))
    again = bench.watch("serve", "--pid", str(run.pid), "--name", "other")
    assert again.returncode == 64
    (line,) = again.stderr.splitlines()
    assert f"is served already, as {name} (process {server.pid})" in line
    assert f"dflash-watch attach {name}" in line


def test_one_that_was_killed_is_replaced_and_its_agent_is_gone(serving):
    bench, run = serving
    server, name = serve(bench, "--pid", str(run.pid))
    first_object(bench.start("attach", name, "--json"))
    before = set(bench.at_work())
    server.kill()
    server.communicate()
    gone = bench.watch("attach", name)
    assert gone.returncode == 3
    assert "no watcher is served here" in gone.stderr
    again, same = serve(bench, "--pid", str(run.pid))
    assert same == name
    until(lambda: all(is_gone(pid) for pid in before), "the end of its agent")
    assert again.poll() is None


def test_lines_end_when_the_server_does_and_claim_nothing(serving):
    bench, run = serving
    server, name = serve(bench, "--pid", str(run.pid))
    viewer = bench.start("attach", name, "--json")
    first_object(viewer)
    stopped(server)
    _, told = viewer.communicate(timeout=LONG_S)
    assert viewer.returncode == 3
    assert told == f"dflash-watch: the watcher {name} has ended; nothing is known since\n"


def test_a_server_on_a_pid_that_is_not_there_ends_and_leaves_no_name(serving):
    bench, _ = serving
    shown = bench.watch("serve", "--pid", "4194303")
    assert shown.returncode == 3
    assert "no process 4194303" in shown.stderr.splitlines()[-1]
    assert list((bench.folder / "runtime" / "dflash-watch").iterdir()) == []


def test_without_a_runtime_directory_the_socket_lies_in_the_state_directory(serving):
    bench, run = serving
    del bench.environment["XDG_RUNTIME_DIR"]
    _, name = serve(bench, "--pid", str(run.pid))
    assert (bench.folder / "state" / "dflash-watch" / "serve" / f"{name}.sock").is_socket()
    assert first_object(bench.start("attach", name, "--json"))["verdict"] == "running"


def test_with_no_folder_for_its_socket_it_says_which_it_tried(serving):
    bench, run = serving
    (bench.folder / "file").write_text("")
    blocked = str(bench.folder / "file")
    bench.environment.update(XDG_RUNTIME_DIR=blocked, XDG_STATE_HOME=blocked)
    shown = bench.watch("serve", "--pid", str(run.pid))
    assert shown.returncode == 3
    (line,) = shown.stderr.splitlines()
    assert line.count(blocked) == 2
    assert "no folder for the socket" in line


def test_a_viewer_asks_for_stacks_and_cannot_end_the_server(serving):
    bench, run = serving
    _, name = serve(bench, "--pid", str(run.pid))
    kept = bench.folder / "state" / "dflash-watch" / "incidents"
    viewer = socket_of(bench, name)
    viewer.sendall(b'{"op": "stacks"}\n{"op": "quit"}\n')
    until(lambda: list(kept.glob("*-asked-stacks.txt")), "the stacks that were asked for")
    viewer.close()
    assert first_object(bench.start("attach", name, "--json"))["verdict"] == "running"


def socket_of(bench: Bench, name: str):
    """The raw connection, as any program could make it."""
    link = socket.socket(socket.AF_UNIX)
    folder = os.open(bench.folder / "runtime" / "dflash-watch", os.O_RDONLY)
    try:
        link.connect(f"/proc/self/fd/{folder}/{name}.sock")
    finally:
        os.close(folder)
    return link


def test_it_uses_no_terminal_and_goes_on_when_its_lines_go_nowhere(serving):
    bench, run = serving
    server, name = serve(bench, "--pid", str(run.pid))
    server.stderr.close()
    viewer = bench.start("attach", name, "--json")
    first_object(viewer)
    run.send_signal(signal.SIGSTOP)
    assert first_object(viewer)["failure"] == "process-stopped"
    assert server.poll() is None


def test_json_of_a_server_goes_to_standard_output(serving):
    bench, run = serving
    server, _ = serve(bench, "--pid", str(run.pid), "--json")
    assert first_object(server)["verdict"] == "running"


def test_a_viewer_that_is_stopped_does_not_keep_it_from_ending(serving):
    bench, run = serving
    server, name = serve(bench, "--pid", str(run.pid))
    still = bench.start("attach", name, "--json")
    first_object(still)
    still.send_signal(signal.SIGSTOP)
    stopped(server)
    assert server.returncode == 0
    still.send_signal(signal.SIGCONT)
    assert run.poll() is None


def test_after_a_kill_the_next_server_goes_on_with_the_same_incident(serving):
    bench, run = serving
    hooked = bench.folder / "hooked"
    hook = f"sh -c 'echo $DFLASH_INCIDENT_KEY >> {hooked}'"
    words = ("--pid", str(run.pid), "--on-stall", hook)
    server, name = serve(bench, *words)
    first_object(bench.start("attach", name, "--json"))
    run.send_signal(signal.SIGSTOP)
    until(hooked.exists, "the hook")
    link = socket_of(bench, name)
    link.sendall(b'{"op": "acknowledge"}\n')
    state = bench.folder / "state" / "dflash-watch" / "watches"
    until(
        lambda: any('"acknowledged": {"' in one.read_text() for one in state.glob("*.json")),
        "what a restart needs, on disk",
    )
    server.kill()
    server.communicate()
    link.close()
    _, name = serve(bench, *words)
    told = first_object(bench.start("attach", name, "--json"))
    assert (told["verdict"], told["failure"]) == ("stalled", "process-stopped")
    assert told["acknowledged"] is True
    kept = [one for one in state.parent.glob("incidents/2*") if one.is_dir()]
    assert [str(one) for one in kept] == [told["incident"]]
    run.send_signal(signal.SIGCONT)
    viewer = bench.start("attach", name, "--json")
    until(lambda: first_object(viewer)["verdict"] == "running", "the run's return")
    assert len(hooked.read_text().splitlines()) == 1
    assert len(list(state.parent.glob("incidents/2*"))) == 1


def test_a_service_manager_hears_that_it_is_ready_alive_and_stopping(serving):
    bench, run = serving
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ears:
        ears.bind(str(bench.folder / "notify"))
        ears.settimeout(LONG_S)
        bench.environment |= {"NOTIFY_SOCKET": ears.getsockname(), "WATCHDOG_USEC": "400000"}
        server, _ = serve(bench, "--pid", str(run.pid))
        told = ""
        while "STATUS=RUNNING" not in told or told.count("WATCHDOG=1") < 3:
            told += ears.recv(4096).decode() + "\n"
        assert told.startswith("READY=1\n")
        server.send_signal(signal.SIGTERM)
        while "STOPPING=1" not in told:
            told += ears.recv(4096).decode() + "\n"
        server.communicate(timeout=LONG_S)
