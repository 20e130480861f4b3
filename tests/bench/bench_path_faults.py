"""Every fault of the way, in one watch: what is said of it, and how soon the view is back.

    python tests/bench/bench_path_faults.py            # all
    python tests/bench/bench_path_faults.py 'frozen'   # those whose name matches

Needs root, sshd and LXC. Prints the table and one JSON line; exit 1 when a fault was not endured
or the view came back later than the target.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("dflash", "watchdog", "tui", "tests")]

from e2e.paths.faults import APART, FAULTS  # noqa: E402  the path comes first
from e2e.paths.ground import Fault, Ground, Row, Tape, check_counted_once, endure, settle  # noqa: E402 - the path comes first
from e2e.places.bench import proxmox  # noqa: E402 - the path comes first
from e2e.watched import Watched  # noqa: E402 - the path comes first

TARGET_S = 10.0


def show(rows: list[Row]) -> str:
    """The table as Markdown."""
    out = ["| fault | made by | what is said | blind, s | back, s |", "|---|---|---|---|---|"]
    for row in rows:
        blind = "-" if row.blind_s is None else f"{row.blind_s:.1f}"
        said = row.said.replace("|", "\\|")
        out.append(f"| {row.name} | {row.made} | {said} | {blind} | {row.back_s:.1f} |")
    return "\n".join(out)


def run(ground: Ground, faults: list[Fault]) -> tuple[list[Row], list[str]]:
    """Rows, and the names of those that failed; after one the watch is begun anew."""
    rows: list[Row] = []
    failed: list[str] = []
    watch = tape = None
    for fault in faults:
        if watch is None or tape is None or fault in APART:
            if watch is not None and tape is not None:
                print(f"{check_counted_once(ground, tape)} frames, none twice", file=sys.stderr)
                watch.stop()
            watch = ground.watch(f"watch-{len(rows)}-{len(failed)}", fault)
            tape = Tape(watch.capture)
        try:
            settle(tape)
            rows.append(endure(ground, watch, tape, fault))
            print(f"{rows[-1]}", file=sys.stderr, flush=True)
        except AssertionError:
            traceback.print_exc()
            failed.append(fault.name)
            watch.stop()
            watch = None
        if watch is None:
            ground.restore()
            ground.container.restore()
            ground.start_run()
    if watch is not None and tape is not None:
        print(f"{check_counted_once(ground, tape)} frames, none twice", file=sys.stderr)
    return rows, failed


def main() -> int:
    """Run, print, judge."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    faults = [fault for fault in (*FAULTS, *APART) if re.search(wanted, fault.name)]
    with tempfile.TemporaryDirectory() as folder, proxmox() as places:
        watched = Watched(places, Path(folder))
        ground = Ground(watched)
        try:
            rows, failed = run(ground, faults)
        finally:
            ground.close()
            watched.end()
    worst_s = max((row.back_s for row in rows), default=0.0)
    print(show(rows))
    print(f"\nworst {worst_s:.1f} s (target {TARGET_S:.0f} s); not endured: {failed or 'none'}")
    told = [row._asdict() for row in rows]
    print(json.dumps({"bench": "path-faults", "worst_s": worst_s, "failed": failed, "rows": told}))
    return 1 if failed or worst_s > TARGET_S else 0


if __name__ == "__main__":
    sys.exit(main())
