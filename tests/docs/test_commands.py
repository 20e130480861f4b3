"""What README, docs and playbooks tell people to type is understood by what they type it to."""

import importlib
import re
import subprocess
import tomllib

import pytest
from commands_in_docs import PAGES, ROOT, RUNBOOKS, Given, given
from dflash_train.cli import build_parser, settings_of_options
from dflash_train.commands import COMMANDS
from dflash_train.settings import resolve
from dflash_watch.cli import PARSERS
from dflash_watch.commands.arguments import split_command
from dflash_watch.commands.request import build_request

EVERY = given([*PAGES, *RUNBOOKS])


def parse_watch(words: list[str]) -> None:
    command, rest = split_command(words)
    read = PARSERS[command]().parse(rest)
    if command in (None, "check", "dump"):
        build_request(read)


def parse_train(words: list[str]) -> None:
    if words and words[0] in COMMANDS:
        importlib.import_module(COMMANDS[words[0]]).build_parser().parse_intermixed_args(words[1:])
        return
    read = build_parser().parse_intermixed_args(words)
    settings = read.words[1:] if read.words[:1] == ["resume"] else read.words
    said = [*settings_of_options(read), *settings]
    resolve(read.preset or ("dflash" if read.target else "tiny"), None, said)


def parse_make(words: list[str]) -> None:
    shown = subprocess.run(
        ["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr


def parse_pip(words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert words[0] == "install"
    for extras in re.findall(rf"{project['name']}\[([^\]]*)\]", " ".join(words)):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


PARSE = {
    "dflash-watch": parse_watch,
    "dflash-train": parse_train,
    "make": parse_make,
    "pip": parse_pip,
}


@pytest.mark.parametrize("one", EVERY, ids=lambda one: f"{one.page}: {one.line}")
def test_every_command_line_of_the_pages_is_understood(one: Given):
    for program, *words in one.parts():
        filled = [re.sub(r"\{\w+\}", "7", word) for word in words]
        PARSE[program](filled)


def test_the_pages_give_commands_of_each_program_and_most_commands_of_the_watchdog():
    words = [part for one in EVERY for part in one.parts()]
    assert {part[0] for part in words} == set(PARSE)
    assert {part[1] for part in words if part[0] == "dflash-watch" and len(part) > 1} >= {
        "check", "dump", "replay", "incidents", "explain", "--host", "--demo"
    }  # fmt: skip


def test_a_made_up_option_is_not_understood():
    with pytest.raises(Exception, match="no-such-option"):
        parse_watch(["check", "--no-such-option"])
    with pytest.raises(Exception, match="no_such_key"):
        parse_train(["--preset", "tiny", "optim.no_such_key=1"])


LINKS = [
    (page.relative_to(ROOT).as_posix(), link)
    for page in [*PAGES, *RUNBOOKS]
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    if "://" not in link
]


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_every_link_leads_somewhere(page: str, link: str):
    assert ((ROOT / page).parent / link).exists()
