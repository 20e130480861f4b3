"""Texts that prove a failure, from the playbooks' data, found in lines, tracebacks and stacks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

import msgspec

from dflash_watch.errors import UsageError
from dflash_watch.readers.facts import Signature
from dflash_watch.readers.patterns import fixed_parts

HEAD = 4
"""Letters of a fixed text by which a line is looked through once for all signatures."""


class Match(msgspec.Struct, frozen=True):
    """A signature and the line that matched."""

    signature: Signature
    text: str


class Rule(msgspec.Struct, frozen=True):
    """A signature ready to be searched."""

    signature: Signature
    pattern: re.Pattern[str]
    keys: tuple[str, ...]
    """Lower-case texts of which each match holds one; empty: none are known."""

    def may_match(self, low: str) -> bool:
        """A cheap look at lower-case text before the costly one."""
        return not self.keys or any(key in low for key in self.keys)


class Matcher:
    """Compiled signatures of one place.

    Args:
        signatures: from the playbooks, any `where`.
        where: `log`, `end` or `stacks`; others are left out.

    Raises:
        UsageError: a pattern is not a regular expression; names the playbook.
    """

    def __init__(self, signatures: Iterable[Signature], where: str = "log") -> None:
        rules = [_rule(one) for one in signatures if one.where == where]
        self._single = [rule for rule in rules if not rule.signature.multiline]
        self._multi = [rule for rule in rules if rule.signature.multiline]
        self._always: list[int] = []
        """Places of rules that no fixed text announces."""
        self._announced: dict[str, list[int]] = {}
        """First letters of a fixed text -> places of the rules that it announces."""
        for place, rule in enumerate(self._single):
            if not rule.keys or min(map(len, rule.keys)) < HEAD:
                self._always.append(place)
                continue
            for head in {key[:HEAD] for key in rule.keys}:
                self._announced.setdefault(head, []).append(place)

    def in_line(self, line: str) -> list[Match]:
        """Signatures of a plain line; no more than one a failure."""
        low = line.lower()
        found: dict[str, Match] = {}
        for rule in self._announced_in(low):
            failure = rule.signature.failure
            if failure not in found and rule.may_match(low) and rule.pattern.search(line):
                found[failure] = Match(rule.signature, line)
        return list(found.values())

    def _announced_in(self, low: str) -> list[Rule]:
        """Rules worth a look, in their order: of a hundred hardly one for an ordinary line."""
        heads = {low[at : at + HEAD] for at in range(len(low) - HEAD + 1)}
        places = set(self._always)
        for head in self._announced.keys() & heads:
            places.update(self._announced[head])
        return [self._single[place] for place in sorted(places)]

    def in_text(self, text: str) -> list[Match]:
        """Signatures of a traceback or stack: each line, and the whole for `multiline`.

        The last line counts that matches: the exception, not the source line that raised it.
        """
        found: dict[str, Match] = {}
        for line in text.splitlines():
            for match in self.in_line(line.strip()):
                found[match.signature.failure] = match
        for match in self.in_whole(text):
            found.setdefault(match.signature.failure, match)
        return list(found.values())

    def in_whole(self, text: str) -> list[Match]:
        """Signatures that need several lines, in their order; one a failure."""
        low = text.lower()
        found: dict[str, Match] = {}
        for rule in self._multi:
            failure = rule.signature.failure
            if failure in found or not rule.may_match(low):
                continue
            hit = rule.pattern.search(text)
            if hit:
                found[failure] = Match(rule.signature, _last_line(text, hit.end()))
        return list(found.values())


def _last_line(text: str, end: int) -> str:
    """The whole line in which a match ends."""
    begin = text.rfind("\n", 0, max(end - 1, 0)) + 1
    stop = text.find("\n", max(end - 1, 0))
    return text[begin : stop if stop >= 0 else len(text)].strip()


@cache
def _rule(signature: Signature) -> Rule:
    flags = re.DOTALL if signature.multiline else 0
    try:
        pattern = re.compile(signature.pattern, flags)
    except re.error as error:
        raise UsageError(
            f"playbook {signature.failure}: signature is not a regular expression: {error}",
            hint=f"correct the pattern {signature.pattern!r}",
        ) from error
    return Rule(signature, pattern, fixed_parts(signature.pattern))
