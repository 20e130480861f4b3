"""Secrets in command lines never leave the watched machine."""

from __future__ import annotations

import pytest
from dflash_watch.agent.mask import MASK, command_text, mask_words
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("words", "masked"),
    [
        (["train.py", "--api-key", "abc123"], ["train.py", "--api-key", MASK]),
        (["--hf-token=abc"], ["--hf-token=" + MASK]),
        (["HF_TOKEN=abc", "python"], ["HF_TOKEN=" + MASK, "python"]),
        (["OPENAI_API_KEY=x"], ["OPENAI_API_KEY=" + MASK]),
        (["AWS_SECRET_ACCESS_KEY=x"], ["AWS_SECRET_ACCESS_KEY=" + MASK]),
        (["--password", "p"], ["--password", MASK]),
        (["--wandb_token", "p", "--lr", "1"], ["--wandb_token", MASK, "--lr", "1"]),
        (["https://me:pw@host/x"], [f"https://{MASK}@host/x"]),
        (["--data", "s3://id:key@bucket/a"], ["--data", f"s3://{MASK}@bucket/a"]),
        (["hf_abcdefghijklmnopqrstuv"], [MASK]),
        (["x=sk-abcdefghijklmnopqrstuvwxyz"], ["x=" + MASK]),
        (["ghp_abcdefghijklmnopqrstuvwxyz0123"], [MASK]),
        (["-H", "Authorization: Bearer Zq9AbC123456"], ["-H", f"Authorization: {MASK} {MASK}"]),
        (["-H", "X-Auth: Basic dXNlcjpwYXNz"], ["-H", f"X-Auth: {MASK} {MASK}"]),
        (["sh", "-c", "TOKEN=abc python x.py"], ["sh", "-c", f"TOKEN={MASK} python x.py"]),
    ],
)
def test_a_secret_is_masked_wherever_it_stands(words, masked):
    assert mask_words(words) == masked


@pytest.mark.parametrize(
    "words",
    [
        ["--tokenizer", "gpt2"],
        ["--max-tokens", "4096"],
        ["--tokens-per-step=8192"],
        ["--pad-token", "<pad>"],
        ["--num_tokens", "10"],
        ["train.py", "--expect-tokens-per-s", "14200"],
        ["--author", "me"],
        ["/data/tokens/train.bin"],
        ["https://host/path"],
    ],
)
def test_what_only_sounds_like_a_secret_stays_readable(words):
    assert mask_words(words) == words


def test_a_long_command_is_cut_and_stays_one_line():
    text = command_text(["python", "-c", "a\nb" * 500])
    assert len(text) == 400
    assert "\n" not in text


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters="- "), min_size=1))
def test_the_value_after_a_secret_flag_never_survives(secret):
    assert mask_words(["--api-key", secret]) == ["--api-key", MASK]
