"""Long, coverage-guided fuzzing: `python tests/fuzz/campaign.py [PARSER ...] --minutes 10`.

Each parser gets so many minutes of CPU time (not of wall time: the machine may be busy) in a child,
with libFuzzer behind atheris. An input that raises what is not documented, takes longer than
HANG_S or more than MEMORY_MB is kept in `tests/fuzz/corpus/<parser>/` and ends with exit code 1.
What else was found to reach new code stays in `--work` between calls; `--merge` puts the smallest
set that reaches all of it into the repository.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("dflash", "watchdog", "tui")] + [str(HERE)]
HANG_S, MEMORY_MB, LONGEST_BYTES = 20, 1500, 32768
SLICE_S = 60
KEPT_BYTES, MOST_KEPT = 2048, 150


def main() -> int:
    """Fuzz what was asked for; 1 when something was found."""
    if sys.argv[1:2] == ["--child"]:
        return fuzz_here(sys.argv[2], sys.argv[3:])
    from parsers import PARSERS  # noqa: PLC0415 - in the child not before the hooks are set

    parser = argparse.ArgumentParser(description="Long, coverage-guided fuzzing.")
    parser.add_argument("parsers", nargs="*", metavar="PARSER", help=f"of {', '.join(PARSERS)}")
    parser.add_argument("--minutes", type=float, default=10.0, help="of CPU time a parser (10)")
    parser.add_argument("--work", type=Path, default=ROOT / ".fuzz", help="where to go on from")
    parser.add_argument("--merge", action="store_true", help="no fuzzing: shrink into the corpus")
    given = parser.parse_args()
    if unknown := set(given.parsers) - set(PARSERS):
        parser.error(f"no parser {', '.join(sorted(unknown))}; there are {', '.join(PARSERS)}")
    found = 0
    for name in given.parsers or PARSERS:
        if given.merge:
            found += merge(name, given.work)
        else:
            found += fuzz(name, given.minutes * 60, given.work)
    return 1 if found else 0


def fuzz_here(name: str, words: list[str]) -> int:
    """In the child: instrument, then never come back."""
    import atheris  # noqa: PLC0415 - of the extra `fuzz`; only the child needs it

    with atheris.instrument_imports(include=["dflash_watch", "dflash_events"]):
        from parsers import PARSERS  # noqa: PLC0415
    atheris.Setup([sys.argv[0], *words], PARSERS[name].read)
    atheris.Fuzz()
    return 0


def fuzz(name: str, cpu_s: float, work: Path) -> int:
    """One parser until its CPU time is spent; the number of findings."""
    from parsers import seeds  # noqa: PLC0415

    folder, kept, bad = work / name, HERE / "corpus" / name, work / f"{name}-found"
    shutil.rmtree(bad, ignore_errors=True)
    for one in (folder, kept, bad):
        one.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(name)):
        (folder / f"seed-{number}").write_bytes(seed)
    spent_s, started_s, runs, code, tail = 0.0, time.monotonic(), 0, 0, ""
    while spent_s < cpu_s and code == 0:
        options = [
            f"-max_total_time={max(1, min(SLICE_S, round(cpu_s - spent_s)))}",
            f"-timeout={HANG_S}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-max_len={LONGEST_BYTES}",
            f"-artifact_prefix={bad}/",
            "-print_final_stats=1",
        ]
        before_s = children_cpu_s()
        code, tail, count = child(name, [*options, str(folder), str(kept)])
        spent_s += children_cpu_s() - before_s
        runs += count
    findings = sorted(bad.iterdir())
    for one in findings:
        shutil.copy(one, kept / one.name)
    told = f"{len(findings)} found" if findings else "nothing found"
    cost = f"{spent_s:6.0f} s of CPU, {time.monotonic() - started_s:6.0f} s"
    print(f"{name:<14} {cost}, {runs:>10} inputs: {told}", flush=True)
    if code != 0:
        print(tail, flush=True)
    return len(findings) + (code != 0 and not findings)


def merge(name: str, work: Path) -> int:
    """The smallest set that reaches the same code, beside what was found."""
    kept = HERE / "corpus" / name
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        code, tail, _ = child(
            name, ["-merge=1", f"-max_len={KEPT_BYTES}", folder, f"{work / name}"]
        )
        if code != 0:
            print(tail)
            return 1
        for one in kept.iterdir():
            if not one.name.startswith(("crash-", "timeout-", "oom-")):
                one.unlink()
        smallest = sorted(Path(folder).iterdir(), key=lambda one: (one.stat().st_size, one.name))
        for one in smallest[:MOST_KEPT]:
            shutil.copy(one, kept / one.name[:16])
    print(f"{name}: {len(list(kept.iterdir()))} kept")
    return 0


def child(name: str, words: list[str]) -> tuple[int, str, int]:
    """Exit code, the end of what was said, and how many inputs were tried."""
    done = subprocess.run(
        [sys.executable, str(HERE / "campaign.py"), "--child", name, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    lines = done.stdout.splitlines()
    counted = [line.split()[-1] for line in lines if "number_of_executed_units" in line]
    told = [line for line in lines if not line.startswith(("#", "INFO", "WARNING"))]
    return done.returncode, "\n".join(told[-60:]), int(counted[-1]) if counted else 0


def children_cpu_s() -> float:
    """CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
