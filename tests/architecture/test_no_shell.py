"""No shell reads what others wrote, nothing listens, and only gates write to a terminal: by source.

What may not be written is not written anywhere: the tests read the syntax trees of all packages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WATCHER = sorted((ROOT / "watchdog").rglob("*.py")) + sorted((ROOT / "tui").rglob("*.py"))
ALL = WATCHER + sorted((ROOT / "dflash").rglob("*.py"))
SHELLS = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"}
QUOTES = ROOT / "watchdog/dflash_watch/transport/quoting.py"
OWN_LINE = ROOT / "watchdog/dflash_watch/transport/ssh_connect.py"
"""ProxyCommand is a shell line of the person's own ssh_config; ssh hands it to a shell as well."""
MAY_LISTEN = {
    "watchdog/dflash_watch/serving/folder.py",
}
"""A private socket in a folder of its owner; never a port."""
MAY_WRITE = {
    "tui/dflash_tui/__main__.py",  # the demo, which sees nobody's text
    "watchdog/dflash_watch/cli.py",
    "watchdog/dflash_watch/commands/context.py",
    "watchdog/dflash_watch/commands/notices.py",
    "watchdog/dflash_watch/standard.py",
}
"""The gates: what passes them is printable."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"))))


def calls(path: Path) -> Iterator[tuple[ast.Call, str, str]]:
    """Each call with the last word of what is called, and the word before it."""
    for node in nodes(path):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute):
            before = called.value
            yield node, called.attr, before.id if isinstance(before, ast.Name) else ""
        elif isinstance(called, ast.Name):
            yield node, called.id, ""


def places(found: Iterable[tuple[Path, ast.AST]]) -> list[str]:
    return [f"{name(path)}:{getattr(node, 'lineno', 0)}" for path, node in found]


def test_no_shell_is_asked_to_read_a_string() -> None:
    bad = []
    for path in ALL:
        for node, last, before in calls(path):
            shell = [word.value for word in node.keywords if word.arg == "shell"]
            is_plain = all(isinstance(one, ast.Constant) and one.value is False for one in shell)
            if not is_plain or (last in SHELLS and before in ("os", "subprocess", "asyncio", "")):
                bad.append((path, node))
    assert places(bad) == []


def made_up(node: ast.expr) -> bool:
    """A text put together at run time: an f-string with values, `+`, `%`, `.format`, `.join`."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(one, ast.FormattedValue) for one in node.values)
    if isinstance(node, ast.BinOp):
        return True
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in ("format", "join", "replace")


def scripts(found: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """What stands behind `-c` in any list or tuple of words."""
    for node in found:
        if isinstance(node, ast.List | ast.Tuple):
            for before, word in zip(node.elts, node.elts[1:], strict=False):
                if isinstance(before, ast.Constant) and before.value in ("-c", "-ec", "-lc"):
                    yield word


def test_what_a_shell_gets_is_never_put_together_on_the_way() -> None:
    bad = [
        (path, node) for path in WATCHER for node in scripts(nodes(path))
        if made_up(node) and path != OWN_LINE
    ]  # fmt: skip
    assert places(bad) == []
    assert sum(map(made_up, scripts(nodes(OWN_LINE)))) == 1


def test_the_checks_find_what_they_look_for() -> None:
    bad = 'run(["sh", "-c", f"ls {x}"]); run(("sh", "-c", "ls " + x)); run(["sh", "-c", "%s" % x])'
    assert sum(map(made_up, scripts(ast.walk(ast.parse(bad))))) == 3
    good = 'run(["sh", "-c", SCRIPT, "sh", x]); run(["sh", "-c", "ls"]); run(["ls", f"{x}"])'
    assert sum(map(made_up, scripts(ast.walk(ast.parse(good))))) == 0


def test_words_become_a_line_for_a_shell_in_one_place_only() -> None:
    joins = [
        (path, node) for path in WATCHER for node, last, before in calls(path)
        if (before, last) == ("shlex", "join") and path != QUOTES
    ]  # fmt: skip
    assert places(joins) == []


def test_nothing_listens_on_a_port() -> None:
    heard = {
        path for path in WATCHER for _, last, _ in calls(path)
        if last in ("listen", "create_server")
    }  # fmt: skip
    assert {name(path) for path in heard} == MAY_LISTEN
    for path in heard:
        text = path.read_text("utf-8")
        assert "AF_UNIX" in text
        assert "AF_INET" not in text


def test_only_gates_write_to_a_terminal() -> None:
    bad: list[tuple[Path, ast.AST]] = []
    for path in WATCHER:
        if "/agent/" in name(path) or "/drills/" in name(path) or name(path) in MAY_WRITE:
            continue
        bad += [
            (path, node) for node in nodes(path)
            if isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr")
            and isinstance(node.value, ast.Name) and node.value.id == "sys"
        ]  # fmt: skip
        bad += [
            (path, node) for node, last, before in calls(path) if (last, before) == ("print", "")
        ]
    assert places(bad) == []
