"""From a parsed command line to the records everything else takes."""

from __future__ import annotations

from argparse import Namespace

from dflash_watch.commands.choice import build_place, build_target
from dflash_watch.commands.values import parse_number, parse_rate, parse_roles
from dflash_watch.model import Record, RunOptions
from dflash_watch.place import Place, TargetChoice


class Request(Record, frozen=True, kw_only=True):
    """Where to look, at which run, and what the person said about it."""

    place: Place
    target: TargetChoice
    options: RunOptions
    every_s: float = 1.0

    def what(self) -> str:
        """For people: `10.1.2.6 · ct 200`, `this machine · pid 4711`."""
        chosen = [
            f"{name.removeprefix('run_')} {value}"
            for name, value in zip(self.target._fields, self.target, strict=True)
            if value is not None
        ]
        return " · ".join([self.place.label(), *chosen])


def build_request(given: Namespace) -> Request:
    """The request a command line means.

    Raises:
        UsageError: a value is wrong; says which, what was expected, and what to write.
    """
    place = build_place(given)
    target = build_target(given)
    options = RunOptions(
        name=given.name,
        roles=parse_roles(given.roles) if given.roles is not None else {},
        expect_tokens_per_s=(
            parse_rate(given.expect_tokens_per_s) if given.expect_tokens_per_s is not None else None
        ),
        watched_log=target.log,
        where=place.label(),
    )
    every_s = parse_number("--every-s", getattr(given, "every_s", "1"), 0.2, 60.0)
    return Request(place=place, target=target, options=options, every_s=every_s)
