"""Runs where speculators 0.9.0 is installed, and nothing of ours: its own code on our files.

`python peer.py REQUEST.json`: a list of [name of a function below, its arguments].
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


class Stub(types.ModuleType):
    """Stands for what speculators imports beside its models and does not use there."""

    def __init__(self, name):
        super().__init__(name)
        self.__path__ = []  # a package: parts of it can be imported

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for absent in ("openai", "openai.types", "openai.types.chat", "openai.types.completion"):
    sys.modules[absent] = Stub(absent)
for absent in ("datasets", "hs_connectors"):
    sys.modules[absent] = Stub(absent)

from speculators.losses import resolve_loss_config  # noqa: E402  (after the stubs)
from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig, core  # noqa: E402
from speculators.models.dflash.attention import create_anchor_block_mask_mod  # noqa: E402
from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution  # noqa: E402
from torch.nn.attention.flex_attention import create_mask  # noqa: E402


def load(folder):
    config = DFlashSpeculatorConfig.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "eager"
    return DFlashDraftModel.from_pretrained(folder, config=config).float()


@torch.no_grad()
def forward(folder, given, taken, whose_masks):
    """Logits, targets and losses of given documents and anchors.

    Only the draw of anchors is replaced; and who sees whom, unless `whose_masks` is `peer`.
    """
    model, x = load(folder), load_file(given)
    anchors, valid = x["anchors"], x["valid"].bool()
    core.select_anchors = lambda *_: (anchors, valid)
    if whose_masks == "ours":

        def build(*_):
            masks = [
                torch.zeros(x[name].shape).masked_fill(~x[name].bool(), -torch.inf)[None, None]
                for name in ("full_attention", "sliding_attention")
            ]
            return (*masks, anchors, valid)

        model._build_attention_mask = build
    inputs = {
        "hidden_states": x["features"],
        "input_ids": x["input_ids"],
        "loss_mask": x["supervised"],
        "verifier_last_hidden_states": x["last"],
        "document_ids": torch.zeros_like(x["input_ids"]),
        "max_anchors": len(anchors),
    }
    _, logits, targets, live, _ = model._backbone_forward(**inputs)
    found = {"logits": logits, "targets": targets, "live": live}
    for weighting in ("fixed-exp-decay", "dpace"):
        _, loss, metrics = model(
            **inputs,
            loss_config=resolve_loss_config("ce", "eager"),
            gamma=4.0,
            per_position_loss_weight=weighting,
        )
        found[weighting] = loss
        found["eal"] = metrics["eal_sum"] / metrics["eal_total"]
    save_file({name: tensor.contiguous() for name, tensor in found.items()}, taken)


def save(folder, out):
    """Load, change every weight that is trained, and save with its own writer."""
    model = load(folder)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.add_(0.25)
    model.save_pretrained(out)


def save_reduced(folder, out, rows):
    """As `save`, with a vocabulary reduced to `rows` tokens by its own code."""
    whole = load(folder)
    counts = {token: token % 17 for token in range(5, whole.verifier_vocab_size)}
    d2t, t2d = build_vocab_mappings_from_distribution(counts, int(rows), whole.verifier_vocab_size)
    config = DFlashSpeculatorConfig.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "eager"
    config.draft_vocab_size = int(rows)
    model = DFlashDraftModel(config)
    body = {name: t for name, t in whole.state_dict().items() if "lm_head" not in name}
    model.load_state_dict(body, strict=False)
    model.load_vocab_mappings(t2d, d2t)
    model._load_verifier_weights()
    model.save_pretrained(out)


def masks(given, taken):
    """Its mask of each case, dense: [queries, keys], True where a query may look."""
    found = {}
    for name, case in json.loads(Path(given).read_text()).items():
        rule, queries, keys = create_anchor_block_mask_mod(
            torch.zeros(case["tokens"], dtype=torch.long),
            case["tokens"],
            torch.tensor(case["anchors"]),
            case["size"],
            case["window"],
        )
        found[name] = create_mask(rule, None, None, queries, keys, device="cpu")[0, 0].contiguous()
    save_file(found, taken)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for task, *arguments in json.loads(Path(sys.argv[1]).read_text()):
        globals()[task](*arguments)
