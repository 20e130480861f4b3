"""The programs shown in docs/run-directory.md do what the page says."""

import re
from pathlib import Path

from dflash_events.adapters.context import watched_run
from dflash_events.reader import EventTail, events_path, open_beats, read_manifest
from dflash_events.schema import KINDS, PHASES, ROLES, STATES, WAITS

PAGE = (Path(__file__).parents[2] / "docs" / "run-directory.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class Batch:
    real_tokens = 5


class Loss:
    def item(self):
        return 1.5


def test_ten_lines_emit_a_run_and_the_reading_program_reads_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {
        "batches": [Batch()] * 3,
        "load": lambda: None,
        "train_step": lambda _model, _batch: Loss(),
        "save": lambda _model, _step: None,
    }
    exec(PROGRAMS[0], dict(names))
    exec(PROGRAMS[-1], names)
    assert [event["kind"] for event in names["news"].events][-1] == "exit"
    assert "'step': 2" in capsys.readouterr().out
    assert PROGRAMS[0].count("\n") <= 11


def test_the_page_names_everything_that_is_written(tmp_path):
    for name in (*KINDS, *PHASES, *ROLES, *WAITS, *STATES):
        assert re.search(rf"\b{name}\b", PAGE), name
    with watched_run(tmp_path, report_s=0) as loop:
        loop.step(1)
    manifest = read_manifest(tmp_path).data
    for key in (*manifest, *manifest["process"], *manifest["workers"][0]):
        assert f"`{key}`" in PAGE or f"{key}," in PAGE or f"{key}}}" in PAGE, key
    with EventTail(events_path(tmp_path, manifest)) as tail:
        for event in tail.read().events:
            for key in event:
                assert f"`{key}`" in PAGE, key
    with open_beats(tmp_path, manifest) as beats:
        assert beats.read()["write_errors"] == 0
