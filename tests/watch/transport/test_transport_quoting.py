"""One function quotes; a real shell must give back exactly what went in."""

from __future__ import annotations

import subprocess

import pytest
from dflash_watch.transport.quoting import joins_its_arguments, shell_line, with_prefix
from hypothesis import given, settings
from hypothesis import strategies as st

HOSTILE = [
    "",
    " ",
    "a b",
    "$(id)",
    "`id`",
    "$HOME",
    "'",
    '"',
    'it\'s "both"',
    "\\",
    "\\'",
    "a\nb",
    "\t",
    ";reboot",
    "&& reboot",
    "|cat",
    ">file",
    "*",
    "?",
    "[a-z]",
    "{a,b}",
    "~",
    "~root",
    "-n",
    "--",
    "#x",
    "!!",
    "a=b",
    "\x01\x7f",
    "\u00e9\u4e2d\U0001f600",
    "\u202e",
]


def _split_by(shell: str, line: str) -> list[str]:
    """Arguments as the shell hands them on, each ended by NUL."""
    show = "import sys; sys.stdout.write(''.join(a + chr(0) for a in sys.argv[1:]))"
    out = subprocess.check_output(
        [shell, "-c", f"exec python3 -c {shell_line([show])} {line}"], env={"PATH": "/usr/bin:/bin"}
    )
    return out.decode().split("\0")[:-1]


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("word", HOSTILE)
def test_a_hostile_name_stays_one_argument(shell: str, word: str) -> None:
    assert _split_by(shell, shell_line(["x", word, "y"])) == ["x", word, "y"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1))
def test_any_argument_list_survives_a_shell(words: list[str]) -> None:
    assert _split_by("sh", shell_line(words)) == words


def test_a_nul_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        shell_line(["a\0b"])


@pytest.mark.parametrize(
    ("prefix", "joins"),
    [
        (["ssh", "box"], True),
        (["/usr/bin/ssh", "-p", "22", "box", "pct", "exec", "200", "--"], True),
        (["sudo", "-n", "ssh", "box"], True),
        (["env", "A=b", "ssh", "box"], True),
        (["docker", "exec", "-i", "ssh"], False),
        (["kubectl", "exec", "-i", "pod", "--"], False),
        ([], False),
    ],
)
def test_prefixes_that_join_their_arguments_get_the_command_as_one_word(
    prefix: list[str], joins: bool
) -> None:
    assert joins_its_arguments(prefix) == joins
    command = ["sh", "-c", "echo a b"]
    rest = with_prefix(prefix, command)[len(prefix) :]
    assert rest == (("sh -c 'echo a b'",) if joins else tuple(command))
