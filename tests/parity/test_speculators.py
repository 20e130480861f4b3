"""Proof against code nobody here wrote: speculators 0.9.0 reads, computes and writes as we do.

Tolerances: both compute in float32, ours through a fused attention, theirs through one that writes
the scores out, so sums run in another order: 2e-5 absolute on logits up to 8 (seen: 1.4e-6), 1e-5
relative on losses (seen: 8e-8). A wrong norm, index, position or mask moves them by 1e-2 and more.
"""

from __future__ import annotations

import json
import random

import pytest
import torch
from dflash_train.anchors import block_labels, sample_anchors
from dflash_train.cli import main
from dflash_train.data import Batch
from dflash_train.drafter import Drafter, qwen3_config
from dflash_train.layouts.weights import read_published, read_tensors
from dflash_train.loss import position_weights
from dflash_train.masks import block_mask, masks_for
from dflash_train.metrics import FIELDS
from dflash_train.replica import DrafterReplica, FeatureBatch
from dflash_train.run import RunRequest, execute
from dflash_train.settings import parse_overrides, resolve
from dflash_train.targets import FeatureTarget
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

WORDS = ["target.pretrain_steps=20", "optim.steps=6", "data.num_documents=64", "data.rows=2"]
NUM_TOKENS, PROMPT, ANSWER, NUM_ANCHORS = 96, 8, 52, 12
LOGITS = {"atol": 2e-5, "rtol": 0.0}
LOSSES = {"atol": 0.0, "rtol": 1e-5}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Other builds use the same cores."""
    torch.set_num_threads(1)


def exported(folder, *words):
    """A drafter after a few steps, in speculators' layout, with its target; and its settings."""
    config = resolve("tiny", None, [*WORDS, *words])
    request = RunRequest(config=config, run_dir=folder / "run", command=("x",), watch=False)
    assert execute(request).code == 0
    out = folder / "exported"
    words = ["--format", "speculators", "--out", str(out), "--dtype", "float32"]
    assert main(["export", "--run-dir", str(folder / "run"), *words]) == 0
    return out, config


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Its window is wider than the document."""
    return exported(tmp_path_factory.mktemp("wide"))


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """Its window bites."""
    return exported(tmp_path_factory.mktemp("narrow"), "drafter.sliding_window=9")


@torch.no_grad()
def answered(target):
    """A document whose response is the target's own words, padded on the right; ids, supervised."""
    prompt = torch.randint(9, 128, (1, PROMPT), generator=torch.Generator().manual_seed(3))
    target.generation_config.eos_token_id = None
    ids = target.generate(prompt, max_new_tokens=ANSWER, do_sample=False, use_cache=True)
    padded = torch.nn.functional.pad(ids, (0, NUM_TOKENS - ids.shape[1]))
    supervised = torch.zeros_like(padded, dtype=torch.bool)
    supervised[:, PROMPT : ids.shape[1]] = True
    return padded, supervised


def batch_of(ids, supervised, size):
    """The batch that our loader would make, with blocks that are not valid as well."""
    stream = torch.Generator().manual_seed(5)
    anchors, valid = sample_anchors(supervised, NUM_ANCHORS - 2, stream)
    anchors, valid = (torch.nn.functional.pad(t, (0, 2)) for t in (anchors, valid))
    labels, live = block_labels(ids, supervised, anchors, valid, size)
    rows = live.flatten().nonzero()[:, 0]
    attention = torch.zeros_like(ids)
    attention[:, : PROMPT + ANSWER] = 1
    return Batch(
        index=0,
        input_ids_BT=ids,
        attention_BT=attention,
        anchors_BA=anchors,
        valid_BA=valid,
        live_AK=live.flatten(0, 1),
        rows_R=rows,
        labels_R=labels.flatten()[rows],
        weights_R=position_weights(size, 4.0)[rows % size],
        num_tokens=PROMPT + ANSWER,
    )


def last_states(target, batch):
    """What the last layer gives, before the final norm."""
    caught = []
    hook = target.model.layers[-1].register_forward_hook(lambda *a: caught.append(a[2]))
    with torch.no_grad():
        target.model(batch.input_ids_BT, attention_mask=batch.attention_BT, use_cache=False)
    hook.remove()
    return caught[0][0] if isinstance(caught[0], tuple) else caught[0]


def replica_of(folder, config, target):
    drafter = Drafter(qwen3_config(config.drafter, 64, 128), len(config.target.layer_ids))
    drafter.load_state_dict(read_published(folder).weights)
    embedding, head = target.model.embed_tokens.weight.detach(), target.lm_head.weight.detach()
    return DrafterReplica(drafter, embedding, head, config, "cpu"), head


class Compared:
    """One document through both: ours at once, theirs in the files of a request."""

    def __init__(self, name, drafter, folder, whose_masks):
        exported, self.config = drafter
        target = AutoModelForCausalLM.from_pretrained(exported / "target")
        size = self.config.drafter.block_size
        ids, supervised = answered(target)
        self.batch = batch = batch_of(ids, supervised, size)
        layers = self.config.target.layer_ids
        features = FeatureTarget(target.model, layers, "cpu").features(ids, batch.attention_BT)
        self.item = FeatureBatch(batch, features)
        self.replica, head = replica_of(exported, self.config, target)
        with torch.no_grad():
            self.logits = self.replica.hidden(self.item)[0] @ head.T
        masks = masks_for(
            ("full_attention", "sliding_attention"),
            *(batch.anchors_BA, batch.valid_BA, NUM_TOKENS, size),
            self.config.drafter.sliding_window,
        )
        given, self.taken = folder / f"{name}-given.st", folder / f"{name}-taken.st"
        tensors = {
            "anchors": batch.anchors_BA[0],
            "valid": batch.valid_BA[0].long(),
            "features": features,
            "input_ids": ids,
            "supervised": supervised.long(),
            "last": last_states(target, batch),
            **{kind: mask[0].long() for kind, mask in masks.items()},
        }
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, given)
        self.request = ("forward", exported, given, self.taken, whose_masks)

    def theirs(self):
        return load_file(self.taken)

    def our_sums(self, weighting):
        """`FIELDS` of this batch as training adds them up."""
        config = parse_overrides(self.config, [f"loss.weighting={weighting}"])
        self.replica._config = config
        self.replica.flat.begin_step(0)
        sums = self.replica.accumulate(self.item).tolist()
        return dict(zip(FIELDS, sums, strict=True))


@pytest.fixture(scope="module")
def asked(peer, wide, narrow, tmp_path_factory):
    """Everything that is asked of the peer, in one process of its own."""
    folder = tmp_path_factory.mktemp("peer")
    compared = {
        "wide": Compared("wide", wide, folder, "peer"),
        "narrow": Compared("narrow", narrow, folder, "ours"),
    }
    (folder / "cases.json").write_text(json.dumps(CASES))
    peer(
        *(one.request for one in compared.values()),
        ("save", wide[0], folder / "saved"),
        ("save_reduced", wide[0], folder / "reduced", 40),
        ("masks", folder / "cases.json", folder / "masks.st"),
    )
    return folder, compared


@pytest.fixture(params=["wide", "narrow"])
def compared(request, asked):
    return asked[1][request.param]


def test_its_logits_on_our_states_anchors_and_mask_are_ours(compared):
    theirs = compared.theirs()["logits"][0]
    assert theirs.std() > 0.1
    torch.testing.assert_close(compared.logits, theirs, **LOGITS)


def test_its_targets_are_our_labels_where_the_target_wrote_the_text(compared):
    """So the final norm (gain 1 + w here) and the shift by one are read alike."""
    theirs = compared.theirs()
    rows = compared.batch.rows_R
    assert torch.equal(theirs["live"][0].nonzero()[:, 0], rows)
    assert torch.equal(theirs["targets"][0].argmax(dim=1)[rows], compared.batch.labels_R)


@pytest.mark.parametrize(("ours", "theirs"), [("decay", "fixed-exp-decay"), ("dpace", "dpace")])
def test_its_loss_is_ours_but_for_what_it_is_divided_by(compared, ours, theirs):
    """It divides the weighted sum by the number of rows, we divide by the sum of weights."""
    found = compared.theirs()
    its_sum = found[theirs] * (found["live"].sum() + 1e-5)
    our_sum = torch.tensor(compared.our_sums(ours)["loss"])
    torch.testing.assert_close(our_sum, its_sum, **LOSSES)


def test_its_estimate_of_the_acceptance_length_is_ours(compared):
    sums = compared.our_sums("decay")
    ours = 1.0 + sums["accepted"] / sums["blocks"]
    assert ours == pytest.approx(float(compared.theirs()["eal"]), rel=1e-6)


def test_what_it_saves_is_read_here(asked, wide):
    folder, _ = asked
    before, after = read_published(wide[0]), read_published(folder / "saved")
    assert after.geometry == before.geometry
    assert after.verifier == str(wide[0] / "target")
    assert after.reduced is None
    for name, weight in before.weights.items():
        assert torch.equal(after.weights[name], weight + 0.25)
    assert main(["export", "--check", str(folder / "saved")]) == 0


def test_a_vocabulary_it_reduced_is_read_here_token_by_token(asked, wide):
    folder, _ = asked
    found = read_published(folder / "reduced").reduced
    counts = {token: token % 17 for token in range(5, 128)}
    kept = sorted(sorted(counts, key=lambda token: (-counts[token], token))[:40])
    assert found.kept_R.tolist() == kept
    table = read_tensors(wide[0] / "target")["model.embed_tokens.weight"]
    assert torch.equal(found.head_RD, table[found.kept_R])


def random_case(draw, window):
    size, tokens = draw.choice([2, 4, 8]), draw.randint(24, 60)
    anchors = sorted(draw.sample(range(1, tokens - size), draw.randint(1, 5)))
    width = None if window is None else size + draw.randint(0, 12)
    return {"tokens": tokens, "size": size, "anchors": anchors, "window": width}


DRAW = random.Random(11)
CASES = {f"full-{i}": random_case(DRAW, None) for i in range(20)}
CASES |= {f"sliding-{i}": random_case(DRAW, "any") for i in range(20)}


def our_mask(case):
    anchors = torch.tensor([case["anchors"]])
    valid = torch.ones_like(anchors, dtype=torch.bool)
    return block_mask(anchors, valid, case["tokens"], case["size"], case["window"])[0]


@pytest.fixture(scope="module")
def its_masks(asked):
    return load_file(asked[0] / "masks.st")


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("full")])
def test_in_full_layers_its_mask_is_ours(its_masks, name):
    assert torch.equal(its_masks[name].bool(), our_mask(CASES[name]))


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("sliding")])
def test_in_sliding_layers_it_sees_further_back_by_the_offset_and_one(its_masks, name):
    """Engines, and we, count the window from the query; it counts from the anchor, one further."""
    case, ours, theirs = CASES[name], our_mask(CASES[name]), its_masks[name].bool()
    assert not (ours & ~theirs).any()
    for row, wider in enumerate(theirs & ~ours):
        block, offset = divmod(row, case["size"])
        first = case["anchors"][block] - case["window"]
        surplus = range(max(first, 0), max(first + offset + 1, 0))
        assert wider.nonzero()[:, 0].tolist() == list(surplus)
