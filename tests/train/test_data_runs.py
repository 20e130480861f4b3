"""Training on prepared chats: the same batches for the same seed, and no data that do not fit."""

from __future__ import annotations

import json
import shutil

import pytest
from dflash_train import cli
from dflash_train.corpus.documents import read_documents
from dflash_train.corpus.settle import settle_data
from dflash_train.corpus.shards import document, open_corpus
from dflash_train.data import BatchSource
from dflash_train.errors import UsageError
from dflash_train.settings import parse_overrides, resolve
from safetensors.torch import load_file
from train import little_targets
from train.conftest import SMALL
from train.made_tokenizers import THINKING, make_tokenizer
from train.test_prepare import write_chats
from transformers import Qwen3Config, Qwen3ForCausalLM

REST = ("--preset", "tiny", "--no-watch", *(one for one in SMALL if "num_documents" not in one))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A tokenizer, chats, and the chats prepared in `data`."""
    folder = tmp_path_factory.mktemp("data-runs")
    make_tokenizer(folder / "tokenizer", THINKING)
    write_chats(folder / "chats.jsonl", 80)
    prepare(folder / "tokenizer", folder / "chats.jsonl", folder / "data")
    return folder


def prepare(tokenizer, file, out, *more):
    words = ["prepare", "--tokenizer", str(tokenizer), "--data", str(file), "--out", str(out)]
    assert cli.main([*words, "--workers", "1", "--max-length", "256", *more]) == 0


def settled(place, *settings):
    words = [*SMALL[2:], f"data.path={place / 'data'}", *settings]
    return settle_data(resolve("tiny", None, words)).check()


def weights(run_dir, step):
    return load_file(run_dir / "checkpoints" / f"step-{step:08d}" / "drafter.safetensors")


def test_a_run_on_chats_learns_from_them_and_broken_off_ends_as_one_that_was_not(place, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    data = ("--data", str(place / "data"), "optim.steps=11")
    assert cli.main([*REST, *data, "--run-dir", str(whole)]) == 0
    kept = json.loads((whole / "run.json").read_text())["config"]["data"]
    header = json.loads((place / "data/corpus.json").read_text())
    assert kept["fingerprint"] == header["key"]
    assert kept["buckets"] == [row["to"] for row in header["buckets"]]
    drill = ("drill.fault=raise", "drill.worker=drafter-0", "drill.at_step=7")
    assert cli.main([*REST, *data, *drill, "--run-dir", str(broken)]) == 1
    moved = tmp_path / "moved"
    shutil.copytree(place / "data", moved)
    again = ("--run-dir", str(broken), "--data", str(moved), "drill.fault=none")
    assert cli.main(["resume", "--no-watch", *again]) == 0
    one, other = weights(whole, 11), weights(broken, 11)
    assert all(one[name].equal(other[name]) for name in one)


def test_a_file_is_prepared_into_the_run_directory_with_the_targets_tokenizer(place, tmp_path):
    target, run_dir = tmp_path / "target", tmp_path / "run"
    little_targets.save(wide, target)
    make_tokenizer(target, THINKING)
    words = (*REST, "--target", str(target), "--data", str(place / "chats.jsonl"))
    more = (
        "optim.steps=2",
        "data.max_length=90",
        "data.thinking=false",
        "--run-dir",
        str(run_dir),
    )
    assert cli.main([*words, *more]) == 0
    header = json.loads((run_dir / "data/corpus.json").read_text())
    assert header["max_length"] == 90
    assert header["made_of"]["chat_template"]["options"] == {"enable_thinking": False}
    kept = json.loads((run_dir / "run.json").read_text())["config"]["data"]
    assert kept["path"] == str(run_dir / "data")
    assert kept["vocab_size"] == 512


def wide():
    return Qwen3ForCausalLM(Qwen3Config(**{**little_targets.SIZE, "vocab_size": 512}))


def test_batches_hold_whole_documents_with_their_masks_one_a_row(place):
    config = settled(place)
    documents, held_out = read_documents(config)
    source = BatchSource(documents, config, documents.lengths)
    by_tokens = {document.tokens: document for document in documents}
    seen = 0
    for index in range(source.steps_per_epoch * config.batches_per_step):
        batch = source.batch(index)
        for row, length in enumerate(batch.attention_BT.sum(1).tolist()):
            assert batch.attention_BT[row, :length].all()
            found = by_tokens[tuple(batch.input_ids_BT[row, :length].tolist())]
            anchors = batch.anchors_BA[row][batch.valid_BA[row]].tolist()
            assert anchors
            assert all(found.mask()[a] and found.mask()[a + 1] for a in anchors)
            seen += 1
    assert len(documents) - config.data.rows * config.batches_per_step < seen <= len(documents)
    assert held_out
    assert not {document.tokens for document in held_out} & set(by_tokens)


def test_no_turn_of_a_conversation_is_trained_on_while_another_is_held_out(place):
    kept, held_out = read_documents(settled(place))
    corpus = open_corpus(place / "data")
    line_of = {
        tuple(document(corpus, n)[0].tolist()): corpus.table[n]["line"]
        for n in range(len(corpus.lengths))
    }
    lines = [{int(line_of[one.tokens]) for one in some} for some in (kept, held_out)]
    assert len(held_out) > len(lines[1])
    assert not lines[0] & lines[1]
    assert len(lines[1]) == (len(lines[0]) + len(lines[1])) // 10


def test_held_out_documents_depend_on_the_seed_alone(place):
    one, other = (read_documents(settled(place))[1] for _ in range(2))
    third = read_documents(settled(place, "seed=1"))[1]
    assert [d.tokens for d in one] == [d.tokens for d in other] != [d.tokens for d in third]


def test_verifying_shards_tells_of_each_piece_and_may_be_stopped(place):
    sizes = []
    read_documents(settled(place), sizes.append)
    assert sum(sizes) == sum(file.stat().st_size for file in (place / "data").glob("*.arrow"))

    def stop(_):
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        read_documents(settled(place), stop)


def refuse(place, tmp_path, capsys, *words, data="data"):
    """Last line of a start that is refused; nothing is left behind."""
    run_dir = tmp_path / "run"
    path = data if isinstance(data, str) and "/" in data else place / data
    capsys.readouterr()
    assert cli.main([*REST, "--data", str(path), "--run-dir", str(run_dir), *words]) == 64
    assert not run_dir.exists() or not any(run_dir.glob("checkpoints"))
    return capsys.readouterr().err.splitlines()[-1]


def test_data_that_do_not_fit_the_run_are_one_line_and_exit_64(place, tmp_path, capsys):
    said = refuse(place, tmp_path, capsys, "data.buckets=64,128")
    assert "data.buckets: the last holds 128 tokens, the longest document" in said
    said = refuse(place, tmp_path, capsys, "drafter.mask_token_id=0")
    assert "drafter.mask_token_id: 0 is the padding of the tokenizer" in said
    said = refuse(place, tmp_path, capsys, "drafter.mask_token_id=2")
    assert "2 is an end of text of the tokenizer" in said
    said = refuse(place, tmp_path, capsys, "data.rows=200")
    assert "data.num_documents: got" in said
    said = refuse(place, tmp_path, capsys, "data.rows=48", "target.pretrain_steps=0")
    assert "documents to train on, expected 96, enough for one step; fewer data.rows" in said
    said = refuse(place, tmp_path, capsys, "drafter.block_size=300", "drafter.sliding_window=300")
    assert "are shorter than a block of 300" in said
    said = refuse(place, tmp_path, capsys, data="chats.jsonl")
    assert "the tiny target has no tokenizer to read it with; dflash-train prepare" in said
    said = refuse(place, tmp_path, capsys, data="tokenizer")
    assert "no corpus.json there, expected a folder that prepare wrote" in said


def test_a_target_with_another_tokenizer_than_the_datas_is_refused(place, tmp_path, capsys):
    target = tmp_path / "target"
    little_targets.save(little_targets.qwen3, target)
    said = refuse(place, tmp_path, capsys, "--target", str(target))
    assert "the target's embedding has 128 rows: prepared with another tokenizer" in said
    little_targets.save(wide, target, tokens=400)
    said = refuse(place, tmp_path, capsys, "--target", str(target))
    assert "prepared with the tokenizer of" in said
    assert "the target's is another one" in said


def test_damaged_and_exchanged_shards_are_refused(place, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(place / "data", copy)
    part = copy / "part-00000.arrow"
    part.write_bytes(part.read_bytes()[:-100])
    said = refuse(place, tmp_path, capsys, data=str(copy))
    assert "part-00000.arrow: cut short" in said
    assert "run the same prepare again" in said
    with pytest.raises(UsageError, match="other data than the run began with"):
        settle_data(parse_overrides(settled(place), ["data.fingerprint=other"]))
