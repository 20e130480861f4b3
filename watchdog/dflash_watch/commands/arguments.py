"""The command line as argparse sees it; imports nothing that takes time to load.

Options are the same for every command that looks at a run, so that what was typed once works again.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn

from dflash_watch.commands.values import did_you_mean
from dflash_watch.errors import UsageError

COMMANDS = {
    "check": "one look, exit code as a Nagios plugin: 0 fine, 1 warning, 2 critical, 3 cannot tell",
    "dump": "stacks of the run now, with the reading of them",
    "diagnose": "what pasted evidence says: log, stacks, GPUs, processes; connects to nothing",
    "serve": "watch without a terminal; dashboards attach and leave",
    "attach": "the dashboard, or lines, of a watcher that serves",
    "replay": "the same engine over a recording or an incident's window",
    "incidents": "list what was kept, or read one",
    "explain": "a playbook, a verdict or a symptom, or the list",
    "fleet": "many runs in one process, told in lines, the worst first",
    "rights": "what a watching runs on a host, as a gate for an SSH key; connects to nothing",
    "drill": "break a small run on purpose and see that it is caught",
}
PROGRAM = "dflash-watch"
USAGE = {
    None: f"{PROGRAM} [COMMAND] [options]",
    "check": f"{PROGRAM} check [options]",
    "dump": f"{PROGRAM} dump [options]",
    "serve": f"{PROGRAM} serve [options]",
    "rights": f"{PROGRAM} rights [options]",
}
EPILOG = """commands (first word; each has its own --help):
""" + "\n".join(f"  {name:<10} {what}" for name, what in COMMANDS.items())


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=36, width=100)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line with a next step, exit code 64."""

    def error(self, message: str) -> NoReturn:
        """Raise; argparse would exit with 2, which monitoring reads as critical."""
        raise UsageError(message.replace("argument ", "", 1), hint=f"see {self.prog} --help")

    def options(self) -> list[str]:
        """All long options that a person may type."""
        return [
            option
            for action in self._actions
            for option in action.option_strings
            if option.startswith("--") and action.help is not argparse.SUPPRESS
        ]

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse all of it.

        Raises:
            UsageError: something is unknown; names the nearest option.
        """
        namespace, unknown = self.parse_known_args(list(argv))
        if unknown:
            raise self._refusal(unknown[0])
        return namespace

    def _refusal(self, word: str) -> UsageError:
        if word.startswith("-"):
            name = word.partition("=")[0]
            hint = did_you_mean(name, self.options()) or f"see {self.prog} --help"
            return UsageError(f"unknown option {name}", hint=hint)
        if word in COMMANDS:
            return UsageError(
                f"'{word}' stands after the options", hint=f"write {PROGRAM} {word} [options]"
            )
        return UsageError(f"'{word}' is one word too many", hint=f"see {self.prog} --help")


def _parser(command: str | None, description: str) -> Parser:
    return Parser(
        prog=f"{PROGRAM} {command}" if command else PROGRAM,
        usage=USAGE.get(command),
        description=description,
        epilog=None if command else EPILOG,
        formatter_class=_Help,
        allow_abbrev=False,
    )


def _add_where(parser: Parser) -> None:
    where = parser.add_argument_group("where it runs")
    where.add_argument("--host", metavar="[USER@]HOST[:PORT]", help="over SSH, as ssh_config says")
    entry = where.add_mutually_exclusive_group()
    entry.add_argument("--ct", metavar="ID", help="Proxmox or LXC container")
    entry.add_argument("--docker", metavar="NAME", help="Docker container")
    entry.add_argument("--podman", metavar="NAME", help="Podman container")
    entry.add_argument("--kubectl", metavar="[NS/]POD", help="Kubernetes pod")
    entry.add_argument("--exec", metavar="'PREFIX ...'", help="any command that leads inside")
    where.add_argument("--ssh-config", metavar="FILE", help="instead of ~/.ssh/config")
    where.add_argument(
        "--accept-new-host-key", action="store_true", help="trust a host seen for the first time"
    )


def _add_which(parser: Parser) -> None:
    group = parser.add_argument_group("which run (default: the newest one found)")
    which = group.add_mutually_exclusive_group()
    which.add_argument("--run-dir", metavar="DIR", help="its run directory, or the folder above")
    which.add_argument("--pid", metavar="PID", help="process, as counted inside the container")
    which.add_argument("--match", metavar="REGEX", help="process whose command line matches")
    which.add_argument("--log", metavar="PATH", help="whoever writes this log")
    which.add_argument("--tmux", metavar="SESSION", help="what runs in this tmux session")
    what = parser.add_argument_group("what it is (for runs that write no run.json)")
    what.add_argument("--name", metavar="TEXT", help="name shown for the run")
    what.add_argument("--roles", metavar="target=0-4,drafter=5-7", help="GPUs by role")
    what.add_argument("--expect-tokens-per-s", metavar="RATE", help="14200 or 14.2k")


def _add_keeping(parser: Parser) -> None:
    keep = parser.add_argument_group("what is kept and done")
    keep.add_argument("--record", metavar="FILE", help="keep every record, for replay (.gz packs)")
    keep.add_argument("--incidents", metavar="DIR", help="where incidents go")
    keep.add_argument("--on-stall", metavar="CMD", help="run once an incident (stalled, crashed)")
    keep.add_argument("--on-stall-limit-s", metavar="S", default="60", help="then it is ended (60)")
    keep.add_argument(
        "--no-host-agent", action="store_true", help="look only inside, not at the container's host"
    )
    keep.add_argument(
        "--dry-run", action="store_true", help="only look: no stacks, hook or folder; say so"
    )
    keep.add_argument("--until-end", action="store_true", help="end when the run has ended")


def _add_output(parser: Parser) -> None:
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--plain", action="store_true", help="lines, no dashboard")
    output.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--publish-fd", type=int, help=argparse.SUPPRESS)


def watch_parser() -> Parser:
    """Of `dflash-watch` without a command."""
    parser = _parser(None, "Says what a training run is doing, why, and what to do next.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("--demo", action="store_true", help="every state, without any run")
    parser.add_argument("--every-s", metavar="S", default="1", help="seconds between looks (1)")
    # Of a watchdog that a trainer starts: others may attach, and no trouble with that ends it.
    parser.add_argument("--attachable", action="store_true", help=argparse.SUPPRESS)
    _add_output(parser)
    _add_where(parser)
    _add_which(parser)
    _add_keeping(parser)
    return parser


def rights_parser() -> Parser:
    """Of `dflash-watch rights`."""
    parser = _parser("rights", COMMANDS["rights"])
    parser.add_argument("--json", action="store_true", help="the commands with their hashes")
    parser.add_argument("--no-host-agent", action="store_true", help="nothing on the host itself")
    _add_where(parser)
    return parser


def serve_parser() -> Parser:
    """Of `dflash-watch serve`."""
    parser = _parser("serve", COMMANDS["serve"])
    parser.add_argument("--every-s", metavar="S", default="1", help="seconds between looks (1)")
    lines = parser.add_mutually_exclusive_group()
    lines.add_argument("--plain", action="store_true", help="lines on standard error (always so)")
    lines.add_argument("--json", action="store_true", help="instead: objects on standard output")
    _add_where(parser)
    _add_which(parser)
    _add_keeping(parser)
    return parser


def attach_parser() -> Parser:
    """Of `dflash-watch attach`."""
    parser = _parser("attach", COMMANDS["attach"])
    parser.add_argument(
        "server", metavar="NAME", nargs="?", help="of the watcher; the only one needs no name"
    )
    _add_output(parser)
    return parser


def check_parser() -> Parser:
    """Of `dflash-watch check`."""
    parser = _parser("check", COMMANDS["check"])
    parser.add_argument("--json", action="store_true", help="one object instead of one line")
    parser.add_argument("--window-s", metavar="S", default="2", help="between the two looks (2)")
    parser.add_argument("--deadline-s", metavar="S", default="30", help="give up after (30)")
    _add_where(parser)
    _add_which(parser)
    return parser


def dump_parser() -> Parser:
    """Of `dflash-watch dump`."""
    parser = _parser("dump", COMMANDS["dump"])
    parser.add_argument("--json", action="store_true", help="the samples as JSON, one a line")
    parser.add_argument("--samples", metavar="N", default="2", help="samples a process (2)")
    parser.add_argument("--apart-s", metavar="S", default="1", help="seconds between samples (1)")
    parser.add_argument("--deadline-s", metavar="S", default="30", help="give up after (30)")
    parser.add_argument(
        "--native", action="store_true", help="C frames too; stops the process for some 50 ms"
    )
    _add_where(parser)
    _add_which(parser)
    return parser


def replay_parser() -> Parser:
    """Of `dflash-watch replay`."""
    parser = _parser("replay", COMMANDS["replay"])
    parser.add_argument(
        "capture", metavar="CAPTURE", help="of --record, or an incident: its folder, name, `last`"
    )
    parser.add_argument("--incidents", metavar="DIR", help="where incidents lie")
    parser.add_argument("--speed", metavar="N", help="times real time (lines: at once; screen: 10)")
    _add_output(parser)
    return parser


def incidents_parser() -> Parser:
    """Of `dflash-watch incidents`."""
    parser = _parser("incidents", COMMANDS["incidents"])
    parser.add_argument("show", metavar="SHOW", nargs="?", help="name, part of it, or `last`")
    parser.add_argument("--incidents", metavar="DIR", help="where incidents lie")
    parser.add_argument(
        "--journal", action="store_true", help="what was done to which machine, and what came of it"
    )
    parser.add_argument("--json", action="store_true", help="one object an incident or entry")
    return parser


def explain_parser() -> Parser:
    """Of `dflash-watch explain`."""
    parser = _parser("explain", COMMANDS["explain"])
    parser.add_argument(
        "word", metavar="WORD", nargs="?", help="a failure, or another word of the screen"
    )
    return parser


def diagnose_parser() -> Parser:
    """Of `dflash-watch diagnose`."""
    parser = _parser("diagnose", COMMANDS["diagnose"])
    parser.add_argument(
        "folder", metavar="DIR", nargs="?",
        help="log.txt, stacks.txt, gpus.csv or nvidia-smi.txt, ps.txt, context.yaml, any of them",
    )  # fmt: skip
    parser.add_argument("--log", metavar="F", help="the log, of any size")
    parser.add_argument("--stacks", metavar="F", help="py-spy, pystack, faulthandler or gdb")
    parser.add_argument("--gpus", metavar="F", help="nvidia-smi: table or CSV")
    parser.add_argument("--ps", metavar="F", help="ps or top -b")
    parser.add_argument("--context", metavar="F", help="YAML: what was observed, roles")
    parser.add_argument("--json", action="store_true", help="one object instead of text")
    return parser


def fleet_parser() -> Parser:
    """Of `dflash-watch fleet`."""
    parser = _parser("fleet", COMMANDS["fleet"])
    parser.add_argument("file", metavar="FILE", help="TOML: a table [[run]] each, options as keys")
    parser.add_argument("--json", action="store_true", help="one object a run and change")
    parser.add_argument("--table-every-s", metavar="S", default="300", help="all rows again (300)")
    parser.add_argument("--once", action="store_true", help="one look at each, then the exit code")
    parser.add_argument("--window-s", metavar="S", default="2", help="of --once: two looks (2)")
    parser.add_argument("--until-end", action="store_true", help="end when all runs have ended")
    return parser


def drill_parser() -> Parser:
    """Of `dflash-watch drill`."""
    parser = _parser("drill", COMMANDS["drill"])
    parser.add_argument("fault", metavar="FAULT", nargs="*", help="names, or `all`")
    parser.add_argument("--list", action="store_true", help="what can be broken, and what is right")
    parser.add_argument("--json", action="store_true", help="one object a drill")
    parser.add_argument("--keep", metavar="DIR", help="keep what each drill wrote")
    return parser


def split_command(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """The command, None for watching, and the rest.

    Raises:
        UsageError: the first word is no command.
    """
    if not argv or argv[0].startswith("-"):
        return None, list(argv)
    word = argv[0]
    if word in COMMANDS:
        return word, list(argv[1:])
    hint = did_you_mean(word, COMMANDS)
    if hint is None and re.search(r"[.@:\d]", word):
        hint = f"for a host write {PROGRAM} --host {word}"
    raise UsageError(
        f"unknown command '{word}'", hint=hint or f"commands are {', '.join(COMMANDS)}"
    )
