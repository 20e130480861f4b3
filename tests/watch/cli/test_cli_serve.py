"""A server, its viewers and its end, as real processes on a real run."""

import json
import os
import signal
import socket
import subprocess

import pytest
from watch.cli.conftest import LONG_S, Bench, is_gone, until

LOOP = ("plain_loop.py", "--steps", "100000", "--step-s", "0.05")


def prepared(bench: Bench) -> Bench:
    """With a place for sockets."""
    runtime = bench.folder / "runtime"
    runtime.mkdir(mode=0o700)
    bench.environment["XDG_RUNTIME_DIR"] = str(runtime)
    bench.environment.pop("NOTIFY_SOCKET", None)
    return bench


@pytest.fixture
def place(bench: Bench):
    """For servers that never get as far as a run."""
    return prepared(bench)


@pytest.fixture
def serving(place: Bench):
    """A run that can be served."""
    return place, place.run(*LOOP)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory):
    """A run, its server and the name of that, for tests that leave all three as they are."""
    bench = prepared(Bench(tmp_path_factory.mktemp("served")))
    try:
        run = bench.run(*LOOP)
        server, name = serve(bench, "--pid", str(run.pid))
        yield bench, run, server, name
        assert server.poll() is None
    finally:
        bench.end()


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
    stopped(viewers[0])
    assert viewers[0].returncode == 0
    assert "RUNNING" in bench.start("attach", "--plain").stdout.readline()
    assert server.poll() is None
    _, told = stopped(server)
    assert server.returncode == 0
    assert "RUNNING" in told
    assert list((bench.folder / "runtime" / "dflash-watch").iterdir()) == []
    _, last = viewers[1].communicate(timeout=LONG_S)
    assert viewers[1].returncode == 3
    assert last == f"dflash-watch: the watcher {name} has ended; nothing is known since\n"


def test_a_viewer_that_is_stopped_holds_up_nobody_and_not_the_end(serving):
    bench, run = serving
    server, name = serve(bench, "--pid", str(run.pid), "--every-s", "0.2")
    still, other = (bench.start("attach", name, "--json") for _ in range(2))
    first_object(still)
    still.send_signal(signal.SIGSTOP)
    first_object(other)
    run.send_signal(signal.SIGSTOP)
    assert first_object(other)["failure"] == "process-stopped"
    still.send_signal(signal.SIGCONT)
    assert first_object(still)["failure"] == "process-stopped"
    still.send_signal(signal.SIGSTOP)
    stopped(server)
    assert server.returncode == 0
    still.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTTOU, signal.SIGTTIN])
def test_a_terminal_that_goes_neither_ends_nor_stops_it(served, number):
    bench, _, server, name = served
    server.send_signal(number)
    link = socket_of(bench, name)
    link.settimeout(LONG_S)
    with link, link.makefile("rb") as lines:
        assert b'"protocol"' in lines.readline()
        first = json.loads(lines.readline())
        until(lambda: (json.loads(lines.readline())["data_t"] or 0) > first["t"], "a newer look")
    assert server.poll() is None


def test_a_second_server_of_the_same_run_is_refused_in_one_line_that_names_the_first(served):
    bench, run, server, name = served
    again = bench.watch("serve", "--pid", str(run.pid), "--name", "other")
    assert again.returncode == 64
    (line,) = again.stderr.splitlines()
    assert f"is served already, as {name} (process {server.pid})" in line
    assert f"dflash-watch attach {name}" in line


def test_a_server_on_a_pid_that_is_not_there_ends_and_leaves_no_name(place):
    bench = place
    shown = bench.watch("serve", "--pid", "4194303")
    assert shown.returncode == 3
    assert "no process 4194303" in shown.stderr.splitlines()[-1]
    assert list((bench.folder / "runtime" / "dflash-watch").iterdir()) == []


def test_without_a_runtime_directory_the_socket_lies_in_the_state_directory(serving):
    """And its lines, as JSON, go to standard output."""
    bench, run = serving
    del bench.environment["XDG_RUNTIME_DIR"]
    server, name = serve(bench, "--pid", str(run.pid), "--json")
    assert first_object(server)["verdict"] == "running"
    assert (bench.folder / "state" / "dflash-watch" / "serve" / f"{name}.sock").is_socket()
    assert first_object(bench.start("attach", name, "--json"))["verdict"] == "running"


def test_with_no_folder_for_its_socket_it_says_which_it_tried(place):
    bench = place
    (bench.folder / "file").write_text("")
    blocked = str(bench.folder / "file")
    bench.environment.update(XDG_RUNTIME_DIR=blocked, XDG_STATE_HOME=blocked)
    shown = bench.watch("serve", "--pid", str(os.getpid()))
    assert shown.returncode == 3
    (line,) = shown.stderr.splitlines()
    assert line.count(blocked) == 2
    assert "no folder for the socket" in line


def test_a_viewer_asks_for_stacks_and_cannot_end_the_server(served):
    bench, _, _, name = served
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


def test_a_killed_server_leaves_nothing_and_the_next_goes_on_with_the_same_incident(serving):
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
    before = bench.at_work()
    server.kill()
    server.communicate()
    link.close()
    gone = bench.watch("attach", name)
    assert (gone.returncode, "no watcher is served here" in gone.stderr) == (3, True)
    _, same = serve(bench, *words)
    assert same == name
    until(lambda: all(is_gone(pid) for pid in before), "the end of its agent and its viewers")
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
