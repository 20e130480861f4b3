"""Steps that can be taken, and no others, for every playbook and every place."""

from __future__ import annotations

import re

import pytest
from dflash_watch.place import Place
from dflash_watch.playbooks import load_playbooks
from dflash_watch.steps import (
    AS_YOU_DID,
    IN_THE_INCIDENT,
    NAMES,
    fill_next,
    fill_section,
    name_folder,
    place_values,
)

BOOKS = load_playbooks()
PLACES = (
    Place(),
    Place(entry="pct", entry_arg="200"),
    Place(host="10.1.2.6"),
    Place(host="10.1.2.6", entry="pct", entry_arg="200"),
    Place(host="box", entry="docker", entry_arg="train"),
    Place(exec_prefix=("nsenter", "-t", "1")),
)
KNOWN = (
    {},
    {"pid": 4242},
    {"pid": 4242, "log": "/tmp/x.log", "subject": "target-0"},
    {"pid": 4242, "log": "/r/train.log", "subject": "run", "run_dir": "/r"},
)
BLANK = re.compile(r"[<{](" + "|".join(NAMES) + r")[>}]")


@pytest.mark.parametrize("name", BOOKS)
@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("place", PLACES)
def test_no_step_of_any_playbook_has_an_open_blank(name, known, place) -> None:
    values = {**known, **place_values(place.label())}
    told = [*fill_next(BOOKS[name].next, **values)]
    told += [fill_section(text, values) for text in BOOKS[name].sections.values()]
    assert [text for text in told if BLANK.search(text)] == []


@pytest.mark.parametrize("name", BOOKS)
def test_every_blank_of_a_playbook_is_known_and_filled_when_all_is_told(name) -> None:
    known = {one: f"value-of-{one}" for one in NAMES}
    for text in (*BOOKS[name].next, *BOOKS[name].sections.values()):
        left = re.findall(r"\{([a-z_]+)\}", fill_section(text, known))
        assert left == []


@pytest.mark.parametrize("name", BOOKS)
def test_every_step_that_names_a_file_of_the_incident_names_its_folder(name) -> None:
    for step in BOOKS[name].next:
        if re.search(r"stacks-\d|stacks\.diff|incident", step):
            assert IN_THE_INCIDENT in step
            assert "/kept/x" in name_folder((step,), "/kept/x")[0]
            assert name_folder((step,), None) == (step,)


def test_a_run_of_somebody_else_is_started_as_it_was() -> None:
    text = BOOKS["pipeline-deadlock"].sections["Mitigation"]
    foreign = fill_section(text, {"pid": 7})
    assert f". {AS_YOU_DID}. It worked when" in foreign
    assert "dflash-train" not in foreign
    assert "dflash-train resume --run-dir /r`" in fill_section(text, {"pid": 7, "run_dir": "/r"})


def test_items_that_are_left_out_leave_no_hole_in_the_numbers() -> None:
    text = "1. see {log}\n   twice\n2. kill {pid}\n3. wait\n   long\n\n- else {host}\n- nothing"
    assert fill_section(text, {"pid": 7}) == "1. kill 7\n2. wait\n   long\n\n- nothing"


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (PLACES[0], ["uptime; free -m: is this machine so busy"]),
        (PLACES[1], ["pct status 200 or"]),
        (PLACES[2], ["ssh 10.1.2.6 true"]),
        (PLACES[3], ["ssh 10.1.2.6 true", "on 10.1.2.6: pct status 200 or"]),
        (PLACES[4], ["ssh box true", "on box: docker ps -a --filter name=train"]),
        (PLACES[5], []),
    ],
)
def test_what_to_do_about_a_lost_way_depends_on_the_way(place, told) -> None:
    steps = fill_next(BOOKS["watch-lost"].next, **place_values(place.label()))
    assert [step[: len(want)] for step, want in zip(steps, told, strict=True)] == told


@pytest.mark.parametrize(
    ("path", "typed"),
    [
        ("/runs/a", "/runs/a"),
        ("/my runs/a", "'/my runs/a'"),
        ("/r/$(touch x)", "'/r/$(touch x)'"),
        ("/r/it's", "'/r/it'\"'\"'s'"),
        ("/r/`id`", "'/r/?id?'"),
        ("/r/![i](http://x/i.png)<img>", "'/r/![i]?http://x/i.png)?img>'"),
        ("/r/\x1b[31mred\nnext", "'/r/red next'"),
    ],
)
def test_what_the_run_named_is_one_word_to_a_shell_and_inert_on_a_page(path, typed):
    assert fill_next(["ls -lt {run_dir}"], run_dir=path) == (f"ls -lt {typed}",)
