"""Process numbers that are given away again: a namespace in which the next number can be chosen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can choose process numbers")
# Process 1 of the namespace: a run and its worker, one of which ends and gives its number away.
STAGE = """
import json, os, subprocess, sys, time
from dflash_watch.agent import proc
from dflash_watch.agent.run import RunView

RUN = '''
import subprocess, sys
worker = None
for line in sys.stdin:
    if line == "end\\\\n":
        worker.kill(); worker.wait()
    else:
        worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(worker.pid, flush=True)
'''

def start(text, **pipes):
    return subprocess.Popen([sys.executable, "-c", text], **pipes)

def tell(word):
    run.stdin.write(word + b"\\n"); run.stdin.flush()
    return int(run.stdout.readline())

def look():
    sample = view.update(proc.boot_s())
    return {"state": sample["state"], "pids": view.pids}

def give_away(pid):
    time.sleep(0.05)  # another tick than the one in which the first was started
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(pid - 1))

run = start(RUN, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
view = RunView("/proc", {"pid": run.pid}, os.getpid())
seen = {"run": run.pid, "worker": tell(b"begin"), "before": look()}
if sys.argv[1] == "run":
    run.kill(); run.wait()
    give_away(run.pid)
    seen["next"] = start("import time; time.sleep(600)").pid
else:
    give_away(tell(b"end"))
    stranger = sys.argv[1] == "stranger"
    seen["next"] = start("import time; time.sleep(600)").pid if stranger else tell(b"begin")
seen["after"] = look()
print(json.dumps(seen))
"""


def play(who: str) -> dict[str, Any]:
    """What is seen before and after the number of a process was given to another."""
    namespace = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*namespace, sys.executable, "-c", STAGE, who],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["before"] == {"state": "found", "pids": [seen["run"], seen["worker"]]}
    return dict(seen)


def test_a_stranger_with_the_number_of_the_run_is_not_the_run():
    seen = play("run")
    assert seen["next"] == seen["run"]
    assert seen["after"]["state"] == "gone"
    assert seen["next"] not in seen["after"]["pids"]


def test_a_stranger_with_the_number_of_a_worker_is_no_worker():
    seen = play("stranger")
    assert seen["next"] == seen["worker"]
    assert seen["after"] == {"state": "found", "pids": [seen["run"]]}


def test_a_new_worker_with_the_number_of_the_last_one_belongs_to_the_run():
    seen = play("worker")
    assert seen["next"] == seen["worker"]
    assert seen["after"] == {"state": "found", "pids": [seen["run"], seen["worker"]]}
