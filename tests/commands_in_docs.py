"""The command lines that README, docs and playbooks give, as data for tests."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNBOOKS = sorted((ROOT / "playbooks").glob("*.md"))
PROGRAMS = ("dflash-watch", "dflash-train", "make", "pip")
_STARTS = re.compile(rf"(?:{'|'.join(PROGRAMS)})(?:\s|$)")
_FENCE = re.compile(r"(?ms)^```(?:sh|bash|console)?\n(.*?)^```")
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


class Given(NamedTuple):
    """A command line, where it stands, and the first line that the page shows as its answer."""

    page: str
    line: str
    answer: str | None = None

    def parts(self) -> list[list[str]]:
        """The words of each command of ours in it: pipes and `;` part them, brackets are gone."""
        text = re.sub(r"\[([a-z][^\[\]]*)\]", r"\1", self.line)
        lexer = shlex.shlex(text, posix=True, punctuation_chars="|;&<>")
        lexer.whitespace_split = True
        parts: list[list[str]] = [[]]
        for word in lexer:
            if set(word) <= set("|;&<>"):
                parts.append([])
            else:
                parts[-1].append(word)
        return [part for part in parts if part and part[0] in PROGRAMS]


def given(pages: list[Path]) -> list[Given]:
    """All of these pages, each once a page."""
    found: dict[Given, None] = {}
    for page in pages:
        text = page.read_text()
        name = page.relative_to(ROOT).as_posix()
        for block in _FENCE.findall(text):
            found |= dict.fromkeys(_typed(name, block.splitlines()))
        for span in _SPAN.findall(_FENCE.sub("", text)):
            if _STARTS.match(span):
                found[Given(name, span)] = None
            elif name == "README.md" and re.match(r"--\w", span):
                found[Given(name, f"dflash-watch {span}")] = None
    return list(found)


def _typed(page: str, lines: list[str]) -> list[Given]:
    """A session (`$ command`, then its answer) or a list of commands."""
    if not any(line.startswith("$ ") for line in lines):
        return [Given(page, line) for line in lines if _STARTS.match(line)]
    answers = [*lines[1:], ""]
    return [
        Given(page, line[2:], None if not answer or answer.startswith("$ ") else answer)
        for line, answer in zip(lines, answers, strict=True)
        if line.startswith("$ ")
    ]
