"""Acceptance length by step on a tiny structured task: what features, block and weights are worth.

    python tests/bench/bench_learning.py [--seeds 0,1,2] [--steps 120] [--variants NAME,NAME]
                                         [--out FILE]

Each run decodes held-out prompts for real. Results go to `--out`, a line a look; runs that stand
there already are not made again, so it can be stopped and started. About 12 s of one core a run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "dflash"))

import torch
from dflash_train.averaging import Parcel
from dflash_train.config import Config
from dflash_train.evaluation import Evaluation, Evaluator
from dflash_train.evaluation_text import record
from dflash_train.materials import Materials, make_tiny
from dflash_train.replica import FeatureBatch
from dflash_train.settings import parse_overrides
from dflash_train.targets import FeatureTarget
from dflash_train.workers import build_replica
from transformers.utils import logging as transformers_logging

EASY = (
    "target.devices=cpu",
    "drafter.devices=cpu",
    "target.pretrain_steps=30",
    "data.vocab_size=64",
    "data.num_rules=2",
    "data.buckets=64",
    "data.num_documents=256",
    "data.rows=8",
    "eval.prompts=6",
    "eval.new_tokens=32",
)
"""The tiny task with two orders of 57 words: a target is taught in 4 s of one core."""
VARIANTS: dict[str, tuple[str, ...]] = {
    "block 8": (),
    "without features": (),
    "block 4": ("drafter.block_size=4",),
    "block 16": ("drafter.block_size=16",),
    "without decay": ("loss.weighting=uniform",),
    "D-PACE": ("loss.weighting=dpace",),
}


class BlindTarget(FeatureTarget):
    """The same target, whose features say nothing."""

    def features(self, ids, attention):
        return torch.zeros_like(super().features(ids, attention))

    def extend(self, ids, cache):
        features, last = super().extend(ids, cache)
        return torch.zeros_like(features), last


def config_of(variant: str, seed: int, steps: int) -> Config:
    """The settings of one run."""
    words = (*EASY, f"seed={seed}", f"optim.steps={steps}", *VARIANTS[variant])
    return parse_overrides(Config(), words).check()


def learn(
    config: Config, materials: Materials, looks: tuple[int, ...], *, is_blind: bool
) -> Iterator[tuple[int, Evaluation]]:
    """Train one drafter; an evaluation at each of `looks`."""
    kind = BlindTarget if is_blind else FeatureTarget
    target = kind(materials.decoder, config.target.layer_ids, "cpu")
    replica = build_replica(config, materials, None, "cpu")
    evaluator = Evaluator(config, target, replica.draft, materials.held_out)
    for step in range(config.optim.steps):
        batch = materials.source.batch(step)
        features = target.features(batch.input_ids_BT, batch.attention_BT)
        gradient = replica.flat.begin_step(step)
        sums = replica.accumulate(FeatureBatch(batch, features))
        parcel = Parcel(gradient=gradient, sums=sums, num_tokens=0, num_padded=0)
        replica.apply((parcel,), step)
        if step + 1 in looks:
            yield step + 1, evaluator.run(lambda: None)


def measure(seed: int, variants: list[str], steps: int, looks: tuple[int, ...], out: Path) -> None:
    """All variants of one seed over one target, those that are not in `out` yet."""
    with tempfile.TemporaryDirectory() as folder:
        for variant in variants:
            if {step for step, *_ in rows_of(out, variant, seed)} >= set(looks):
                continue
            config = config_of(variant, seed, steps)
            materials = make_tiny(config, Path(folder), lambda _: None)
            for step, found in learn(
                config, materials, looks, is_blind=variant == "without features"
            ):
                row = {"variant": variant, "seed": seed, "step": step, **record(found)}
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"{variant:<18}seed {seed} step {step:>4}: {found}", flush=True)


def rows_of(out: Path, variant: str, seed: int) -> list[tuple[int, float]]:
    """(step, acceptance length) of one run, as far as it stands in `out`."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    rows = [json.loads(line) for line in lines]
    return [
        (row["step"], row["acceptance_length"])
        for row in rows
        if (row["variant"], row["seed"]) == (variant, seed)
    ]


def table(out: Path, variants: list[str], seeds: list[int], looks: tuple[int, ...]) -> list[str]:
    """A row a variant: mean over seeds, and each seed, at every look."""
    lines = [
        "| | " + " | ".join(f"step {step}" for step in looks) + " |",
        "|---" * (len(looks) + 1) + "|",
    ]
    for variant in variants:
        runs = [dict(rows_of(out, variant, seed)) for seed in seeds]
        cells = [_cell([run[step] for run in runs if step in run]) for step in looks]
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return lines


def _cell(lengths: list[float]) -> str:
    if not lengths:
        return "unknown"
    each = " ".join(f"{length:.2f}" for length in lengths)
    return f"**{statistics.mean(lengths):.2f}** ({each})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--out", type=Path, default=Path("runs/learning.jsonl"))
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    variants = given.variants.split(",")
    looks = tuple(sorted({given.steps // 3, given.steps * 2 // 3, given.steps}))
    torch.set_num_threads(1)
    transformers_logging.set_verbosity_error()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        measure(seed, variants, given.steps, looks, given.out)
    print("\n".join(table(given.out, variants, seeds, looks)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
