"""A run that says everything it should not: `hostile_run.py RUN_DIR --api-key X`.

Trains for some seconds, then waits for a lock for ever, so that stacks are taken.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from dflash_events.writer import RunWriter
from secrets_and_codes import ALL_CODES, CODES, SECRETS

STEPS = 60
DEATH = "import sys, time; sys.stdin.read(); time.sleep(600)"


def say(text: str) -> None:
    """A line in the log, whatever is in it."""
    os.write(1, (text + "\n").encode("utf-8", "surrogateescape"))


def say_secrets() -> None:
    one = SECRETS
    say(f"login with {one['hf']} and {one['github']} {one['openai']} {one['aws-id']}")
    say(f"aws_secret_access_key={one['aws-key']} WANDB_API_KEY={one['wandb']} cookie {one['jwt']}")
    say(f"-----BEGIN RSA PRIVATE KEY-----\n{one['pem']}\n-----END RSA PRIVATE KEY-----")
    say(f"clone https://me:{one['url']}@example.com/x.git; run --api-key {one['option']} --lr 1")
    say(f'DB_PASSWORD={one["env-style"]} {{"password": "{one["json-style"]}"}}')
    say(f"Authorization: Bearer {one['bearer']}")
    say(f"\x1b[32mtoken\x1b[0m: \x1b[35m'{one['coloured']}'\x1b[0m")
    say(f'config: password = "{one["open-quote"]}')


def tear_a_secret() -> None:
    """As block buffering does it: half of a line now, half of it in a later look."""
    half = len(SECRETS["torn"]) // 2
    os.write(1, f"signed in with api_key={SECRETS['torn'][:half]}".encode())
    time.sleep(2.5)
    say(f"{SECRETS['torn'][half:]} done")


def spoil(run_dir: Path) -> None:
    """run.json, as a program that is not ours might write it."""
    told = json.loads((run_dir / "run.json").read_text())
    told["name"] = f"run {ALL_CODES}"
    told["config"] = {
        "hub": {"hf_token": SECRETS["config"], "api_keys": [SECRETS["config-list"]]},
        CODES["colour"]: CODES["clipboard"],
    }
    told["workers"] = [{"name": f"target-0 {ALL_CODES}", "role": "target", "index": 0}]
    (run_dir / "run.json").write_text(json.dumps(told))


def main() -> None:
    run_dir = Path(sys.argv[1])
    child = subprocess.Popen(
        [sys.executable, "-c", DEATH, "--password", SECRETS["child"],
         f"https://me:{SECRETS['child-url']}@example.com/", CODES["colour"], CODES["shell"]],
        stdin=subprocess.PIPE,
    )  # fmt: skip
    writer = RunWriter(run_dir, total_steps=10000, every_s=600)
    writer.start()
    writer.phase("training").__enter__()
    Path("/proc/self/comm").write_bytes(b"\x1b[31mev\nil[red]")
    # A file name and a function name that reach the stacks.
    names = {"lock": threading.Lock(), "time": time}
    source = "def stuck():\n    lock.acquire()\n    lock.acquire()\n"
    exec(compile(source, f"/srv/{SECRETS['hf-in-path']}/{CODES['clipboard']}.py", "exec"), names)
    stuck = names["stuck"]
    stuck.__code__ = stuck.__code__.replace(co_name=f"stuck{CODES['bidi']}{CODES['colour']}")
    thread = threading.Thread(target=stuck, name=f"worker {CODES['markup']}{CODES['title']}")
    for step in range(STEPS):
        say(f"step {step}/10000 loss 2.0")
        writer.throughput(step=step, tokens_per_s=1000.0, loss=2.0)
        if step == 10:
            spoil(run_dir)
        if step == 20:
            say_secrets()
            for text in CODES.values():
                say(f"step {step}/10000 loss 2.0 {text}")
        if step == 30:
            tear_a_secret()
        time.sleep(0.1)
    thread.start()
    stuck()
    child.wait()


if __name__ == "__main__":
    main()
