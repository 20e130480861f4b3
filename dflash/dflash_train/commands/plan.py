"""`dflash-train plan`: what training needs, and whether it would learn the right thing."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from dflash_train.cli import build_parser as training_parser
from dflash_train.cli import requested_config
from dflash_train.config import Config
from dflash_train.errors import EXIT_DONE, EXIT_USAGE
from dflash_train.output import put
from dflash_train.plan.check import CHECKS, Check, table
from dflash_train.plan.steps import Steps

EXAMPLES = """\
examples:
  dflash-train plan --preset tiny
  dflash-train plan --target models/target --run-dir runs/a
  dflash-train plan --preset tiny --json loss.num_anchors=64

exit codes: 0 training may start, 64 a check failed or the request cannot be read
"""


def build_parser() -> argparse.ArgumentParser:
    """The arguments of training, and the form of the answer."""
    parser = training_parser()
    parser.prog = "dflash-train plan"
    parser.description = "Look at everything that training looks at before its first step."
    parser.epilog = EXAMPLES
    parser.add_argument("--json", action="store_true", help="one object instead of the table")
    return parser


def run(given: argparse.Namespace) -> int:
    """Examine; the exit code.

    Raises:
        DflashError: the request cannot be read, or the target cannot be loaded.
    """
    config = requested_config(given)
    run_dir = given.run_dir or Path("runs")
    checks, measured = _examine(config, run_dir)
    refused = [check.name for check in checks if check.refuses]
    if given.json:
        whole = {
            "schema": 1,
            "ok": not refused,
            "checks": [check.as_mapping() for check in checks],
            "measured": measured,
        }
        put(json.dumps(whole) + "\n")
    else:
        end = f"refused by {', '.join(refused)}" if refused else "training may start"
        put(f"{table(checks)}\n{end}\n")
    return EXIT_USAGE if refused else EXIT_DONE


def _examine(config: Config, run_dir: Path) -> tuple[tuple[Check, ...], dict[str, object]]:
    import torch  # noqa: PLC0415  (seconds; not for --help)

    from dflash_train.devices import check_devices  # noqa: PLC0415
    from dflash_train.materials import TARGET_NAME, make_materials  # noqa: PLC0415
    from dflash_train.plan.bench import make_bench  # noqa: PLC0415
    from dflash_train.plan.examine import examine  # noqa: PLC0415
    from dflash_train.target_model import say_less  # noqa: PLC0415

    say_less()
    torch.set_num_threads(config.pipeline.num_threads)
    check_devices(config)
    sys.stderr.write("plan: loading the target and its data\n")
    with tempfile.TemporaryDirectory() as scratch:
        place = run_dir if (run_dir / TARGET_NAME).exists() else Path(scratch)
        materials = make_materials(config, place, lambda _: None)
        bench = make_bench(config, run_dir, materials)
        with Steps("plan", len(CHECKS)) as steps:
            return examine(bench, steps.begin), bench.measured
