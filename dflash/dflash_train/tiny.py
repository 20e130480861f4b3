"""A whole task made on the spot: documents with structure, and a small hybrid target that knows it.

A document is `start rule words... sep x f(x) f(f(x)) ...`: f is one of a few fixed orders of the
vocabulary, named by the rule token and seen in the first words after the separator, which still
belong to the prompt. Predicting one token needs f and the last token; predicting seven needs
what the target knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn import functional
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from dflash_train import streams
from dflash_train.config import Config
from dflash_train.data import Document
from dflash_train.gated_delta import use_reference_on_cpu

PAD, START, END, MASK, SEPARATOR, FIRST_RULE = 0, 1, 2, 3, 4, 5
GIVEN_WORDS = 7
"""Words of the order that the prompt shows. Without them a target that is right in 96 of 100 places
on given text goes astray with its own first word: then nothing that it says is in the data."""


def make_documents(config: Config) -> list[Document]:
    """`data.num_documents` documents of different lengths, from the seed alone."""
    return _documents(config, "documents", config.data.num_documents)


def make_held_out(config: Config) -> list[Document]:
    """`data.held_out` documents of the same rules, never trained on."""
    return _documents(config, "held-out", config.data.held_out)


def _documents(config: Config, purpose: str, count: int) -> list[Document]:
    data = config.data
    words = torch.arange(FIRST_RULE + data.num_rules, data.vocab_size)
    orders = [_cycle(words, config.seed, rule) for rule in range(data.num_rules)]
    stream = streams.generator(config.seed, purpose)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=stream))

    documents = []
    for _ in range(count):
        rule = draw(0, data.num_rules)
        length = draw(data.min_length, data.buckets[-1] + 1)
        prompt = [int(words[draw(0, len(words))]) for _ in range(draw(2, 7))]
        tokens = [START, FIRST_RULE + rule, *prompt, SEPARATOR]
        prompt_length = len(tokens) + GIVEN_WORDS
        word = int(words[draw(0, len(words))])
        while len(tokens) < length:
            tokens.append(word)
            word = orders[rule][word]
        documents.append(Document(tuple(tokens), prompt_length))
    return documents


def _cycle(words: torch.Tensor, seed: int, rule: int) -> dict[int, int]:
    stream = streams.generator(seed, "rule", rule)
    ring = words[torch.randperm(len(words), generator=stream)].tolist()
    return dict(zip(ring, ring[1:] + ring[:1], strict=True))


def target_config(config: Config) -> Qwen3_5TextConfig:
    """A Qwen3.5-style hybrid: three Gated DeltaNet layers, then one of full attention."""
    target = config.target
    return Qwen3_5TextConfig(
        vocab_size=config.data.vocab_size,
        hidden_size=target.hidden_size,
        intermediate_size=target.intermediate_size,
        num_hidden_layers=target.num_layers,
        num_attention_heads=target.num_heads,
        num_key_value_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        linear_num_key_heads=target.num_kv_heads,
        linear_num_value_heads=target.num_heads,
        linear_key_head_dim=target.head_dim,
        linear_value_head_dim=target.head_dim,
        max_position_embeddings=2 * config.data.buckets[-1],
        initializer_range=target.initializer_range,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        tie_word_embeddings=True,
        use_cache=False,
    )


def build_target(config: Config) -> Qwen3_5ForCausalLM:
    """The tiny target with weights from the seed; nothing else's randomness is touched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(streams.generator(config.seed, "target").initial_seed())
        model = Qwen3_5ForCausalLM(target_config(config)).float()
    use_reference_on_cpu(model)
    return model


def teach_target(
    model: Qwen3_5ForCausalLM,
    documents: Sequence[Document],
    config: Config,
    on_step: Callable[[int, float], None],
) -> None:
    """Train the target on the documents' responses; frozen afterwards by whoever uses it.

    Args:
        model: from `build_target`.
        documents: what it should know.
        config: `target.pretrain_steps`, `target.pretrain_lr`, seed.
        on_step: called with (steps done, loss) after each step; may raise to stop.
    """
    target = config.target
    optimizer = torch.optim.AdamW(model.parameters(), lr=target.pretrain_lr, weight_decay=0.0)
    stream = streams.generator(config.seed, "pretrain")
    for step in range(target.pretrain_steps):
        picks = torch.randint(0, len(documents), (16,), generator=stream).tolist()
        ids, labels = _pretrain_batch([documents[i] for i in picks])
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        counted = labels[:, 1:] >= 0
        loss = functional.cross_entropy(model.lm_head(hidden[counted]), labels[:, 1:][counted])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        on_step(step + 1, loss.item())


def _pretrain_batch(documents: list[Document]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids, and labels that are -1 outside the responses; both [B, T]."""
    length = max(len(document.tokens) for document in documents)
    ids = torch.full((len(documents), length), PAD)
    labels = torch.full_like(ids, -1)
    for row, document in enumerate(documents):
        tokens = torch.tensor(document.tokens)
        ids[row, : len(tokens)] = tokens
        labels[row, : len(tokens)] = tokens.where(torch.tensor(document.mask()), -1)
    return ids, labels
