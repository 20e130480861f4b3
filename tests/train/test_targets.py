"""The target as a source of features."""

from __future__ import annotations

import pytest
import torch
from dflash_train import tiny
from dflash_train.config import Config
from dflash_train.errors import DflashError
from dflash_train.targets import FeatureTarget, check_features


@pytest.fixture(scope="module")
def model():
    return tiny.build_target(Config()).eval()


def test_feature_i_is_hidden_state_i_plus_one(model):
    ids = torch.randint(5, 120, (2, 20), generator=torch.Generator().manual_seed(1))
    target = FeatureTarget(model.model, (0, 2), "cpu")
    features = target.features(ids, torch.ones_like(ids))
    with torch.no_grad():
        states = model.model(input_ids=ids, output_hidden_states=True).hidden_states
    assert torch.equal(features, torch.cat([states[1], states[3]], dim=-1))


def test_right_padding_changes_no_real_token(model):
    ids = torch.randint(5, 120, (1, 24), generator=torch.Generator().manual_seed(2))
    padded = torch.nn.functional.pad(ids, (0, 40))
    mask = torch.nn.functional.pad(torch.ones_like(ids), (0, 40))
    target = FeatureTarget(model.model, (0, 1, 2), "cpu")
    alone = target.features(ids, torch.ones_like(ids))
    together = target.features(padded, mask)
    # other lengths are summed in other chunks
    assert torch.allclose(together[:, :24], alone, atol=1e-5)
    assert not together[:, 24:].any()


def test_the_target_is_frozen_and_its_features_can_be_trained_with(model):
    ids = torch.full((1, 12), 9)
    features = FeatureTarget(model.model, (1,), "cpu").features(ids, torch.ones_like(ids))
    assert not features.requires_grad
    weight = torch.ones(features.shape[-1], requires_grad=True)
    (features @ weight).sum().backward()
    assert weight.grad is not None


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (torch.zeros(1, 4, 3), "all zero"),
        (torch.ones(1, 4, 3), "equal at every token"),
        (torch.full((1, 4, 3), float("nan")), "not finite"),
    ],
)
def test_features_that_cannot_teach_are_refused(features, said):
    with pytest.raises(DflashError, match=said):
        check_features(features, torch.ones(1, 4))
