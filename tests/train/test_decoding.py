"""Draft-and-verify decoding gives the target's own greedy output, however good the drafter is."""

from __future__ import annotations

import pytest
import torch
from dflash_train import streams
from dflash_train.config import Config
from dflash_train.decoding import CachedTarget, check_continuation, decode
from dflash_train.draft import Draft
from dflash_train.drafter import Drafter, qwen3_config
from dflash_train.errors import DflashError
from dflash_train.settings import parse_overrides
from dflash_train.targets import FeatureTarget
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

COMMON = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.2,  # wide: greedy output wanders instead of repeating one token
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
FAMILIES = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**COMMON)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**COMMON)),
    "hybrid": lambda: Qwen3_5ForCausalLM(Qwen3_5TextConfig(**COMMON, **LINEAR)),
    "sliding": lambda: MistralForCausalLM(MistralConfig(**COMMON, sliding_window=12)),
}


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return FAMILIES[request.param]().eval().float()


def prompt_of(seed, length=14):
    return torch.randint(5, 96, (length,), generator=streams.generator(seed, "prompt"))


def plain_greedy(model, prompt, count, end=None):
    out = model.generate(
        prompt[None],
        attention_mask=torch.ones_like(prompt[None]),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=end,
        pad_token_id=0,
    )
    return tuple(out[0, len(prompt) :].tolist())


def target_of(model):
    return FeatureTarget(model.model, (0, 2), "cpu"), model.lm_head.weight.detach()


def config_of():
    words = ["drafter.layer_types=sliding_attention,full_attention", "drafter.sliding_window=20"]
    return parse_overrides(Config(), words)


def draft_of(model):
    drafter = Drafter(qwen3_config(config_of().drafter, 48, 96), 2)
    drafter.initialise(0.2, streams.generator(1, "drafter"))
    return Draft(
        drafter=drafter,
        embedding_VD=model.model.embed_tokens.weight.detach(),
        head_VD=model.lm_head.weight.detach(),
        config=config_of(),
    )


class Oracle:
    """A drafter that knows the answer and is wrong from a place of the test's choosing on."""

    block_size = 6

    def __init__(self, prompt, answer, lengths):
        self._text, self._lengths = [*prompt.tolist(), *answer, *[9] * 8], list(lengths)
        self.contexts = []

    def begin(self):
        self.contexts.append(0)
        return self.contexts

    def extend(self, context, features):
        context[-1] += len(features)

    def block(self, context, anchor):
        place = context[-1]
        assert self._text[place] == anchor
        right = self._lengths.pop(0)
        block = torch.tensor(self._text[place : place + 6])
        block[right + 1 :] = (block[right + 1 :] + 1) % 96
        return block


def never():
    return None


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_output_is_plain_greedy_decoding_with_a_drafter_that_knows_nothing(model, seed):
    target, head = target_of(model)
    prompt = prompt_of(seed)
    found = decode(CachedTarget(target, head), draft_of(model), prompt, 24, frozenset(), never)
    assert found.tokens == plain_greedy(model, prompt, 24)


@pytest.mark.parametrize("seed", range(4))
def test_the_output_is_plain_greedy_decoding_however_much_is_accepted(model, seed):
    target, head = target_of(model)
    prompt = prompt_of(seed)
    answer = plain_greedy(model, prompt, 40)
    stream = streams.generator(seed, "lengths")
    lengths = torch.randint(0, 6, (40,), generator=stream).tolist()
    oracle = Oracle(prompt, answer, lengths)
    found = decode(CachedTarget(target, head), oracle, prompt, 32, frozenset(), never)
    assert found.tokens == answer[:32]
    assert list(found.accepted) == lengths[: len(found.accepted)]
    assert len(found.accepted) <= found.passes <= 2 * len(found.accepted)


def test_decoding_ends_with_the_end_token_inside_a_block(model):
    target, head = target_of(model)
    prompt = prompt_of(5)
    answer = plain_greedy(model, prompt, 40)
    end = next(token for place, token in enumerate(answer) if place >= 3)
    until = answer.index(end) + 1
    oracle = Oracle(prompt, answer, [5] * 9)
    found = decode(CachedTarget(target, head), oracle, prompt, 30, frozenset({end}), never)
    assert found.tokens == answer[:until] == plain_greedy(model, prompt, 30, end)
    assert sum(found.accepted) + len(found.accepted) + 1 == until


def test_features_of_decoding_are_those_of_training(model):
    target, head = target_of(model)
    prompt = prompt_of(6)
    answer = plain_greedy(model, prompt, 20)
    seen = []

    class Keeps(Oracle):
        def extend(self, context, features):
            seen.append(features)
            super().extend(context, features)

    oracle = Keeps(prompt, answer, [0, 3, 5, 1, 0, 2, 4])
    decode(CachedTarget(target, head), oracle, prompt, 16, frozenset(), never)
    decoded = torch.cat(seen)
    ids = torch.tensor([[*prompt.tolist(), *answer]])[:, : len(decoded)]
    trained = target.features(ids, torch.ones_like(ids))[0]
    # other lengths are summed in other chunks, float32
    assert torch.allclose(decoded, trained, atol=1e-4)


def test_a_cache_that_goes_on_with_several_tokens_passes_the_check(model):
    check_continuation(*target_of(model), prompt_of(7, 20))


def test_a_cache_that_loses_its_state_is_refused(model):
    target, head = target_of(model)
    straight = target.extend

    class Forgets(FeatureTarget):
        def extend(self, ids, cache):
            cache.reset()
            return straight(ids, cache)

    target.__class__ = Forgets
    with pytest.raises(DflashError, match="does not go on with several tokens"):
        check_continuation(target, head, prompt_of(7, 20))
