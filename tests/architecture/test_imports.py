"""The import law as a fresh interpreter meets it, and what may travel to the other side."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import pythons

ROOT = Path(__file__).resolve().parents[2]
AGENT = ROOT / "watchdog" / "dflash_watch" / "agent"
EVENTS = ROOT / "dflash" / "dflash_events"
FOLDERS = [str(ROOT / name) for name in ("dflash", "watchdog", "tui")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(FOLDERS)}
HEAVY = {"torch", "textual", "transformers", "paramiko", "msgspec", "rich", "asyncio", "numpy"}


def run_python(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def modules_after(statement: str) -> set[str]:
    shown = run_python(f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))")
    assert shown.returncode == 0, shown.stderr
    return {name.partition(".")[0] for name in json.loads(shown.stdout.splitlines()[-1])}


def test_importing_the_command_line_loads_nothing_heavy():
    assert modules_after("import dflash_watch.cli").isdisjoint(HEAVY)


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["check", "--help"]])
def test_version_and_help_load_nothing_heavy(words):
    statement = "from dflash_watch.cli import main\ntry: main(" + repr(words) + ")\n"
    statement += "except SystemExit: pass\nprint()"
    script = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    shown = run_python(script)
    loaded = {name.partition(".")[0] for name in json.loads(shown.stdout.splitlines()[-1])}
    assert loaded.isdisjoint(HEAVY)


def test_the_run_directory_contract_loads_only_the_standard_library():
    loaded = modules_after("import dflash_events")
    ours = loaded - set(sys.stdlib_module_names) - {"dflash_events"}
    before = modules_after("pass")
    assert ours <= before


def imported_names(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


def agent_sources() -> list[Path]:
    return sorted(AGENT.rglob("*.py"))


@pytest.mark.parametrize("path", agent_sources(), ids=lambda path: str(path.relative_to(AGENT)))
def test_the_agent_imports_only_what_travels_with_it(path):
    allowed = set(sys.stdlib_module_names) | {"dflash_events", "pynvml", "__future__"}
    for name in imported_names(path):
        inside = name.startswith(("dflash_watch.agent", ".")) or name == "dflash_watch"
        assert inside or name.partition(".")[0] in allowed, f"{path.name} imports {name}"


@pytest.mark.parametrize("version", [(3, 8), (3, 9)])
def test_what_travels_to_the_other_side_is_syntax_of_old_pythons(version):
    for path in [*agent_sources(), *sorted(EVENTS.rglob("*.py"))]:
        ast.parse(path.read_text(), filename=str(path), feature_version=version)


@pytest.mark.parametrize("version", pythons.VERSIONS)
def test_what_travels_to_the_other_side_compiles_under_the_pythons_found_there(version):
    python = pythons.python(version)
    script = "import sys\nfor path in sys.stdin.read().split('\\n'):\n"
    script += "    compile(open(path, encoding='utf-8').read(), path, 'exec')"
    paths = [str(path) for path in [*agent_sources(), *sorted(EVENTS.rglob("*.py"))]]
    shown = subprocess.run(
        [python, "-c", script], input="\n".join(paths), capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
