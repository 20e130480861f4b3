"""What a pattern cannot match without is never wrong: a text without it cannot match."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from dflash_watch.playbooks import load_playbooks
from dflash_watch.readers.patterns import fixed_parts
from hypothesis import given, settings
from hypothesis import strategies as st

CASES = Path(__file__).parents[2] / "cases"
PATTERNS = sorted(
    {
        (one.pattern, one.multiline)
        for book in load_playbooks().values()
        for one in book.signatures()
    }
)


@pytest.mark.parametrize(
    ("pattern", "keys"),
    [
        (r"Triton Error \[CUDA\]: out of memory", ("triton error [cuda]: out of memory",)),
        (r"(?i)Fallen Off", ("fallen off",)),
        (r"a?bcd", ("bcd",)),
        (r"abc|def", ("abc", "def")),
        (r"x(?:abcd|efgh)+y", ("abcd", "efgh")),
        (r"(?:abcd)?efg", ("efg",)),
        (r"(?:abcd)*", ()),
        (r"cudaMemcpy\w*", ("cudamemcpy",)),
        (r"abcd{0,3}", ("abc",)),
        (r"(?!never)a", ()),
        (r"[abcd]+", ()),
    ],
)
def test_the_fixed_text_of_a_pattern_is_found(pattern, keys):
    assert fixed_parts(pattern) == keys


def texts() -> list[str]:
    files = [path for path in CASES.rglob("*") if path.suffix in {".txt", ".csv"}]
    entries = yaml.safe_load((CASES / "wordings.yaml").read_text())
    told = [path.read_text(errors="replace") for path in files]
    return told + [
        str(entry[key]) for entry in entries for key in ("log", "stacks") if key in entry
    ]


def test_no_case_would_be_missed_for_want_of_the_fixed_text():
    told = [(text, text.lower()) for text in texts()]
    for pattern, multiline in PATTERNS:
        keys = fixed_parts(pattern)
        compiled = re.compile(pattern, re.DOTALL if multiline else 0)
        for text, low in told:
            if keys and not any(key in low for key in keys):
                assert compiled.search(text) is None, (pattern, text)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_text_that_matches_a_made_up_pattern_holds_its_fixed_text(data):
    words = st.sampled_from(["abc", "defg", "x", r"\w*", r"\d+", "hij?", "[kl]mn"])
    fixed = st.sampled_from(["abc", "defg", "x", "hij?", "[kl]mn"])  # a repeated star may never end
    inner = st.lists(fixed, min_size=1, max_size=3).map("".join)
    group = st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})")
    counted = st.tuples(group, st.sampled_from(["", "?", "*", "+", "{0,2}", "{2}"])).map("".join)
    pattern = "".join(data.draw(st.lists(st.one_of(words, counted), min_size=1, max_size=5)))
    text = data.draw(st.from_regex(pattern))
    keys = fixed_parts(pattern)
    assert not keys or any(key in text.lower() for key in keys)
