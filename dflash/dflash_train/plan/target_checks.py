"""Checks of the target: kernels, causality, layer numbers, padding, embedding, lm_head."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional

from dflash_train.errors import DflashError
from dflash_train.gated_delta import REFERENCE, bound_on, each_call
from dflash_train.plan.bench import Bench, apart, first_rows, tolerance
from dflash_train.plan.check import Check, judged, passed, unknown
from dflash_train.targets import check_features

FEW_AGREE = 0.3


def kernels(bench: Bench) -> Check:
    """What each kernel of linear attention is bound to, and what one call of it takes."""
    target, batch = bench.target, first_rows(bench.largest, 1)
    ids, mask = batch.input_ids_BT, batch.attention_BT
    device = torch.device(target.device)
    bound = bound_on(target.decoder, device.type)
    spent: dict[str, list[float]] = {name: [] for name in bound}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        _finish(device)
        start_s = time.perf_counter()
        yield
        _finish(device)
        spent[name].append(time.perf_counter() - start_s)

    target.features(ids, mask)  # what tunes, tunes here
    with each_call(target.decoder, timed):
        target.features(ids, mask)
    rows = [
        {"kernel": name, "bound": bound[name], "calls": len(times), "ms": min(times) * 1e3}
        for name, times in spent.items()
        if times
    ]
    bench.measured["kernels"] = rows
    if not rows:
        kind = getattr(target.config, "_attn_implementation", "its own")
        return passed("kernels", f"attention: {kind}; no linear attention", "no slow kernel")
    is_borne = device.type != "cuda" or bench.config.target.allow_slow_kernels
    return judge_kernels(rows, ids.shape[1], is_borne=is_borne)


def judge_kernels(rows: Sequence[Mapping[str, object]], tokens: int, *, is_borne: bool) -> Check:
    """The scan must not run the reference where that matters; the convolution costs little.

    Args:
        rows: `kernel`, `bound`, `ms` of one call.
        tokens: of that call.
        is_borne: nobody minds the reference: on the CPU, or when it was asked for.
    """
    slow = [str(row["kernel"]) for row in rows if row["bound"] == REFERENCE]
    scans = [name for name in slow if "conv1d" not in name]
    said = "; ".join(
        f"{row['kernel']}: {row['bound']}, {row['ms']:.2f} ms for {tokens} tokens" for row in rows
    )
    return judged(
        "kernels",
        ok=is_borne or not slow,
        observed=said,
        expected="on a GPU flash-linear-attention and causal-conv1d",
        advice=f"pip install 'dflash-toolkit[gpu]' (missing for {', '.join(slow)}),"
        " or target.allow_slow_kernels=true",
        weak=not scans,
    )


def causal(bench: Bench) -> Check:
    """No feature sees a later token: a target of two directions would give the answers away."""
    ids = bench.short
    mask = torch.ones_like(ids)
    other = ids.clone()
    other[:, -1] = (ids[:, -1] + 1) % bench.config.data.vocab_size
    one, two = (bench.target.features(each, mask)[:, :-1] for each in (ids, other))
    moved, limit = apart(one, two), tolerance(one.dtype)
    return judged(
        "causal",
        ok=moved <= limit,
        observed=f"with another last token earlier features move by {moved:.1e} of their size",
        expected=f"at most {limit:.0e}",
        advice="this target looks both ways: take a decoder-only one",
    )


def feature_index(bench: Bench) -> Check:
    """Feature i is hidden_states[i + 1], and not a neighbour."""
    ids = bench.short
    mask = torch.ones_like(ids)
    listed = bench.target.states(ids, mask)
    features = bench.target.features(ids, mask).split(bench.config.target.hidden_size, dim=-1)
    last, wrong, most = bench.config.target.num_layers - 1, [], 0.0
    for layer, feature in zip(bench.config.target.layer_ids, features, strict=True):
        if layer == last:  # the list ends with the normed state: what is before it cannot be seen
            continue
        own = apart(feature, listed[layer + 1])
        most = max(most, own)
        if own > tolerance(feature.dtype) or own > apart(feature, listed[layer]):
            wrong.append(layer)
    return judged(
        "feature-index",
        ok=not wrong,
        observed=f"layers {', '.join(map(str, bench.config.target.layer_ids))}:"
        f" {most:.1e} away from hidden_states[i + 1]"
        + (f"; wrong: {', '.join(map(str, wrong))}" if wrong else ""),
        expected="equal to hidden_states[i + 1]",
        advice="report this target: its layers do not give what it lists",
    )


def features(bench: Bench) -> Check:
    """Numbers, not all zero, not the same everywhere; how large they are."""
    item = bench.tried
    try:
        check_features(item.features_BTF, item.batch.attention_BT)
    except DflashError as error:
        return judged(
            "features",
            ok=False,
            observed=error.message,
            expected="states that differ from token to token",
            advice="another target.dtype, or copy the target again",
        )
    real = item.features_BTF[item.batch.attention_BT.bool().to(item.features_BTF.device)].float()
    sizes = [
        part.pow(2).mean().sqrt() for part in real.split(bench.config.target.hidden_size, dim=-1)
    ]
    said = ", ".join(
        f"{layer}: {float(size):.2g}"
        for layer, size in zip(bench.config.target.layer_ids, sizes, strict=True)
    )
    return passed("features", f"root mean square by layer {said}", "numbers that differ")


def padding(bench: Bench) -> Check:
    """A document in a padded row has the features it has alone."""
    ids, longest = bench.short, bench.config.data.buckets[-1]
    beyond = min(longest, 4 * ids.shape[1]) - ids.shape[1]
    alone = bench.target.features(ids, torch.ones_like(ids))
    mask = functional.pad(torch.ones_like(ids), (0, beyond))
    padded = bench.target.features(functional.pad(ids, (0, beyond)), mask)[:, : ids.shape[1]]
    moved, limit = apart(alone, padded), tolerance(alone.dtype)
    return judged(
        "padding",
        ok=moved <= limit,
        observed=f"{beyond} positions of padding move features by {moved:.1e} of their size",
        expected=f"at most {limit:.0e}",
        advice="report this target: padding on the right changes what stands before it",
    )


def embedding(bench: Bench) -> Check:
    """What enters the first layer is the table that the drafter uses."""
    ids = bench.short
    entered = bench.target.states(ids, torch.ones_like(ids))[0]
    moved = apart(entered, bench.materials.embedding_VD[ids])
    return judged(
        "embedding",
        ok=moved <= tolerance(entered.dtype),
        observed=f"what enters the first layer is {moved:.1e} away from the token's embedding",
        expected="the same",
        advice="this target scales its embedding or adds positions to it: see that what serves"
        " the drafter gives it the token's embedding alone",
        weak=True,
    )


def head(bench: Bench) -> Check:
    """The last state through the lm_head gives the target's own logits."""
    ids = bench.short[:, :16]
    model = bench.materials.target
    with torch.no_grad():
        own = model(input_ids=ids, use_cache=False).logits
        last = bench.materials.decoder(input_ids=ids, use_cache=False).last_hidden_state
        made = functional.linear(last, bench.materials.head_VD)
    same = float((own.argmax(-1) == made.argmax(-1)).float().mean())
    moved = apart(own, made)
    limit = tolerance(made.dtype)
    return judged(
        "head",
        ok=moved <= limit,
        observed=f"logits made with the lm_head are {moved:.1e} away from the target's own;"
        f" {same:.0%} of the likeliest tokens agree",
        expected=f"at most {limit:.0e}",
        advice="this target caps or scales its logits: the drafter learns without that"
        if same == 1.0
        else "norm and lm_head do not belong together: copy the target again",
        weak=same == 1.0,
    )


def agreement(bench: Bench) -> Check:
    """Would the target have said what the drafter is to learn?"""
    batch = first_rows(bench.sample, 2)
    if not batch.rows_R.numel():
        return unknown("agreement", "no supervised position in the first batch", "some")
    states = bench.target.states(batch.input_ids_BT, batch.attention_BT)[-1]
    size, anchors = bench.config.drafter.block_size, batch.anchors_BA.shape[1]
    row_R = batch.rows_R // (anchors * size)
    at_R = batch.anchors_BA.flatten()[batch.rows_R // size] + batch.rows_R % size - 1
    best = _best(states[row_R.to(states.device), at_R.to(states.device)], bench)
    share = float((best == batch.labels_R).float().mean())
    said = f"the target's likeliest token is the label at {share:.0%} of {len(best):,} positions"
    if bench.facts is None:
        steps = bench.config.target.pretrain_steps
        return passed("agreement", said, f"what {steps} steps of teaching on the spot gave")
    return judged(
        "agreement",
        ok=share >= FEW_AGREE,
        observed=said,
        expected=f"{FEW_AGREE:.0%} or more: a drafter learns its target's own words",
        advice="responses written by somebody else: make them with the target",
        weak=True,
    )


def _best(states_RD: Tensor, bench: Bench) -> Tensor:
    table = bench.replica.draft.head_VD
    parts = states_RD.to(table.device, table.dtype).split(bench.config.loss.chunk_rows)
    return torch.cat([functional.linear(part, table).argmax(-1).cpu() for part in parts])


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
