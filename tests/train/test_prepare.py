"""Preparing: the same bytes whatever happens on the way, and every line accounted for."""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import signal
import subprocess
import sys
import termios
import time
from collections import Counter
from itertools import combinations

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dflash_train import cli
from dflash_train.corpus import lengths, shards
from dflash_train.corpus.progress import Progress
from dflash_train.errors import UsageError
from hypothesis import given, settings
from hypothesis import strategies as st
from train.made_tokenizers import PLAIN, THINKING, UNSOUND, make_tokenizer

WORDS = ("what", "is", "two", "and", "four", "the", "answer", "follows", "from", "counting")


def write_chats(file, count, bad_every=0):
    draw = random.Random(3)
    rows = []
    for number in range(count):
        talk = []
        for _ in range(draw.choice((1, 1, 2))):
            for role, most in (("user", 12), ("assistant", 60)):
                text = " ".join(draw.choices(WORDS, k=draw.randint(2, most)))
                talk.append({"role": role, "content": text})
        rows.append(json.dumps({"messages": talk}))
        if bad_every and number % bad_every == 0:
            rows[-1] = rows[-1][:-3]
    file.write_text("\n".join(rows) + "\n")
    return file


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a tokenizer and chats."""
    folder = tmp_path_factory.mktemp("prepare")
    make_tokenizer(folder / "tokenizer", THINKING)
    write_chats(folder / "chats.jsonl", 600, bad_every=97)
    return folder


def words_of(place, out, *more, data="chats.jsonl"):
    return ["prepare", "--tokenizer", str(place / "tokenizer"), "--data", str(place / data),
            "--out", str(out), "--workers", "1", "--part-lines", "20", *more]  # fmt: skip


ENVIRONMENT = {"PYTHONPATH": ":".join(sys.path)}


def command_of(words):
    """The same in a process of its own."""
    return [
        sys.executable,
        "-c",
        "import sys; from dflash_train.cli import main; sys.exit(main())",
        *words,
    ]


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(place):
    """Prepared without disturbance by one process."""
    out = place / "whole"
    assert cli.main(words_of(place, out)) == 0
    return out


def start_until(command, file):
    """A process that has made `file` and works on."""
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, start_new_session=True
    )
    deadline = time.monotonic() + 400
    while not file.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return process


@pytest.mark.slow
@pytest.mark.timeout(600)  # three processes load torch; minutes where many share two cores
def test_interrupted_killed_and_run_again_it_makes_the_same_bytes_and_leaves_no_process(
    place, whole, tmp_path
):
    out = tmp_path / "out"
    out.mkdir()
    barrier = out / "part-00012.arrow.part"
    os.mkfifo(barrier)  # whoever writes that part waits for a reader who never comes
    first = start_until(command_of(words_of(place, out)), out / "part-00011.json")
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does
    assert "interrupted; the same command goes on from here" in first.communicate(timeout=400)[1]
    assert first.returncode == 75
    command = command_of(words_of(place, out, "--workers", "2"))
    first = start_until(command, out / "part-00013.json")
    children = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.communicate()
    assert psutil.wait_procs(children, timeout=60)[1] == []
    assert json.loads((out / "corpus.json").read_text())["state"] == "building"
    with pytest.raises(UsageError, match="preparing was not finished; run the same prepare again"):
        shards.open_corpus(out)
    barrier.unlink()
    assert cli.main(words_of(place, out)) == 0
    assert contents(out) == contents(whole)


def test_each_line_is_accounted_for_and_bad_ones_are_told_with_their_number(
    place, whole, capsys, tmp_path
):
    assert cli.main(words_of(place, tmp_path / "out", "--json")) == 0
    seen = capsys.readouterr()
    header = json.loads(seen.out)
    counts = header["counts"]
    assert counts["lines"] == 600
    assert counts["bad"] == 7
    assert "chats.jsonl line 98: not JSON" in seen.err
    problems = [json.loads(row) for row in (whole / "problems.jsonl").read_text().splitlines()]
    assert [one["line"] for one in problems] == [1, 98, 195, 292, 389, 486, 583]
    lost = sum(counts.get(key, 0) for key in ("bad", "empty", "short", "long", "unsupervised"))
    assert counts["documents"] == 600 - lost + counts["extra"]
    corpus = shards.open_corpus(whole)
    assert len(corpus.lengths) == counts["documents"]
    assert sum(corpus.lengths) == header["tokens"]
    assert set(corpus.table["line"]).isdisjoint({1, 98})
    for row in (header["histogram"], header["buckets"]):
        assert sum(one["documents"] for one in row) == counts["documents"]


def test_the_table_shows_lengths_buckets_and_what_was_left_out(place, tmp_path, capsys):
    assert cli.main(words_of(place, tmp_path / "out", "--max-length", "100", "--long", "drop")) == 0
    shown = capsys.readouterr().out
    assert "loss mask by prefix differences of the rendered chat template" in shown
    assert "documents left out: longer than --max-length" in shown
    assert "7 lines left out: bad, see problems.jsonl" in shown
    assert "length in tokens   documents" in shown


def test_a_template_that_knows_thinking_is_told_about_unless_it_was_said(place, tmp_path, capsys):
    for name, more, is_told in (("a", (), True), ("b", ("--thinking", "off"), False)):
        assert cli.main(words_of(place, tmp_path / name, *more)) == 0
        shown = capsys.readouterr().out
        assert ("note: the chat template knows enable_thinking" in shown) is is_told


def test_on_a_terminal_there_is_a_bar_and_bad_lines_stand_above_it(monkeypatch):
    leader, follower = os.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    with os.fdopen(follower, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        with Progress() as progress:
            progress.lines(3, 10)
            progress.problem("chats.jsonl", 4, "not JSON")
            progress.lines(10, 10)
        terminal.flush()
        shown = ""
        while "10/10" not in shown:  # a terminal gives what it has, in pieces
            shown += os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "prepare: 100%" in shown
    assert "chats.jsonl line 4: not JSON" in shown


def test_documents_are_cut_at_the_longest_length_with_their_mask(place, tmp_path):
    assert cli.main(words_of(place, tmp_path / "out", "--max-length", "60")) == 0
    corpus = shards.open_corpus(tmp_path / "out")
    assert max(corpus.lengths) == 60
    ids, mask = shards.document(corpus, 0)
    assert len(ids) == len(mask) == corpus.lengths[0]
    assert corpus.header["counts"]["cut"] > 0


def test_text_is_learned_from_as_a_whole_also_packed(place, tmp_path):
    with gzip.open(place / "text.txt.gz", "wt") as file:
        file.write("it is four. the answer follows from counting.\n\nweather in a town: sunny\n")
    words = words_of(place, tmp_path / "out", "--block-size", "4", data="text.txt.gz")
    assert cli.main(words) == 0
    corpus = shards.open_corpus(tmp_path / "out")
    assert corpus.header["made_of"]["loss_mask"] == ["whole text, no chat template"]
    assert corpus.header["counts"]["empty"] == 1
    assert all(shards.document(corpus, i)[1].all() for i in (0, 1))


def test_rows_of_parquet_are_the_lines_they_would_be(place, whole, tmp_path):
    lines = (place / "chats.jsonl").read_text().splitlines()
    rows = [json.loads(line) for number, line in enumerate(lines) if number % 97]
    pq.write_table(pa.Table.from_pylist(rows), place / "chats.parquet")
    assert cli.main(words_of(place, tmp_path / "out", data="chats.parquet")) == 0
    ours, theirs = shards.open_corpus(tmp_path / "out"), shards.open_corpus(whole)
    assert ours.lengths == theirs.lengths
    assert ours.header["counts"].get("bad", 0) == 0
    assert all(
        (a == b).all()
        for number in range(len(ours.lengths))
        for a, b in zip(shards.document(ours, number), shards.document(theirs, number), strict=True)
    )


def refusals(place):
    """Arguments after `--out`, what is said, and files to be there."""
    answerless = place / "questions.jsonl"
    answerless.write_text('{"messages": [{"role": "user", "content": "two?"}]}\n' * 3)
    brief = place / "brief.jsonl"
    brief.write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
    )
    (place / "array.json").write_text('[{"messages": []}]')
    (place / "nothing.jsonl").write_text("\n\n")
    (place / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 9)[:-9])
    (place / "none.parquet").write_bytes(b"PAR1")
    (place / "unsound.jinja").write_text(UNSOUND)
    (place / "plain.jinja").write_text(PLAIN)
    unsound = ("--chat-template", str(place / "unsound.jinja"))
    unheard = ("--chat-template", str(place / "plain.jinja"), "--thinking", "on")
    return [
        (
            "questions.jsonl",
            (),
            "no document to learn from in 3 lines: 3 without supervised tokens",
        ),
        ("brief.jsonl", ("--block-size", "64"), "1 shorter than a block of 64"),
        ("array.json", (), "a JSON array, expected one object a line; jq -c"),
        ("nothing.jsonl", (), "nothing in it"),
        ("cut.jsonl.gz", (), "cut.jsonl.gz: Compressed file ended before"),
        ("none.parquet", (), "none.parquet: Parquet file size is 4 bytes"),
        ("nowhere.jsonl", (), "No such file or directory"),
        ("nowhere", (), "No such file or directory; expected a file of chats or text"),
        ("chats.jsonl", ("--max-bad", "3"), "more than 3 bad lines, at line 292: not JSON"),
        ("chats.jsonl", unsound, "the assistant's tokens cannot be told from it"),
        ("chats.jsonl", unheard, "renders the same with enable_thinking on and off"),
        ("chats.jsonl", ("--tokenizer", str(place)), "no tokenizer can be read there"),
        ("chats.jsonl", ("--max-length", "8"), "--max-length: got 8, expected 16 or more"),
        ("chats.jsonl", ("--chat-template", "nowhere"), "--chat-template nowhere: No such file"),
    ]


def test_what_cannot_be_used_is_one_line_and_exit_64(place, tmp_path, capsys):
    for number, (data, more, said) in enumerate(refusals(place)):
        code = cli.main(words_of(place, tmp_path / str(number), *more, data=data))
        last = capsys.readouterr().err.splitlines()[-1]
        assert (code, said in last) == (64, True), (data, more, last)


def test_a_full_disk_is_one_line_and_the_same_command_goes_on_afterwards(
    place, whole, tmp_path, capsys
):
    out = tmp_path / "out"
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(file.stat().st_size for file in whole.glob("*.arrow"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1, usual[1]))
    try:
        code = cli.main(words_of(place, out))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    last = capsys.readouterr().err.splitlines()[-1]
    assert (code, "File too large; what is made is kept: make room" in last) == (1, True)
    assert cli.main(words_of(place, out)) == 0
    assert contents(out) == contents(whole)


def test_another_preparation_is_never_written_over(place, whole, tmp_path, capsys):
    before = contents(whole)
    assert cli.main(words_of(place, whole, "--max-length", "64")) == 64
    assert "prepared with other options" in capsys.readouterr().err
    (tmp_path / "mine").write_text("")
    assert cli.main(words_of(place, tmp_path)) == 64
    assert "not empty" in capsys.readouterr().err
    assert contents(whole) == before


def test_a_shard_cut_short_changed_or_gone_is_refused_and_made_again(place, tmp_path):
    out = tmp_path / "out"
    assert cli.main(words_of(place, out)) == 0
    before, part = contents(out), out / "part-00002.arrow"
    changed = bytearray(before[part.name])
    changed[-9] ^= 1
    for damage, said in (
        (before[part.name][:-50], "cut short"),
        (bytes(changed), "other bytes than were written"),
        (None, "No such file"),
    ):
        part.unlink()
        if damage is not None:
            part.write_bytes(damage)
        with pytest.raises(UsageError, match=said):
            shards.open_corpus(out)
        assert cli.main(words_of(place, out)) == 0
        assert contents(out) == before


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 160), min_size=1, max_size=30), st.integers(1, 4))
def test_buckets_pad_least_of_all_choices(sizes, most):
    counted = Counter(sizes)

    def padded(ends):
        return sum(min(end for end in ends if end >= size) for size in sizes)

    chosen = lengths.choose_buckets(counted, most)
    steps = sorted({-(-size // 16) * 16 for size in sizes})
    choices = [(*inner, steps[-1]) for n in range(most) for inner in combinations(steps[:-1], n)]
    assert len(chosen) <= most
    assert list(chosen) == sorted(set(chosen))
    assert padded(chosen) == min(map(padded, choices))
    assert sum(row["documents"] for row in lengths.bucket_rows(counted, chosen)) == len(sizes)
