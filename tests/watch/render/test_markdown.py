"""Text of strangers in a report shows itself and does nothing."""

from __future__ import annotations

import re

import pytest
from dflash_watch.render.markdown import fenced, inert
from hypothesis import given
from hypothesis import strategies as st

HOSTILE = [
    "<img src=https://example.com/x.png>",
    "</details><script>alert(1)</script>",
    "![x](https://example.com/x.png)",
    "[click](javascript:alert(1))",
    "![a][b]",
    "[b]: https://example.com/x.png",
    "<!-- hidden",
    "&#60;script&#62; &lt;b&gt;",
    "# heading",
    "> quote",
    "--- rule",
    "1. item",
    "12) item",
    "```html",
    "~~~",
    "\x1b[31mred\x1b]0;title\x07 \u202e",
    "first\nsecond",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_it_is_active(text: str) -> None:
    out = inert(text)
    assert out.isprintable()
    assert not re.search(r"(?<!\\)<[A-Za-z/!?]|(?<!\\)&#?\w+;|\](?:\(|\[|:)|(?<!\\)!\[|```", out)
    assert not re.match(r"[#>*+=|~-]|\d+[.)]", out)


@pytest.mark.parametrize(
    "text",
    [
        "no step for 31 s (limit 21 s)", "queue 3/4 & 5 < 6, loss[0] 2.0", "a -> b, c: d!",
        "`py-spy dump --pid 4242`, then look", "list[str] and x['a'] (see 3.)", "3 of 8 GPUs",
    ],
)  # fmt: skip
def test_ordinary_sentences_stay_as_they_are(text: str) -> None:
    assert inert(text) == text


@given(st.text("<>[]()!`&#ax;:\\- \n1."))
def test_any_mixture_stays_harmless(text: str) -> None:
    out = inert(text)
    assert not re.search(r"(?<!\\)<[A-Za-z/!?]|\](?:\(|\[|:)|```", out)


@given(st.lists(st.text("`~ a\n\x1b", max_size=12)))
def test_no_line_ends_the_block_that_it_stands_in(lines: list[str]) -> None:
    out = fenced(lines)
    assert len(out) == len(lines) + 2
    assert not any(line.strip().startswith(out[0]) for line in out[1:-1])
