"""Texts that prove a failure, from the playbooks' data, found in lines, tracebacks and stacks."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from dflash_watch.errors import UsageError
from dflash_watch.readers.facts import Signature


class Match(msgspec.Struct, frozen=True):
    """A signature and the line that matched."""

    signature: Signature
    text: str


class Matcher:
    """Compiled signatures of one place.

    Args:
        signatures: from the playbooks, any `where`.
        where: `log` or `stacks`; others are left out.

    Raises:
        UsageError: a pattern is not a regular expression; names the playbook.
    """

    def __init__(self, signatures: Iterable[Signature], where: str = "log") -> None:
        chosen = [one for one in signatures if one.where == where]
        compiled = [(one, _compile(one)) for one in chosen]
        self._single = [(one, pattern) for one, pattern in compiled if not one.multiline]
        self._multi = [(one, pattern) for one, pattern in compiled if one.multiline]

    def in_line(self, line: str) -> list[Match]:
        """Signatures of a plain line; no more than one a failure."""
        found: dict[str, Match] = {}
        for signature, pattern in self._single:
            if signature.failure not in found and pattern.search(line):
                found[signature.failure] = Match(signature, line)
        return list(found.values())

    def in_text(self, text: str) -> list[Match]:
        """Signatures of a traceback or stack: each line, and the whole for `multiline`.

        The last line counts that matches: the exception, not the source line that raised it.
        """
        found: dict[str, Match] = {}
        for line in text.splitlines():
            for match in self.in_line(line.strip()):
                found[match.signature.failure] = match
        for signature, pattern in self._multi:
            if signature.failure not in found:
                hit = pattern.search(text)
                if hit:
                    found[signature.failure] = Match(signature, _last_line(text, hit.end()))
        return list(found.values())


def _last_line(text: str, end: int) -> str:
    """The whole line in which a match ends."""
    begin = text.rfind("\n", 0, max(end - 1, 0)) + 1
    stop = text.find("\n", max(end - 1, 0))
    return text[begin : stop if stop >= 0 else len(text)].strip()


def _compile(signature: Signature) -> re.Pattern[str]:
    try:
        return re.compile(signature.pattern, re.DOTALL if signature.multiline else 0)
    except re.error as error:
        raise UsageError(
            f"playbook {signature.failure}: signature is not a regular expression: {error}",
            hint=f"correct the pattern {signature.pattern!r}",
        ) from error
