"""No secret survives, in whatever clothes; ordinary training logs stay as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dflash_watch.redact import redact, redact_tree
from hypothesis import given
from hypothesis import strategies as st

SECRET = "Zq7xW2pL9vR4tB8n"
CLOTHES = [
    "python train.py --api-key {} --lr 1e-4",
    "python train.py --hf-token={} step 3",
    "HF_TOKEN={} python train.py",
    "export WANDB_API_KEY={}",
    '{{"password": "{}", "lr": 0.1}}',
    "{{'auth_token': '{}'}}",
    "config: password = {}",
    "https://user:{}@example.com/repo.git",
    "git clone https://{}@example.com/repo.git",
    "Authorization: Bearer {}",
    "authorization: basic {}",
    "curl -s -u me:{} https://example.com",
    "sshpass -p {} ssh root@box",
    "https://example.com/x?token={}&page=2",
    "aws_secret_access_key={}",
    "OPENAI_KEY={}",
    "Cookie: session={}; theme=dark",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----",
    '{{\\"api_key\\": \\"{}\\"}}',
    "db.password: {}",
    "--password '{}' --verbose",
]


@pytest.mark.parametrize("clothes", CLOTHES)
def test_a_secret_is_masked_and_the_text_around_it_stays(clothes: str) -> None:
    masked = redact(f"before {clothes.format(SECRET)} \nafter")
    assert SECRET not in masked
    assert "***" in masked
    assert masked.startswith("before ")
    assert masked.endswith("\nafter")


@pytest.mark.parametrize(
    "known",
    [
        "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "sk-proj-abcdefghij0123456789abcd",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r",
    ],
)
def test_a_token_of_a_known_shape_is_masked_without_a_name(known: str) -> None:
    assert redact(f"downloading with {known} now") == "downloading with *** now"


@pytest.mark.parametrize(
    "line",
    [
        "step 120/300  loss 2.345  14200 tok/s tokens=8192",
        "pad_token=0 eos_token: 2 max_token: 4096",
        "token: 17",
        "tokenizer: qwen  key=value  keys: 3",
        "basic training finished",
        "password: None",
        "kernel l2norm_fwd key ('128', '1')",
        "--token --verbose",
        "https://example.com/a?b=c",
    ],
)
def test_an_ordinary_line_stays_as_it_is(line: str) -> None:
    assert redact(line) == line


def test_recorded_logs_stay_as_they_are() -> None:
    for path in (Path(__file__).parent / "logs").glob("*.log"):
        assert redact(path.read_text()) == path.read_text()


@given(
    st.sampled_from(CLOTHES),
    st.text(
        alphabet="abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789",
        min_size=14,
        max_size=40,
    ),
    st.text(max_size=30),
)
def test_any_secret_in_any_clothes_is_masked(clothes: str, secret: str, around: str) -> None:
    token = f"a9{secret}Z3"
    assert token not in redact(f"{around}\n{clothes.format(token)}\n{around}")


@given(st.text(max_size=400))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@given(st.sampled_from(CLOTHES))
def test_a_tree_with_secrets_stays_json(clothes: str) -> None:
    tree = {
        "cmd": clothes.format(SECRET),
        "list": [1, None, clothes.format(SECRET)],
        "api_key": SECRET,
    }
    assert SECRET not in json.dumps(redact_tree(tree))
    assert list(redact_tree(tree)) == ["cmd", "list", "api_key"]  # type: ignore[call-overload]
