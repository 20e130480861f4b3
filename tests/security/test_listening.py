"""Nothing of ours listens on a port: trainer, the watcher beside it, agents, a server, a viewer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from watch.cli.conftest import Bench, bench, until

__all__ = ["bench"]
LISTENS = "0A"
SMALL = ("target.pretrain_steps=2", "data.num_documents=64", "data.rows=2", "loss.num_anchors=6")


def sockets_of(pids: list[int]) -> set[str]:
    """Inodes of all sockets that these processes hold."""
    found = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                told = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
            except OSError:  # closed meanwhile
                continue
            found |= {told[1]} if told else set()
    return found


def ports(pids: list[int]) -> list[str]:
    """Lines of /proc/net about TCP sockets that listen, and UDP sockets, of these processes."""
    held, found = sockets_of(pids), []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            waits = words[3] == LISTENS or table.startswith("udp")
            if waits and words[9] in held:
                found.append(f"{table} {words[1]}")
    return found


def test_a_training_its_watcher_a_server_and_a_viewer_listen_on_no_port(bench: Bench) -> None:
    run_dir = bench.folder / "runs" / "a"
    trainer = subprocess.Popen(
        [sys.executable, "-m", "dflash_train.cli", "--preset", "tiny", "--run-dir", str(run_dir),
         "optim.steps=1000000", *SMALL],
        env={**bench.environment, "OMP_NUM_THREADS": "1"}, cwd=bench.folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    bench._started.append(trainer)
    until((run_dir / "run.json").exists, "the run")
    bench.start("serve", "--name", "b", "--pid", str(trainer.pid), stdout=subprocess.DEVNULL)
    state = bench.folder / "state"
    until(lambda: list(state.rglob("journal.jsonl")), "an agent's start in a journal")
    viewer = bench.start("attach", "b", "--json")
    assert viewer.stdout is not None
    assert viewer.stdout.readline().startswith("{")
    pids = bench.at_work()
    assert len(pids) >= 5
    assert sockets_of(pids)
    assert ports(pids) == []
    trainer.terminate()
    trainer.wait(120)


def test_a_port_would_be_noticed() -> None:
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(1, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert len(ports([process.pid])) == 1
        process.communicate(b"\n")
