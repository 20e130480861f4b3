"""True acceptance: what decoding accepts, what training expects, and when the two part."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from dflash_train import cli, evaluation_text
from dflash_train.acceptance import Acceptance, count_steps, mean_length, walk
from dflash_train.config import Config
from dflash_train.data import Document, collate
from dflash_train.decoding import CachedTarget, Decoded, decode
from dflash_train.errors import UsageError
from dflash_train.evaluation import Evaluation, Evaluator, first_turn
from dflash_train.materials import make_untaught
from dflash_train.replica import FeatureBatch
from dflash_train.run import RunRequest, execute
from dflash_train.settings import parse_overrides, resolve
from dflash_train.targets import FeatureTarget
from dflash_train.workers import build_replica
from safetensors.torch import load_file
from train.conftest import SMALL
from train.test_replica import parcel_of

EVALUATED = ("eval.every_steps=5", "eval.prompts=2", "eval.new_tokens=10")


def decoded(*accepted, passes=0):
    return Decoded(tokens=(), accepted=accepted, passes=passes)


def test_acceptance_length_counts_the_token_that_the_target_adds():
    found = count_steps([decoded(0, 3, passes=3), decoded(1, passes=2)], 4)
    assert found.histogram == (1, 1, 0, 1)
    assert found.length == pytest.approx((1 + 4 + 2) / 3)
    assert found.by_position == pytest.approx((2 / 3, 1 / 3, 1 / 3))
    assert found.tokens_per_pass == pytest.approx(7 / 5)


def test_what_was_not_decoded_is_not_known_and_not_zero():
    found = count_steps([], 4)
    assert (found.length, found.tokens_per_pass, found.by_position) == (None, None, ())
    assert mean_length([(), ()]) is None


def evaluation(length, estimate, own):
    steps = Acceptance(histogram=(100 - round(100 * (length - 1)), round(100 * (length - 1))),
                       passes=100)  # fmt: skip
    return Evaluation(acceptance=steps, estimate=estimate, estimate_own=own, prompts=4, seconds=1.0)


@pytest.mark.parametrize(
    ("found", "has_gap", "said"),
    [
        (evaluation(1.9, 2.0, 1.9), False, ""),
        (evaluation(1.1, 1.9, 1.1), True, "not its words"),
        (evaluation(1.1, 1.9, 1.9), True, "leak or shifted features"),
        (evaluation(1.0, 1.4, 1.4), False, ""),
        (evaluation(1.1, None, None), False, ""),
    ],
)
def test_a_gap_says_whether_the_data_or_the_training_is_to_blame(found, has_gap, said):
    assert found.has_gap is has_gap
    assert said in found.cause or not has_gap
    assert (evaluation_text.record(found)["gap"] is not None) is has_gap


@pytest.fixture(scope="module")
def learned():
    """A drafter that knows what its target says after four prompts, and has seen nothing else."""
    torch.set_num_threads(1)
    words = ["optim.steps=60", "optim.lr=5e-3", "eval.new_tokens=24", "eval.prompts=4"]
    config = parse_overrides(Config(), [*words, "loss.num_anchors=24"])
    materials = make_untaught(config)
    target = FeatureTarget(materials.decoder, config.target.layer_ids, "cpu")
    replica = build_replica(config, materials, None, "cpu")
    own = [
        spoken(target, replica.draft, first_turn(document), 32)
        for document in materials.held_out[:4]
    ]
    batch = collate(config, 0, own, max(len(document.tokens) for document in own))
    item = FeatureBatch(batch, target.features(batch.input_ids_BT, batch.attention_BT))
    for step in range(60):
        replica.apply((parcel_of(replica, [item], step),), step)
    return config, target, replica.draft, own


def spoken(target, draft, document, count):
    """A document whose response is what the target itself says."""
    prompt = document.tokens[: document.prompt_length]
    said = decode(
        CachedTarget(target, draft.head_VD), draft, torch.tensor(prompt), count, frozenset(), never
    )
    return Document((*prompt, *said.tokens), len(prompt))


def never():
    return None


def test_training_expects_at_each_step_of_decoding_what_decoding_accepts(learned):
    _, target, draft, documents = learned
    taken = []
    for document in documents:
        prompt = torch.tensor(document.tokens[: document.prompt_length])
        found = decode(CachedTarget(target, draft.head_VD), draft, prompt, 32, frozenset(), never)
        assert found.tokens == document.tokens[document.prompt_length :]
        expected = walk(draft, target, document)
        assert expected == found.accepted[: len(expected)]
        taken += expected
    assert len(set(taken)) > 1  # some refused, some taken: the comparison can fail


def test_an_evaluation_of_a_drafter_that_knows_the_text_finds_no_gap(learned):
    config, target, draft, documents = learned
    found = Evaluator(config, target, draft, documents).run(never)
    assert found.acceptance.length > 2
    assert found.estimate > 2
    assert not found.has_gap


def test_an_evaluation_of_a_drafter_on_other_states_than_training_saw_finds_the_gap(learned):
    config, target, draft, documents = learned

    class Shifted(FeatureTarget):
        """Decoding gets each state one position late: the commonest mistake in serving."""

        def extend(self, ids, cache):
            features, last = super().extend(ids, cache)
            return features.roll(1, dims=0), last

    shifted = Shifted(target._decoder, config.target.layer_ids, "cpu")
    evaluator = Evaluator(config, target, draft, documents)
    evaluator._target = shifted
    found = evaluator.run(never)
    assert found.has_gap
    assert "leak or shifted features" in found.cause


def test_documents_without_a_prompt_or_a_response_are_refused(learned):
    config, target, draft, _ = learned
    with pytest.raises(UsageError, match="none of 2 documents has a prompt and a response"):
        Evaluator(config, target, draft, [Document((1, 2, 3), 0), Document((1, 2, 3), 3)])


def test_a_first_turn_ends_where_the_second_prompt_begins():
    mask = (False, False, True, True, False, True)
    found = first_turn(Document((1, 2, 3, 4, 5, 6), 2, mask))
    assert (found.tokens, found.prompt_length) == ((1, 2, 3, 4), 2)


def train(config, run_dir):
    request = RunRequest(config=config, run_dir=run_dir, command=("dflash-train",), watch=False)
    assert execute(request).code == 0


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A small run with evaluations, read by several tests and changed by none."""
    run_dir = tmp_path_factory.mktemp("evaluated") / "run"
    train(resolve("tiny", None, [*SMALL, *EVALUATED]), run_dir)
    return run_dir


def test_evaluations_change_no_bit_of_the_training(small, evaluated, tmp_path):
    train(small, tmp_path / "without")
    weights = [
        load_file(run_dir / "checkpoints" / "step-00000012" / "drafter.safetensors")
        for run_dir in (evaluated, tmp_path / "without")
    ]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_an_evaluation_is_a_phase_an_event_and_a_line(evaluated):
    events = [json.loads(line) for line in (evaluated / "events.jsonl").read_text().splitlines()]
    found = [event for event in events if event["kind"] == "quality"]
    assert [event["step"] for event in found] == [5, 10, 12]
    assert all(1 <= event["acceptance_length"] <= 8 for event in found)
    assert all(len(event["by_position"]) == 7 and event["prompts"] == 2 for event in found)
    edges = [event["edge"] for event in events if event.get("name") == "evaluating"]
    assert edges == ["begin", "end"] * 3
    assert "evaluation at step 12: accepted=" in (evaluated / "train.log").read_text()


def test_the_command_prints_a_table_and_one_object(evaluated, capsys):
    words = ["evaluate", "--run-dir", str(evaluated)]
    assert cli.main(words) == 0
    table = capsys.readouterr().out
    assert table.splitlines()[0].endswith("step-00000012, step 12")
    assert "tokens a verify step, 8 at most" in table
    newest = evaluated / "checkpoints" / "step-00000012"
    assert cli.main(["evaluate", "--checkpoint", str(newest), "--json", "--at-least", "8.5"]) == 1
    seen = capsys.readouterr()
    record = json.loads(seen.out)
    assert seen.err.endswith(f" {record['acceptance_length']:.2f}, expected 8.5 or more\n")
    assert record["step"] == 12
    assert sum(record["histogram"]) == record["verify_steps"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give one of --run-dir, --checkpoint and --drafter"),
        (["--run-dir", "a", "--checkpoint", "b"], "give one of --run-dir"),
        (["--run-dir", "nowhere"], "no whole checkpoint in it"),
        (["--checkpoint", "nowhere"], "half written?"),
        (["--drafter", "nowhere"], "--target: goes with --drafter"),
        (["--drafter", "nowhere", "--target", "t"], "--data: missing"),
        (["--run-dir", "a", "--at-least", "many"], "invalid float value"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_64(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["evaluate", *words]) == 64
    seen = capsys.readouterr()
    assert said in seen.err
    assert len(seen.err.splitlines()) == 1
    assert seen.out == ""


def test_settings_and_devices_that_do_not_fit_are_named(evaluated, capsys):
    words = ["evaluate", "--run-dir", str(evaluated)]
    assert cli.main([*words, "--device", "cuda:97"]) == 64
    assert "no cuda:97 here" in capsys.readouterr().err
    assert cli.main([*words, "eval.prompts=0"]) == 64
    assert "eval.prompts: got 0, expected 1 or more" in capsys.readouterr().err


def test_a_stop_leaves_an_evaluation_out(learned):
    config, target, draft, documents = learned

    def stop():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        Evaluator(replace(config), target, draft, documents).run(stop)
