"""Text of strangers inside Markdown: shown as it is, by a terminal, an editor and a browser.

No HTML, link, image or heading can come of it, and no code block ends early. Escapes stand only
where something would begin, so that a report still reads well as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dflash_watch.readers.lines import printable

_ACTIVE = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?\w{1,32};)|(?<=\])[(\[:]|(?<=!)\[")
_LEADING = re.compile(r"(\d{0,9})(?=[#>*+=|~-]|(?<=\d)[.)])")
_TICKS = re.compile(r"`{3,}")


def inert(text: str) -> str:
    """One line in which nothing is active but code between two backticks."""
    text = _ACTIVE.sub(lambda found: f"\\{found.group()}", printable(text.replace("\n", " ")))
    text = _TICKS.sub("''", text)
    first = _LEADING.match(text)
    return text if first is None else f"{first.group()}\\{text[first.end() :]}"


def fenced(lines: Iterable[str]) -> list[str]:
    """A code block that holds these lines, whatever stands in them."""
    shown = [printable(one) for one in lines]
    longest = max((len(run) for one in shown for run in re.findall(r"`{3,}", one)), default=2)
    fence = "`" * (longest + 1)
    return [fence, *shown, fence]
