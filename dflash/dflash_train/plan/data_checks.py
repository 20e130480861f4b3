"""Checks of names and numbers: devices, disk, tokenizer, mask token, positions, documents."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from dflash_train.config import Config
from dflash_train.corpus.header import read_header
from dflash_train.data import Batch
from dflash_train.plan.bench import Bench
from dflash_train.plan.check import Check, judged, passed, unknown

LOOKED_AT_BATCHES = 32
BYTES_PER_WEIGHT = 12
"""Of a checkpoint: the weight and two moments, float32."""
SLACK_BYTES = 64 << 20


def devices(bench: Bench) -> Check:
    """That the devices exist was asked before anything was loaded; here they are named."""
    names = []
    for name in dict.fromkeys((*bench.config.target.devices, *bench.config.drafter.devices)):
        kind = torch.cuda.get_device_name(name) if name.startswith("cuda") else "this processor"
        names.append(f"{name} ({kind})")
    roles = f"{bench.config.num_targets} target, {bench.config.num_drafters} drafter workers"
    return passed("devices", f"{', '.join(names)}; {roles}", "devices that are there")


def disk(bench: Bench) -> Check:
    """Room for the checkpoints that are kept, and for one being written beside them."""
    num_weights = bench.replica.flat.weights.numel()
    each = num_weights * BYTES_PER_WEIGHT
    there = len(list(bench.run_dir.glob("checkpoints/step-*")))  # those a resumed run replaces
    keep = max(1, bench.config.checkpoint.keep + 1 - there)
    place = _existing(bench.run_dir)
    free = shutil.disk_usage(place).free
    return judged(
        "disk",
        ok=free >= keep * each + SLACK_BYTES,
        observed=f"{_gb(free)} free in {place}; {_gb(each)} a checkpoint ({num_weights:,} weights)",
        expected=f"{_gb(keep * each + SLACK_BYTES)}: {keep} more checkpoints and the log",
        advice="another --run-dir, or fewer kept: checkpoint.keep=N",
    )


def tokenizer(bench: Bench) -> Check:
    """Do tokenizer and embedding belong together?"""
    facts, expected = bench.facts, "ids of the tokenizer within the embedding"
    if facts is None:
        return passed("tokenizer", "none needed: documents are made of token ids", expected)
    if facts.tokenizer_size is None:
        return unknown(
            "tokenizer", f"none in {facts.folder}", expected, "add the target's tokenizer files"
        )
    ends = f"tokenizer ends text with {facts.tokenizer_eos}, model with {_listed(facts.model_eos)}"
    agree = facts.tokenizer_eos is None or facts.tokenizer_eos in facts.model_eos
    return judged(
        "tokenizer",
        ok=agree or not facts.model_eos,
        observed=f"{facts.tokenizer_size} ids, {facts.vocab_size} rows of the embedding; {ends}",
        expected=f"{expected}, and one end of text",
        advice="chat models may end turns with a token of their own; else copy the target again",
        weak=True,
    )


def template(bench: Bench) -> Check:
    """Chats are trained on in the words in which they will be served."""
    path, facts = bench.config.data.path, bench.facts
    expected = "the target's own chat template, and thinking as it will be served"
    if path is None:
        return passed("template", "none: documents are made of token ids", expected)
    made = read_header(Path(path))["made_of"]["chat_template"]
    if made["sha256"] is None:
        return passed("template", "none: prepared without one, from plain text", expected)
    thinking = made["options"].get("enable_thinking")
    shown = "as the template has it" if thinking is None else ("on" if thinking else "off")
    said = f"prepared with template {made['sha256'][:12]}, thinking {shown}"
    if facts is None or facts.template_sha256 is None:
        return unknown("template", f"{said}; the target has none to compare with", expected)
    return judged(
        "template",
        ok=made["sha256"] == facts.template_sha256,
        observed=f"{said}; the target's is {facts.template_sha256[:12]}",
        expected=expected,
        advice="prepare without --chat-template, or serve with that template and override this",
    )


def mask_token(bench: Bench) -> Check:
    """The mask token never stands in what is learned from."""
    mask = bench.config.drafter.mask_token_id
    batches = _batches(bench)
    seen = sum(int((_real(batch) == mask).sum()) for batch in batches)
    tokens = sum(batch.num_tokens for batch in batches)
    special = ", ".join(map(str, bench.config.target.special_ids)) or "none known"
    return judged(
        "mask-token",
        ok=seen == 0,
        observed=f"{mask}, {seen} times in {tokens:,} tokens; pad, start and end are {special}",
        expected="a token that never stands in text",
        advice="drafter.mask_token_id=N with a token that stands nowhere",
    )


def positions(bench: Bench) -> Check:
    """The longest bucket lies within what the target was made for."""
    longest = bench.config.data.buckets[-1]
    most = bench.facts.max_positions if bench.facts else None
    if most is None:
        return passed("positions", f"up to {longest}; the target names no limit", "within it")
    return judged(
        "positions",
        ok=longest <= most,
        observed=f"buckets up to {longest}, the target goes to {most}",
        expected="buckets within the target's positions",
        advice=f"data.buckets=... up to {most}",
    )


def rope(bench: Bench) -> Check:
    """Serving engines turn the drafter's heads by its configuration: it must be the plain one."""
    config = bench.replica.drafter.config
    fields = dict(config.rope_parameters)
    odd = sorted(set(fields) - {"rope_type", "rope_theta"})
    ok = fields.get("rope_type") == "default" and not odd
    odd += [name for name in ("partial_rotary_factor", "mrope_section") if hasattr(config, name)]
    return judged(
        "rope",
        ok=ok and not odd,
        observed=f"{fields.get('rope_type')}, theta {fields.get('rope_theta'):.0f}"
        + (f", {', '.join(odd)}" if odd else ""),
        expected="plain RoPE over whole heads, which every engine reads alike",
        advice="drafter.rope_theta=1e7 and nothing else",
    )


def documents(bench: Bench) -> Check:
    """One document a row, padding on the right, no label beyond its end, something to learn."""
    size, rows = bench.config.drafter.block_size, bench.config.data.rows
    crossing = empty = outside = 0
    batches = _batches(bench)
    for batch in batches:
        attention = batch.attention_BT
        crossing += int((attention[:, 1:] > attention[:, :-1]).any(dim=1).sum())
        empty += int(batch.weights_R.numel() == 0)
        outside += int(_label_positions(batch, size).ge(attention.sum(dim=1)[_rows(batch)]).sum())
    counted = sum(batch.rows_R.numel() for batch in batches) / len(batches)
    return judged(
        "documents",
        ok=not (crossing or empty or outside),
        observed=f"{len(batches)} batches of {rows} rows: {crossing} rows of several documents,"
        f" {outside} labels beyond a document, {empty} batches without anything to learn;"
        f" {counted:.0f} block positions count in a batch",
        expected="0, 0 and 0",
        advice="prepare the data again; documents need supervised tokens",
    )


def _rows(batch: Batch) -> torch.Tensor:
    """Row of the batch that each label belongs to."""
    blocks, size = batch.live_AK.shape
    return batch.rows_R // (blocks // len(batch.input_ids_BT) * size)


def _label_positions(batch: Batch, size: int) -> torch.Tensor:
    return batch.anchors_BA.flatten()[batch.rows_R // size] + batch.rows_R % size


def _real(batch: Batch) -> torch.Tensor:
    return batch.input_ids_BT[batch.attention_BT.bool()]


def _batches(bench: Bench) -> list[Batch]:
    config: Config = bench.config
    count = min(LOOKED_AT_BATCHES, config.optim.steps * config.batches_per_step)
    source = bench.materials.source
    most = source.steps_per_epoch * config.batches_per_step
    return [source.batch(i) for i in range(min(count, most))]


def _existing(place: Path) -> Path:
    while not place.exists():
        place = place.parent
    return place


def _gb(size: float) -> str:
    return f"{size / 1e9:.2f} GB"


def _listed(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids)) or "none"
