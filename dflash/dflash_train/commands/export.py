"""`dflash-train export`: a drafter in the layout of serving engines, and how they read one."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from dflash_train.cli import Parser
from dflash_train.errors import EXIT_DONE, EXIT_FAILED, UsageError
from dflash_train.layouts.geometry import LAYOUTS
from dflash_train.output import put

EXAMPLES = """\
examples:
  dflash-train export --run-dir runs/demo --format zlab --out drafter
  dflash-train export --from drafter --format speculators --out other --verifier Qwen/Qwen3-8B
  dflash-train export --check drafter

exit codes: 0 written, or every row of --check loads; 1 a row does not; 64 usage
"""


def build_parser() -> argparse.ArgumentParser:
    """All arguments of `export`."""
    parser = Parser(
        prog="dflash-train export",
        description="Write a drafter as vLLM and SGLang load it, or say how they would read one.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--run-dir", type=Path, metavar="DIR", help="the run; its newest whole checkpoint")
    add("--step", type=int, metavar="N", help="that checkpoint instead")
    add(
        "--from", type=Path, metavar="DIR", dest="source", help="a published drafter, either layout"
    )
    add("--format", choices=LAYOUTS, help="zlab: vLLM, SGLang, transformers; speculators: vLLM")
    add("--out", type=Path, metavar="DIR", help="folder to write; must not exist")
    add("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="of the tensors")
    add("--verifier", metavar="PATH_OR_ID", help="name of the target to write (speculators)")
    add("--check", type=Path, metavar="DIR", help="print how a folder will be read")
    add("--target", metavar="PATH_OR_ID", help="with --check: compare with this target")
    add("--json", action="store_true", help="with --check: one object a row")
    return parser


def run(given: argparse.Namespace) -> int:
    """Write, or check; the exit code."""
    if given.check is not None:
        return _check(given.check, given.target, as_json=given.json)
    if (given.run_dir is None) == (given.source is None):
        raise UsageError("nothing to export", hint="give --run-dir DIR, --from DIR or --check DIR")
    if given.format is None or given.out is None:
        raise UsageError("--format, --out: missing", hint="e.g. --format zlab --out drafter")
    if given.out.exists():
        raise UsageError(f"--out {given.out}: exists already", hint="give a folder that does not")
    return _write(given)


def _write(given: argparse.Namespace) -> int:
    from dflash_train.layouts import export  # noqa: PLC0415  (torch: seconds; not for --help)

    request = export.Request(
        layout=given.format, out=given.out, dtype=given.dtype, verifier=given.verifier
    )
    if given.run_dir is not None:
        export.export_run(given.run_dir, given.step, request)
    else:
        export.convert(given.source, request)
    put(f"written: {given.out} ({given.format} layout, {given.dtype})\n")
    return _check(given.out, None, as_json=given.json)


def _check(folder: Path, target: str | None, *, as_json: bool) -> int:
    from dflash_train.layouts.from_run import read_target  # noqa: PLC0415  (see _write)
    from dflash_train.layouts.table import table_of  # noqa: PLC0415

    rows = table_of(folder, read_target(target) if target else None)
    bad = [row for row in rows if row.state == "bad"]
    if as_json:
        lines = [json.dumps(dataclasses.asdict(row)) for row in rows]
    else:
        lines = _table([(row.item, row.observed, row.state, row.reading) for row in rows])
        ends = f"{len(bad)} of {len(rows)} rows do not load as trained" if bad else "all rows load"
        lines.append(f"{folder}: {ends}")
    put("\n".join(lines) + "\n")
    return EXIT_FAILED if bad else EXIT_DONE


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns as wide as what stands in them; the last is free."""
    rows = [("item", "observed", "", "how it is read"), *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return [
        "  ".join((*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]))
        for row in rows
    ]
