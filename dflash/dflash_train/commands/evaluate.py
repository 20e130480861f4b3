"""`dflash-train evaluate`: true acceptance of a drafter on prompts it was not trained on."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from dflash_train.cli import Parser
from dflash_train.errors import EXIT_DONE, EXIT_FAILED, UsageError
from dflash_train.output import put

EXAMPLES = """\
examples:
  dflash-train evaluate --run-dir runs/demo
  dflash-train evaluate --run-dir runs/a --data data/other --device cuda:0 eval.prompts=64
  dflash-train evaluate --checkpoint runs/a/checkpoints/step-00001000 --json --at-least 3
  dflash-train evaluate --drafter published/drafter --target models/target --data data/chats

exit codes: 0 evaluated, 1 failed or below --at-least, 64 usage
"""


def build_parser() -> argparse.ArgumentParser:
    """All arguments of `evaluate`."""
    parser = Parser(
        prog="dflash-train evaluate",
        description="Decode held-out prompts, draft by draft, and count what is accepted.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("settings", nargs="*", metavar="section.key=value", help="e.g. eval.new_tokens=256")
    add("--run-dir", type=Path, metavar="DIR", help="its newest checkpoint")
    add("--checkpoint", type=Path, metavar="DIR", help="one checkpoint of a run")
    add("--drafter", type=Path, metavar="DIR", help="a published drafter, with --target")
    add("--target", metavar="PATH_OR_ID", help="of a published drafter")
    add("--data", type=Path, metavar="DIR", help="shards of prepare; else what the run held out")
    add("--device", default="cpu", help="where target and drafter work (cpu)")
    add("--at-least", type=float, metavar="LENGTH", help="exit 1 below this acceptance length")
    add("--json", action="store_true", help="one object instead of a table")
    return parser


def run(given: argparse.Namespace) -> int:
    """Evaluate; the exit code."""
    named = [given.run_dir, given.checkpoint, given.drafter]
    if sum(path is not None for path in named) != 1:
        raise UsageError(
            "nothing to evaluate, or several things",
            hint="give one of --run-dir, --checkpoint and --drafter",
        )
    if (given.drafter is None) != (given.target is None):
        raise UsageError(
            "--target: goes with --drafter, and --drafter with it",
            hint="a run knows its target; a published drafter needs --target PATH_OR_ID",
        )
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    from dflash_train import evaluation_text, subjects  # noqa: PLC0415  (torch: seconds)

    if given.drafter is None:
        subject = subjects.of_run(given.run_dir, given.checkpoint)
    elif given.data is None:
        raise UsageError("--data: missing", hint="a published drafter has held nothing out")
    else:
        subject = subjects.of_published(given.drafter, given.target)
    subject = subjects.with_settings(subject, given.settings, given.data, given.device)
    found = subjects.evaluate(subject, all_documents=given.data is not None)
    if given.json:
        record = {"subject": subject.name, "step": subject.step, **evaluation_text.record(found)}
        put(json.dumps(record) + "\n")
    else:
        put("\n".join([subject.name, *evaluation_text.table(found)]) + "\n")
    length = found.acceptance.length or 0.0
    if given.at_least is None or length >= given.at_least:
        return EXIT_DONE
    sys.stderr.write(
        f"dflash-train: acceptance length {length:.2f}, expected {given.at_least:g} or more\n"
    )
    return EXIT_FAILED
