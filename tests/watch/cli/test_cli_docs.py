"""The pages of commands and the parsers know the same options."""

import re
from pathlib import Path

from dflash_watch.cli import PARSERS

DOCS = Path(__file__).resolve().parents[3] / "docs"
TEXT = "\n".join((DOCS / name).read_text() for name in ("commands.md", "fleet.md"))
OF_OTHERS = {"--preset"}


def all_options() -> set[str]:
    return {option for build in PARSERS.values() for option in build().options()}


def test_every_option_that_the_page_names_exists():
    named = set(re.findall(r"(?<![\\w-])--[a-z][a-z-]*", TEXT))
    assert named - OF_OTHERS <= all_options()


def test_every_option_that_exists_stands_on_the_page():
    missing = {option for option in all_options() if option not in TEXT}
    assert missing <= {"--help", "--version", "--demo"}
