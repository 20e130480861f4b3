"""The trainer on a real card: kernels, memory against the plan, number formats, evaluation.

    python tests/bench/gpu_train_real.py [--work DIR] [--json FILE] [--only forward,plan,...]

Needs a card, torch, transformers and flash-linear-attention. The target is made on the spot: a
Qwen3.5-style hybrid shaped like a model of 0.8 billion weights (24 layers, 18 of them Gated
DeltaNet), with random weights and a small vocabulary. Parts: `forward` (kernels bound against the
reference), `refusal` (a card without the kernels), `plan`, `train` (peak against the plan, memory
from report to report), `formats` (loss in bfloat16 against float32), `evaluate` (card against CPU).
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2]
PATHS = [str(HERE / name) for name in ("dflash", "watchdog", "tests")]
sys.path[:0] = PATHS

import torch  # noqa: E402 - runs without an install
from dflash_train.gated_delta import bound_kernels  # noqa: E402 - the path comes first
from dflash_train.targets import FeatureTarget  # noqa: E402 - the path comes first
from train.little_targets import save_tokenizer  # noqa: E402 - the path comes first
from transformers import (  # noqa: E402 - the path comes first
    AutoModelForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
)

CARD, VOCAB = "cuda:0", 32000
LENGTHS = (512, 1024, 2048)
PEAK = """
import os, sys, threading, time, torch
from dflash_train import cli
log = sys.argv.pop(1)
def tell(what):
    peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    print(what, *peaks, flush=True)
def forget():
    while not os.path.exists(log) or "step=5/" not in open(log, errors="replace").read():
        time.sleep(0.1)
    tell("BEFORE")  # what the checks took is not the run's
    torch.cuda.reset_peak_memory_stats()
threading.Thread(target=forget, daemon=True).start()
code = cli.main()
tell("TRAINING")
sys.exit(code)
"""
TINY = ["--preset", "tiny", "--no-watch", "--target-devices", CARD, "--drafter-devices", CARD]
MADE = [
    "target.layer_ids=1,6,11,16,21", "data.buckets=512,1024,2048", "data.num_documents=256",
    "data.min_length=300", "drafter.num_heads=16", "drafter.num_kv_heads=4", "drafter.head_dim=64",
    "drafter.mask_token_id=3", "drafter.intermediate_size=0", "loss.num_anchors=128",
]  # fmt: skip


class Bench:
    """One folder with a target; commands of the trainer in processes of their own."""

    def __init__(self, work: Path, device: str) -> None:
        self.work, self.device = work, device
        self.target = work / "target"
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*PATHS, *_given()])}

    def make_target(self, layers: int = 24) -> None:
        """The hybrid on disk, in bfloat16."""
        torch.manual_seed(11)
        config = Qwen3_5TextConfig(
            vocab_size=VOCAB, hidden_size=1024, intermediate_size=3584, num_hidden_layers=layers,
            num_attention_heads=8, num_key_value_heads=2, head_dim=256, linear_num_key_heads=16,
            linear_num_value_heads=16, linear_key_head_dim=128, linear_value_head_dim=128,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, max_position_embeddings=8192,
            tie_word_embeddings=True,
        )  # fmt: skip
        Qwen3_5ForCausalLM(config).to(torch.bfloat16).save_pretrained(self.target)
        save_tokenizer(self.target, VOCAB - 2)

    def command(self, *words: str, without: str = "", text: str = "") -> dict[str, Any]:
        """Run it; exit code, seconds, output."""
        environment = dict(self.environment)
        if without:
            places = environment["PYTHONPATH"].split(os.pathsep)
            kept = [one for one in places if not (Path(one) / without).exists()]
            environment["PYTHONPATH"] = os.pathsep.join(kept)
        call = ["-c", text] if text else ["-m", "dflash_train.cli"]
        begun_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, *call, *words], env=environment, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        return {
            "rc": done.returncode, "s": round(time.monotonic() - begun_s, 1),
            "out": done.stdout, "err": done.stderr[-1500:],
        }  # fmt: skip

    def of_made(self, *words: str) -> list[str]:
        """Arguments of a run on the made target."""
        return [*TINY, "--target", str(self.target), *MADE, *words]


def _given() -> list[str]:
    return [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]


def forward(bench: Bench) -> dict[str, Any]:
    """Median milliseconds of one forward of the target, by length, and how far apart both are."""
    model = AutoModelForCausalLM.from_pretrained(bench.target, dtype="auto")
    decoder = model.model
    target = FeatureTarget(decoder, (1, 6, 11, 16, 21), bench.device)
    found: dict[str, Any] = {"bound": bound_kernels(decoder)}
    for length in LENGTHS:
        ids = torch.randint(5, VOCAB, (4, length), generator=torch.Generator().manual_seed(length))
        mask = torch.ones_like(ids)
        row: dict[str, Any] = {}
        bound = _timed(lambda ids=ids, mask=mask: target.features(ids, mask), row, "bound")
        with reference(decoder):
            plain = _timed(lambda ids=ids, mask=mask: target.features(ids, mask), row, "reference")
        row["apart"] = float((bound - plain).float().norm() / plain.float().norm())
        row["faster"] = round(row["reference_ms"] / row["bound_ms"], 1)
        found[f"4x{length}"] = row
    return found


def _timed(call: Callable[[], Any], row: dict[str, Any], name: str) -> Any:
    begun_s = time.perf_counter()
    made = call()
    torch.cuda.synchronize()
    row[f"{name}_first_s"] = round(time.perf_counter() - begun_s, 2)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    spent = []
    for _ in range(8):
        begun_s = time.perf_counter()
        made = call()
        torch.cuda.synchronize()
        spent.append(1e3 * (time.perf_counter() - begun_s))
    row[f"{name}_ms"] = round(statistics.median(spent), 2)
    row[f"{name}_peak_mb"] = round((torch.cuda.max_memory_allocated() - before) / 1e6)
    return made


@contextmanager
def reference(decoder: Any) -> Iterator[None]:
    """While it lasts, the Gated DeltaNet functions are torch's own."""
    layer = next(m for m in decoder.modules() if type(m).__name__.endswith("DeltaNet"))
    module = inspect.getmodule(type(layer))
    names = list(bound_kernels(decoder))
    kept = {name: getattr(module, name) for name in names}
    for name, function in kept.items():
        plain = inspect.unwrap(function)
        known = frozenset(inspect.signature(plain).parameters)

        def call(*args: Any, plain: Any = plain, known: Any = known, **kwargs: Any) -> Any:
            return plain(*args, **{key: one for key, one in kwargs.items() if key in known})

        setattr(module, name, call)
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(module, name, function)


def refusal(bench: Bench) -> dict[str, Any]:
    """A card without flash-linear-attention: refused, and with leave let through."""
    words = ("plan", *bench.of_made("--run-dir", str(bench.work / "refused"), "--json"))
    kept = {}
    for name, more in (("refused", ()), ("allowed", ("target.allow_slow_kernels=true",))):
        done = bench.command(*words, *more, without="fla")
        kept[name] = {"rc": done["rc"], "s": done["s"], **_checks(done, "kernels", "time")}
    return kept


def plan(bench: Bench) -> dict[str, Any]:
    """What the plan says of the same run with the kernels."""
    words = bench.of_made("--run-dir", str(bench.work / "planned"), "--json")
    done = bench.command("plan", *words)
    return {"rc": done["rc"], "s": done["s"], **_checks(done)}


def _checks(done: dict[str, Any], *names: str) -> dict[str, Any]:
    lines = [line for line in done["out"].splitlines() if line.startswith("{")]
    if not lines:
        return {"error": done["err"] or done["out"][-1500:]}
    whole = json.loads(lines[-1])
    rows = {row["name"]: f"{row['state']}: {row['observed']}" for row in whole["checks"]}
    kept = {name: rows[name] for name in names} if names else rows
    return {"checks": kept, "measured": whole["measured"]}


def train(bench: Bench) -> dict[str, Any]:
    """Peak of a run against its own plan; memory at each report."""
    run = bench.work / "trained"
    words = ["optim.steps=120", "report.every_steps=5", "data.rows=4", "checkpoint.every_steps=0"]
    words = [str(run / "train.log"), *bench.of_made("--run-dir", str(run), *words)]
    done = bench.command(*words, text=PEAK)
    found: dict[str, Any] = {"rc": done["rc"], "s": done["s"]}
    manifest = json.loads((run / "run.json").read_text())
    found["planned"] = manifest.get("memory"), manifest.get("time")
    found["kernels"] = manifest.get("kernels")
    for line in done["out"].splitlines():
        if line.startswith(("BEFORE", "TRAINING")):
            name, allocated, reserved = line.split()
            found[f"peak_{name.lower()}"] = int(allocated), int(reserved)
    told = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    reports = [one for one in told if one.get("kind") == "throughput"]
    found["tokens_per_s"] = [round(one.get("tokens_per_s") or 0) for one in reports]
    found["allocated_mb"] = [round(_card(one, "allocated_bytes") / 1e6) for one in reports]
    found["reserved_mb"] = [round(_card(one, "reserved_bytes") / 1e6) for one in reports]
    found["log"] = done["out"].splitlines()[-4:] + ([done["err"]] if done["rc"] else [])
    return found


def _card(event: dict[str, Any], key: str) -> int:
    return sum(row[key] for row in event.get("memory") or () if row["device"] == CARD)


def formats(bench: Bench) -> dict[str, Any]:
    """The tiny task on the card in both formats: loss report by report, and how far apart."""
    found: dict[str, Any] = {}
    for name in ("float32", "bfloat16"):
        run = bench.work / f"tiny-{name}"
        words = [*TINY, "--run-dir", str(run), f"optim.compute_dtype={name}", "optim.steps=320"]
        done = bench.command(*words, "report.every_steps=20", "eval.every_steps=320")
        found[name] = {"rc": done["rc"], "s": done["s"], "loss": _series(done["out"], "loss=")}
        found[name]["accepted"] = _series(done["out"], "accepted=")
        if done["rc"]:
            found[name]["log"] = [*done["out"].splitlines()[-3:], done["err"]]
    pairs = list(zip(found["float32"]["loss"], found["bfloat16"]["loss"], strict=False))
    found["apart"] = [round(b / a - 1, 4) for a, b in pairs if a]
    return found


def _series(text: str, key: str) -> list[float]:
    words = [word for line in text.splitlines() for word in line.split() if word.startswith(key)]
    return [float(word.removeprefix(key).split("/")[0]) for word in words]


def evaluate(bench: Bench) -> dict[str, Any]:
    """The drafter of `formats`, decoded on the card and on the CPU."""
    run, found = bench.work / "tiny-float32", {}
    for device in (CARD, "cpu"):
        words = ["--run-dir", str(run), "--device", device, "--json", "eval.prompts=16"]
        done = bench.command("evaluate", *words)
        lines = [line for line in done["out"].splitlines() if line.startswith("{")]
        told = json.loads(lines[-1]) if lines else {"error": done["err"]}
        short = {key: value for key, value in told.items() if not isinstance(value, list)}
        found[device] = {"rc": done["rc"], "s": done["s"], **short}
    return found


PARTS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "forward": forward, "plan": plan, "train": train, "formats": formats, "evaluate": evaluate,
    "refusal": refusal,
}  # fmt: skip


def main() -> int:
    """Each part alone: one that fails is told, the others go on."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", type=Path, default=Path("runs/gpu-train-real"))
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    bench = Bench(options.work.absolute(), CARD)
    bench.work.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {}
    if not bench.target.exists():
        bench.make_target(options.layers)
    for name in options.only.split(","):
        try:
            result[name] = PARTS[name](bench)
        except Exception as error:  # noqa: BLE001 - a card is lent for minutes: the rest goes on
            result[name] = {"error": f"{type(error).__name__}: {error}"}
        print(name, json.dumps(result[name]), flush=True)
        if options.json:
            options.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(any("error" in part for part in result.values()))


if __name__ == "__main__":
    raise SystemExit(main())
