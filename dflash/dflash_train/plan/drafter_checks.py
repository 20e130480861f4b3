"""Checks of the drafter: its blocks see no answer, and training sees what serving will see."""

from __future__ import annotations

import torch

from dflash_train.draft import compute_dtype
from dflash_train.drafting import draft_block
from dflash_train.leak import leak_test
from dflash_train.plan.bench import Bench, apart, tolerance
from dflash_train.plan.check import Check, judged, unknown

COMPARED = 4


def leak(bench: Bench) -> Check:
    """No output of a block moves when what it must not see is changed."""
    found = leak_test(bench.replica.hidden, bench.tried, bench.config.drafter.block_size)
    blocks = int(bench.tried.batch.valid_BA.sum())
    if not blocks:
        return unknown("leak", "no block in the first documents", "some")
    return judged(
        "leak",
        ok=not found,
        observed=found[0] if found else f"{blocks} blocks see nothing at or after their anchor",
        expected="no output moves with the features at and after its anchor",
        advice="the drafter sees its own answer: report this",
    )


@torch.no_grad()
def cached_inference(bench: Bench) -> Check:
    """Blocks trained under the mask equal blocks drafted one by one over a cache."""
    draft, item = bench.replica.draft, bench.tried
    batch, size = item.batch, draft.block_size
    trained = draft.hidden(batch, item.features_BTF).view(*batch.anchors_BA.shape, size, -1)
    dtype = compute_dtype(bench.config.optim.compute_dtype, draft.device.type)
    places = [
        (row, a)
        for row, a in batch.valid_BA.nonzero().tolist()
        if batch.anchors_BA[row, a] > 0  # a cache begins with a token
    ][:: max(1, int(batch.valid_BA.sum()) // COMPARED)]
    most = 0.0
    for row, a in places[:COMPARED]:
        anchor = int(batch.anchors_BA[row, a])
        context = draft.begin()
        draft.extend(context, item.features_BTF[row, :anchor])
        ids = torch.full((size,), bench.config.drafter.mask_token_id)
        ids[0] = batch.input_ids_BT[row, anchor]
        kind = draft.device.type
        with torch.autocast(kind, dtype=dtype, enabled=dtype != torch.float32):
            drafted = draft_block(draft.drafter, context, draft.embeds(ids))
        most = max(most, apart(trained[row, a], drafted))
    if not places:
        return unknown("cached-inference", "no block in the first documents", "some")
    limit = tolerance(dtype)
    return judged(
        "cached-inference",
        ok=most <= limit,
        observed=f"{len(places[:COMPARED])} blocks drafted over a cache are {most:.1e} away from"
        " the same blocks in training",
        expected=f"at most {limit:.0e}",
        advice="training sees something else than serving: report this",
    )
