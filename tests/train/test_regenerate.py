"""The target's own words: what `generate` gives, the same after a kill, draws by line."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
import torch
from dflash_train import cli
from dflash_train.commands.prepare import render_header
from dflash_train.config import TargetConfig
from dflash_train.corpus import shards
from dflash_train.corpus.encode import AnswerOptions
from dflash_train.corpus.generate import Answerer, GumbelNoise, Prompt
from dflash_train.corpus.progress import AnswerCount, Progress
from dflash_train.errors import DflashError, UsageError
from dflash_train.target_model import load_target
from train import little_targets
from train.made_tokenizers import THINKING, make_tokenizer
from train.test_prepare import ENVIRONMENT, command_of, contents
from transformers import AutoTokenizer, Qwen3_5ForCausalLM, Qwen3_5TextConfig

HOT = ("--temperature", "1.5", "--top-k", "90")
CALL = {"function": {"name": "weather", "arguments": {}}}
CHATS = [
    [("user", "what is two and two?"), ("assistant", "never said"), ("user", "and four?")],
    [("user", "weather in a town?")],
    [("system", "you are kind."), ("user", "the answer"), ("assistant", "never said")],
    [("user", "counting"), ("assistant", "never said"), ("user", "sunny? let me see")],
    [("user", "think before you speak. " * 3), ("assistant", "never said")],
]


def hybrid():
    size = {**little_targets.HYBRID, "vocab_size": 512}
    return Qwen3_5ForCausalLM(Qwen3_5TextConfig(**size, tie_word_embeddings=True))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A hybrid target with a chat template, and chats whose answers it never gave."""
    folder = tmp_path_factory.mktemp("regenerate")
    little_targets.save(hybrid, folder / "target")
    make_tokenizer(folder / "target", THINKING)
    rows = [[{"role": role, "content": text} for role, text in chat] for chat in CHATS]
    called = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "sunny"},
        {"role": "assistant", "content": "never said"},
    ]
    lines = [json.dumps({"messages": row}) for row in [*rows, called]]
    (folder / "chats.jsonl").write_text("\n".join([*lines, "{bad", '{"text": "a"}']) + "\n")
    return folder


def words_of(place, out, *more):
    return ["prepare", "--target", str(place / "target"), "--data", str(place / "chats.jsonl"),
            "--out", str(out), "--regenerate", "--block-size", "4", "--batch-size", "3",
            "--max-new-tokens", "12", *more]  # fmt: skip


def answers_of(folder):
    found = {}
    for file in sorted(folder.glob("part-*.answers.jsonl")):
        for row in map(json.loads, file.read_text().splitlines()):
            found[row["line"], row["turn"]] = row
    return found


@pytest.fixture(scope="module")
def greedy(place):
    assert cli.main(words_of(place, place / "greedy")) == 0
    return place / "greedy"


@pytest.fixture(scope="module")
def sampled(place):
    assert cli.main(words_of(place, place / "sampled", *HOT)) == 0
    return place / "sampled"


def test_greedy_answers_equal_those_of_generate_alone_without_padding(place, greedy):
    tokenizer = AutoTokenizer.from_pretrained(place / "target")
    model = load_target(TargetConfig(path=str(place / "target"), devices=("cpu",)))
    rows = (place / "chats.jsonl").read_text().splitlines()
    for (line, turn), row in answers_of(greedy).items():
        if turn > 1:
            continue
        messages = json.loads(rows[line - 1])["messages"]
        ids = tokenizer.apply_chat_template(
            messages[:turn], add_generation_prompt=True, return_tensors="pt"
        )["input_ids"]
        with torch.no_grad():
            alone = model.generate(
                ids, max_new_tokens=12, do_sample=False, eos_token_id=2, pad_token_id=0
            )
        assert alone[0, ids.shape[1] :].tolist() == row["ids"]


def test_each_turn_is_answered_given_the_answers_before_it(place, greedy):
    answers = answers_of(greedy)
    assert set(answers) == {(1, 1), (1, 3), (2, 1), (3, 2), (4, 1), (4, 3), (5, 1), (6, 3)}
    tokenizer = AutoTokenizer.from_pretrained(place / "target")
    corpus = shards.open_corpus(greedy)
    assert len(corpus.lengths) == 8
    for number in range(8):
        ids, mask = shards.document(corpus, number)
        assert "never said" not in tokenizer.decode(ids)
        line = int(corpus.table[number]["line"])
        assert ids[mask].tolist() in [row["ids"] for key, row in answers.items() if key[0] == line]
    second = [shards.document(corpus, n)[0] for n in range(8) if corpus.table[n]["line"] == 1][1]
    assert answers[1, 1]["text"] in tokenizer.decode(second)
    called = next(n for n in range(8) if corpus.table[n]["line"] == 6)
    assert "<tool_call>" in tokenizer.decode(shards.document(corpus, called)[0])


def test_the_header_says_whose_words_they_are_and_what_became_of_each_line(greedy):
    header = shards.read_header(greedy)
    assert header["made_of"]["loss_mask"] == ["answers generated by the target"]
    options = header["made_of"]["options"]["answers"]
    assert (options["temperature"], options["max_new_tokens"]) == (0.0, 12)
    assert options["fingerprint"]
    assert header["counts"]["bad"] == 2
    table = render_header(header, greedy)
    assert "documents beyond one a line: each answer is one" in table
    assert "turns that the template shows otherwise" not in table
    assert "answers broken off at --max-new-tokens or --max-length" in table
    assert header["counts"]["answered"] == 8
    problems = (greedy / "problems.jsonl").read_text()
    assert "a text, expected messages: nothing in it can be answered" in problems


def begin_again(out, sampled, journal):
    """What a kill leaves: the header of a start, and some of the first part's answers."""
    out.mkdir(exist_ok=True)
    for file in out.iterdir():
        file.unlink()
    header = shards.read_header(sampled)
    begun = {"schema": 1, "state": "building", "key": header["key"], "made_of": header["made_of"]}
    (out / "corpus.json").write_text(json.dumps(begun))
    (out / "part-00000.answers.jsonl").write_bytes(journal)


@pytest.mark.parametrize(("whole_lines", "more_bytes"), [(0, 0), (3, 0), (4, 0), (5, 9), (8, 0)])
def test_a_part_broken_off_anywhere_ends_in_the_same_bytes(
    place, sampled, tmp_path, whole_lines, more_bytes
):
    lines = (sampled / "part-00000.answers.jsonl").read_bytes().splitlines(keepends=True)
    rest = lines[whole_lines][:more_bytes] if more_bytes else b""
    begin_again(tmp_path / "out", sampled, b"".join(lines[:whole_lines]) + rest)
    assert cli.main(words_of(place, tmp_path / "out", *HOT)) == 0
    assert contents(tmp_path / "out") == contents(sampled)


def test_answers_of_whole_batches_are_kept_and_those_of_a_broken_one_given_again(
    place, sampled, tmp_path
):
    rows = list(answers_of(sampled).values())
    lines = (sampled / "part-00000.answers.jsonl").read_text().splitlines()[:4]
    marked = [{**json.loads(line), "ids": [7, 8, 2]} for line in lines]
    journal = "".join(json.dumps(row) + "\n" for row in marked).encode()
    begin_again(tmp_path / "out", sampled, journal)
    assert cli.main(words_of(place, tmp_path / "out", *HOT)) == 0
    now = answers_of(tmp_path / "out")
    kept = [(row["line"], row["turn"]) for row in marked[:3]]
    assert all(now[key]["ids"] == [7, 8, 2] for key in kept)
    assert sum(row["ids"] == [7, 8, 2] for row in now.values()) == 3
    assert len(now) == len(rows)


@pytest.mark.slow
@pytest.mark.timeout(600)  # three processes load torch; minutes where many share two cores
def test_two_processes_give_the_bytes_of_one(place, tmp_path):
    more = (*HOT, "--part-lines", "3")
    assert cli.main(words_of(place, tmp_path / "one", *more)) == 0
    command = command_of(words_of(place, tmp_path / "two", *more, "--devices", "cpux2"))
    subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_draws_follow_the_softmax_and_belong_to_line_and_turn():
    prompts = [Prompt(line=line, turn=1, ids=[]) for line in range(6000)]
    scores = torch.tensor([0.0, 1.0, 2.5])
    drawn = GumbelNoise(prompts, 0, "cpu")(torch.empty(0), scores.expand(6000, 3)).argmax(1)
    shares = torch.bincount(drawn, minlength=3) / 6000
    # 4 standard errors of a share of 6,000 draws
    assert torch.allclose(shares, scores.softmax(0), atol=4 * (0.25 / 6000) ** 0.5)
    backwards = GumbelNoise(prompts[::-1], 0, "cpu")(torch.empty(0), scores.expand(6000, 3))
    assert backwards.argmax(1).flip(0).equal(drawn)
    others = [Prompt(line=line, turn=3, ids=[]) for line in range(6000)]
    assert (
        not GumbelNoise(others, 0, "cpu")(torch.empty(0), scores.expand(6000, 3))
        .argmax(1)
        .equal(drawn)
    )


def test_sampled_answers_depend_on_the_seed(place, greedy, sampled, tmp_path):
    one, other = answers_of(sampled), answers_of(greedy)
    assert any(one[key]["ids"] != other[key]["ids"] for key in one)
    more = (*HOT, "--seed", "1")
    assert cli.main(words_of(place, tmp_path / "seed", *more)) == 0
    assert answers_of(tmp_path / "seed") != one


def test_while_the_target_answers_its_answers_are_counted(tmp_path, capsys):
    journal = tmp_path / "part-00000.answers.jsonl"
    journal.write_text("{}\n" * 3)
    count = AnswerCount(tmp_path)
    assert count.read() == 3
    with journal.open("a") as file:
        file.write("{}\n{")
    assert count.read() == 4
    with Progress() as progress, progress.following(tmp_path, every_s=0.01):
        journal.write_text(journal.read_text() + "}\n" * 2)
        said = ""
        while "2 answers" not in said:
            time.sleep(0.01)
            said += capsys.readouterr().err
    assert "prepare: 2 answers, " in said


class Narrow:
    """A model with room for two rows only."""

    def __init__(self, model):
        self._model = model

    def generate(self, input_ids, **rest):
        if len(input_ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self._model.generate(input_ids=input_ids, **rest)


def test_where_a_batch_has_no_room_it_is_answered_in_halves(place):
    options = AnswerOptions(fingerprint="", max_new_tokens=6, temperature=1.0)
    target = Answerer(str(place / "target"), options, "cpu", frozenset({2}))
    prompts = [Prompt(line=n, turn=1, ids=[1, 300 + n, 301]) for n in range(5)]
    whole = target.answer(prompts, 64)
    target._model = Narrow(target._model)
    assert target.answer(prompts, 64) == whole
    target._model = Narrow(None)
    target._model.generate = lambda **_: (_ for _ in ()).throw(torch.OutOfMemoryError("full"))
    with pytest.raises(DflashError, match="one answer to line 0, a prompt of 3 tokens; a smaller"):
        target.answer(prompts, 64)


def test_a_target_whose_text_never_ends_is_refused(place):
    with pytest.raises(UsageError, match="no end of text in its tokenizer"):
        Answerer(str(place / "target"), AnswerOptions(fingerprint=""), "cpu", frozenset())


def test_what_cannot_answer_is_one_line_and_exit_64(place, tmp_path, capsys):
    for more, said in (
        (("--devices", "cuda:97"), "--devices: no cuda:97 here, expected one of cpu"),
        (("--top-p", "0"), "--top-p: got 0.0, expected above 0"),
        (("--batch-size", "0"), "--batch-size: got 0, expected 1 or more"),
        (("--target", str(place)), "no config.json in it"),
    ):
        assert cli.main(words_of(place, tmp_path / "out", *more)) == 64
        last = capsys.readouterr().err.splitlines()[-1]
        assert said in last
