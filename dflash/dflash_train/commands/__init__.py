"""Commands beside training and resuming: one module each, loaded when it is asked for.

A module has `build_parser() -> ArgumentParser` (made with `cli.Parser`, so that usage errors are
one line and exit 64) and `run(given: Namespace) -> int`, the exit code.
"""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "evaluate": "dflash_train.commands.evaluate",
    "export": "dflash_train.commands.export",
    "plan": "dflash_train.commands.plan",
    "prepare": "dflash_train.commands.prepare",
}
"""Command to module."""
