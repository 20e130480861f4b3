"""What the reader makes of logs as they are: recorded ones, known formats, pieces torn anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from dflash_watch.frame import LogSample
from dflash_watch.readers import facts
from dflash_watch.readers.lines import LINE_LIMIT
from dflash_watch.readers.logtext import LogReader
from hypothesis import given
from hypothesis import strategies as st

LOGS = Path(__file__).parent / "logs"
TUNING_OOM = facts.Signature(
    failure="triton-autotune-oom",
    pattern=r"(?:autotuner\.py|do_bench|get_empty_cache_for_benchmark).*out of memory",
    multiline=True,
)
DISK = facts.Signature(failure="disk-full", pattern=r"No space left on device")
LOADING = """\
  Bucket 4 [2432,3296):   9927 batches ( 16.6%)
  Bucket 5 [3296,8193):  27884 batches ( 46.6%)

Loading 5 target models...
  Target 0 on cuda:0...
Loading weights: 100%|██████████| 851/851 [00:03<00:00, 225.93it/s]
    Loaded in 7.2s, mem=53.8 GB
  Target 1 on cuda:1...
Loading weights: 100%|██████████| 851/851 [0"""


def sample(text: str = "", **more: object) -> LogSample:
    return LogSample(path="train.log", via="fd 1", text=text, **more)  # type: ignore[arg-type]


def read(text: str, *signatures: facts.Signature) -> list[facts.LogFact]:
    return LogReader(signatures).feed(sample(text), 100.0)


def of(kind: type, seen: list[facts.LogFact]) -> list:
    return [fact for fact in seen if isinstance(fact, kind)]


def steps(*lines: str) -> list[facts.StepSeen]:
    return of(facts.StepSeen, read("\n".join(lines) + "\n"))


def test_two_of_three_target_threads_died_on_a_full_card_and_both_are_named() -> None:
    seen = read((LOGS / "autotune-oom-two-of-three-targets.log").read_text(), TUNING_OOM)
    died = {fact.subject: fact for fact in of(facts.TracebackSeen, seen)}
    assert set(died) == {"target-1", "target-2"}
    assert died["target-1"].exception == "OutOfMemoryError"
    assert "get_empty_cache_for_benchmark" in died["target-1"].text
    assert "get_empty_cache_for_benchmark" not in died["target-2"].text
    assert [(s.failure, s.subject) for s in of(facts.SignatureSeen, seen)] == [
        ("triton-autotune-oom", "target-1")
    ]


def test_headings_that_precede_their_tracebacks_are_matched_in_order() -> None:
    seen = read((LOGS / "cudnn-internal-error-full-memory.log").read_text())
    died = [(fact.subject, fact.exception) for fact in of(facts.TracebackSeen, seen)]
    assert died == [
        ("target-0", "OutOfMemoryError"),
        ("target-1", "OutOfMemoryError"),
        ("target-2", "RuntimeError"),
    ]


def test_ranks_that_print_into_one_line_are_read_apart() -> None:
    seen = of(facts.StepSeen, read((LOGS / "nccl-hang-two-ranks.log").read_text()))
    by_rank = {rank: [s.step for s in seen if s.rank == rank] for rank in (0, 1)}
    assert by_rank[0] == by_rank[1] == list(range(0, 600, 50))
    assert seen[-1].tokens_per_s == 694423


def test_the_trainer_of_transformers_is_read_with_its_bars_and_dicts_in_one_stream() -> None:
    seen = read((LOGS / "hf-trainer-with-bars.log").read_text())
    main = [s for s in of(facts.StepSeen, seen) if s.total == 30]
    assert [s.step for s in main] == [5, 10, 15, 16, 20, 25, 30]
    assert [s.loss for s in of(facts.StepSeen, seen) if s.fmt == "dict"][:2] == [0.8686, 0.647]
    assert [fact.how for fact in of(facts.DoneSeen, seen)] == ["bar", "words"]
    assert len(of(facts.PhaseSeen, seen)) == 3
    assert not of(facts.TracebackSeen, seen)


def test_the_trainer_of_transformers_without_bars_moves_by_its_epochs() -> None:
    seen = read((LOGS / "hf-trainer-without-bars.log").read_text())
    assert [s.value for s in of(facts.StepSeen, seen)] == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert [fact.how for fact in of(facts.DoneSeen, seen)] == ["words"]


def test_plans_and_evaluations_of_a_talkative_trainer_are_no_training_steps() -> None:
    seen = read((LOGS / "hf-trainer-info.log").read_text())
    bars = [s for s in of(facts.StepSeen, seen) if s.fmt == "bar"]
    assert [s.step for s in bars if s.phase == "training"] == [2, 3, 4, 6, 8, 10, 12, 14, 16]
    assert {s.total for s in bars if s.phase == "evaluating"} == {8}
    assert {s.phase for s in bars if s.total == 8} == {"evaluating"}
    first = next(i for i, fact in enumerate(seen) if isinstance(fact, facts.StepSeen))
    plan = next(i for i, fact in enumerate(seen) if "Total optimization steps" in str(fact))
    assert plan < first


def test_an_empty_bar_is_no_step() -> None:
    assert steps("Processing Samples:   0%|          | 0/50 [00:00<?, ?it/s]") == []


def test_threads_that_print_into_one_another_are_all_named_and_marked() -> None:
    seen = of(facts.TracebackSeen, read((LOGS / "three-threads-at-once.log").read_text()))
    assert sorted(fact.subject for fact in seen) == ["target-0", "target-1", "target-2"]
    assert sorted(fact.exception for fact in seen) == ["KeyError", "RuntimeError", "ValueError"]
    assert all(fact.mixed for fact in seen)


def test_a_pane_that_shows_loading_says_which_target_and_how_long_one_took() -> None:
    seen = of(facts.LoadingSeen, read(LOADING))
    assert (seen[0].total, seen[0].what) == (5, "Loading 5 target models")
    assert [s.took_s for s in seen if s.took_s] == [7.2]
    last = seen[-1]
    assert (last.subject, last.done, last.total, last.finished) == ("target-1", 851, 851, True)
    assert [s.device for s in seen if s.device] == ["cuda:0", "cuda:1"]
    assert not of(facts.StepSeen, read(LOADING))


@pytest.mark.parametrize(
    ("line", "step", "total", "rate", "loss"),
    [
        ("step 120/300  loss 2.345  14.2K tok/s", 120, 300, 14200.0, 2.345),
        ("step=50 loss=0.125 tok/s=690866", 50, None, 690866.0, 0.125),
        ("step 100: train loss 2.3000, val loss 2.4000", 100, None, None, 2.3),
        ("iter 10: loss 2.3012, time 30.12ms, mfu 5.2%", 10, None, None, 2.3012),
        (" 14%|█▍  | 378/2724 [13:58:09<86:18:35, 132.44s/it]", 378, 2724, None, None),
        (
            "Epoch 0:  6%|# | 32040/500150 [6:28:43<94:39:17, 1.37it/s, loss=2.6]",
            32040,
            500150,
            None,
            2.6,
        ),
        ("{'loss': '2.0491', 'step': '40', 'epoch': '0.28'}", 40, None, None, 2.0491),
        ("Epoch: [0][415/1736]     Loss 0.5844 MAE 0.6568", 415, 1736, None, 0.5844),
        (
            " iteration     5426/  250000 | elapsed 4247.9 | lm loss: 1.9E+00",
            5426,
            250000,
            None,
            1.9,
        ),
        ("INFO: [3/1000] Forward GPU memory usage: 8367.72 MB", 3, 1000, None, None),
        ("global_step: 1,200 | tokens_per_second: 12,345.5", 1200, None, 12345.5, None),
        ("12it [00:03,  4.0it/s]", 12, None, None, None),
    ],
)
def test_a_step_line_is_understood(
    line: str, step: int, total: int | None, rate: float | None, loss: float | None
) -> None:
    (seen,) = steps(line)
    assert (seen.step, seen.total, seen.tokens_per_s, seen.loss) == (step, total, rate, loss)


def test_a_dict_that_counts_epochs_only_moves_without_claiming_a_step() -> None:
    seen = steps("{'loss': 2.0, 'epoch': 0.28}", "{'loss': 1.9, 'epoch': 0.29}")
    assert [(s.value, s.step) for s in seen] == [(0.28, None), (0.29, None)]


@pytest.mark.parametrize(
    "line",
    [
        "wrote 5 steps of docs",
        "Bucket 1 [ 770,1216):   4437 batches (  7.4%)",
        "GPU 3 has a total capacity of 139.80 GiB",
        "using lr 0.0001 and 12 layers",
        "http://10.0.0.1:8080/a/b",
        "2026/11/29 [12:30:01] hello",
    ],
)
def test_a_line_that_only_looks_like_a_step_is_none(line: str) -> None:
    assert steps(line) == []


def test_the_same_step_again_is_not_progress() -> None:
    assert len(steps("step 5 loss 1.0", "step 5 loss 1.0", "step 5 loss 1.0")) == 1


def test_workers_that_print_out_of_order_are_no_new_start() -> None:
    seen = steps("step 1 (drafter-0)", "step 3 (drafter-1)", "step 2 (drafter-0)", "step 4")
    assert [(s.step, s.restarted) for s in seen] == [(1, False), (3, False), (4, False)]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 40])
def test_short_epochs_that_count_from_the_start_keep_moving(length: int) -> None:
    lines = [f"step {n} loss 1" for _ in range(4) for n in range(length + 1)]
    assert len(steps(*lines)) == len(lines)


def test_a_counter_that_starts_again_is_marked_as_restarted() -> None:
    assert [s.restarted for s in steps("step 5", "step 6", "step 1")] == [False, False, True]


def test_a_step_that_starts_again_in_the_next_epoch_went_on() -> None:
    seen = steps("epoch 0 iter 9 loss 1", "epoch 1 iter 1 loss 1")
    assert [s.restarted for s in seen] == [False, False]


def test_an_unknown_format_is_learned_from_the_number_that_goes_up() -> None:
    seen = steps(*[f"processed <{n}> of something 42, took {n / 7:.3f} s" for n in range(0, 80, 8)])
    assert [s.fmt for s in seen] == ["learned"] * len(seen)
    assert [s.value for s in seen] == list(range(24, 80, 8))


@pytest.mark.parametrize(
    "line",
    [
        "still waiting, {n} s elapsed",
        "retry number {n}",
        "memory {n} of 90 MB",
        "took {n} s",
        "t={n}ms",
    ],
)
def test_a_number_that_only_measures_time_or_tries_is_not_learned(line: str) -> None:
    assert steps(*[line.format(n=n) for n in range(50)]) == []


def test_a_line_that_repeats_with_only_its_time_moving_is_a_repeat() -> None:
    lines = [f"INFO 05-28 14:{m}:28 no free block found in 60 seconds" for m in range(10, 40)]
    seen = read("\n".join(lines) + "\n")
    assert [fact.count for fact in of(facts.RepeatSeen, seen)] == [3, 10, 30]
    assert not of(facts.StepSeen, seen)


def test_a_bar_that_rewrites_its_line_is_one_line_and_moves() -> None:
    reader = LogReader()
    states = [f"\r{n}%|##   | {n}/100 [00:0{n}<01:00, 1.0it/s]" for n in range(1, 4)]
    seen = reader.feed(sample("".join(states)), 10.0)
    assert [s.step for s in of(facts.StepSeen, seen)] == [1, 2, 3]
    assert not of(facts.LineSeen, seen)
    (rewrite,) = of(facts.RewriteSeen, seen)
    assert (rewrite.moved, rewrite.since_t) == (True, 10.0)
    again = reader.feed(sample(states[-1]), 11.0)
    assert [r.moved for r in of(facts.RewriteSeen, again)] == [False]


def test_a_full_bar_says_done_but_not_one_of_loading_evaluating_or_an_epoch() -> None:
    def done(name: str) -> list[facts.LogFact]:
        return of(facts.DoneSeen, read(f"{name}100%|####| 9/9 [00:01<00:00, 9.0it/s]\n"))

    assert [fact.how for fact in done("")] == ["bar"]
    assert [done(name) for name in ("Loading: ", "Evaluating: ", "Epoch 3: ", "Map: ")] == [[]] * 4


def test_a_small_bar_inside_a_larger_one_does_not_say_done() -> None:
    text = "1%|# | 8/900 [00:01<09:00, 1.0it/s]\n100%|####| 9/9 [00:01<00:00, 9.0it/s]\n"
    assert of(facts.DoneSeen, read(text)) == []


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("2022-07-29 | INFO | fairseq_cli.train | done training in 162.1 seconds", "words"),
        ("Training finished.", "words"),
        ("`Trainer.fit` stopped: `max_epochs=10` reached.", "words"),
        ("{'train_runtime': 10.2, 'train_loss': 0.4}", "words"),
        ("saved final checkpoint to runs/a", "saved"),
        ("done", "bare"),
        ("All done.", "bare"),
        ("Finished!", "bare"),
    ],
)
def test_the_run_says_that_it_is_over(line: str, how: str) -> None:
    assert [fact.how for fact in of(facts.DoneSeen, read(line + "\n"))] == [how]


@pytest.mark.parametrize(
    "line", ["wait until training is finished", "saves when training ended", "start training"]
)
def test_words_about_an_end_to_come_are_no_end(line: str) -> None:
    assert of(facts.DoneSeen, read(line + "\n")) == []


def test_numbers_that_are_not_finite_are_told_as_written() -> None:
    seen = of(facts.NumbersSeen, read("step 9 loss: nan grad_norm: inf\nstep 10 loss: 2.0\n"))
    assert [(fact.what, fact.value) for fact in seen] == [("loss", "nan"), ("grad_norm", "inf")]


def test_a_thread_that_died_is_named_by_its_heading() -> None:
    text = (
        "Exception in thread drafter-1:\nTraceback (most recent call last):\n"
        '  File "threading.py", line 1045, in _bootstrap_inner\n    self.run()\n'
        '  File "train.py", line 5, in work\n    raise ValueError("bad")\n'
        "ValueError: bad\nstep 3 loss 1\n"
    )
    seen = read(text)
    (died,) = of(facts.TracebackSeen, seen)
    assert (died.subject, died.thread, died.exception) == ("drafter-1", "drafter-1", "ValueError")
    assert [s.step for s in of(facts.StepSeen, seen)] == [3]


def test_ranks_that_interleave_their_tracebacks_are_put_together_again() -> None:
    one = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in <module>',
        "ValueError: a",
    ]
    two = [
        "Traceback (most recent call last):",
        '  File "b.py", line 2, in <module>',
        "KeyError: b",
    ]
    text = "".join(
        f"[rank{rank}]: {line}\n"
        for pair in zip(one, two, strict=True)
        for rank, line in enumerate(pair)
    )
    told = {fact.rank: fact for fact in of(facts.TracebackSeen, read(text))}
    assert (told[0].exception, told[1].exception) == ("ValueError", "KeyError")
    assert told[0].subject == "rank-0"
    assert "b.py" not in told[0].text


def test_a_chained_exception_is_one_traceback_and_ends_in_its_last_type() -> None:
    frames = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    seen = of(
        facts.TracebackSeen, read(f"{frames}KeyError: 'a'\n{link}{frames}RuntimeError: b\nnext\n")
    )
    assert [(fact.subject, fact.exception) for fact in seen] == [("main", "RuntimeError")]
    assert "KeyError: 'a'" in seen[0].text


def test_an_exception_that_was_ignored_is_not_fatal() -> None:
    text = (
        "Exception ignored in: <function F.__del__ at 0x7f>\nTraceback (most recent call last):\n"
        '  File "a.py", line 1, in __del__\nAttributeError: x\n'
    )
    assert [fact.fatal for fact in of(facts.TracebackSeen, read(text))] == [False]


def test_a_step_line_after_a_cut_traceback_is_no_exception() -> None:
    text = '  File "a.py", line 1, in f\n    g()\nEpoch 3 starts\nEpoch: [0][415/1736]\n'
    assert of(facts.TracebackSeen, read(text)) == []


def test_a_traceback_that_arrives_in_two_looks_is_whole() -> None:
    reader = LogReader([TUNING_OOM])
    whole = (LOGS / "autotune-oom-two-of-three-targets.log").read_text()
    cut = whole.index("triton/testing.py")
    told = reader.feed(sample(whole[:cut]), 1.0) + reader.feed(sample(whole[cut:]), 2.0)
    assert [fact.subject for fact in of(facts.SignatureSeen, told)] == ["target-1"]


def test_a_traceback_that_never_ends_is_told_as_far_as_it_came() -> None:
    reader = LogReader()
    text = "Exception in thread t-9:\nTraceback (most recent call last):\n"
    text += '  File "a.py", line 1, in f\n'
    told = reader.feed(sample(text), 1.0)
    for t in range(2, 9):
        told += reader.feed(sample(), float(t))
    assert [(f.subject, f.exception) for f in of(facts.TracebackSeen, told)] == [("t-9", "unknown")]


def test_the_exception_is_quoted_and_not_the_source_line_that_raised_it() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
        '    raise OSError("No space left on device")\nOSError: No space left on device\n'
    )
    assert [fact.text for fact in of(facts.SignatureSeen, read(text, DISK))] == [
        "OSError: No space left on device"
    ]


def test_a_signature_in_a_plain_line_names_its_rank() -> None:
    seen = of(facts.SignatureSeen, read("[rank3]: OSError: No space left on device\n", DISK))
    assert [(fact.failure, fact.subject) for fact in seen] == [("disk-full", "rank-3")]


def test_the_first_look_is_dated_by_the_file_and_starts_at_a_whole_line() -> None:
    reader = LogReader()
    seen = reader.feed(sample("tep 12\nstep 13\n", offset=4096, mtime_age_s=60.0), 100.0)
    assert [(s.step, s.t, s.backlog) for s in of(facts.StepSeen, seen)] == [(13, 40.0, True)]
    later = reader.feed(sample("step 14\n", offset=4111, mtime_age_s=0.1), 101.0)
    assert [(s.step, s.t, s.backlog) for s in of(facts.StepSeen, later)] == [(14, 101.0, False)]


def test_a_hole_in_the_text_drops_the_line_that_was_torn_by_it() -> None:
    reader = LogReader()
    reader.feed(sample("step 1\nstep 2", offset=0), 1.0)
    seen = reader.feed(sample("99 loss 1\nstep 7\n", offset=9000, skipped_bytes=8000), 2.0)
    assert [s.step for s in of(facts.StepSeen, seen)] == [7]


@pytest.mark.parametrize("change", [{"truncated": True}, {"inode": 2}, {"offset": 0}])
def test_a_log_that_starts_over_is_told_and_its_torn_line_dropped(
    change: dict[str, object],
) -> None:
    reader = LogReader()
    reader.feed(sample("step 1\nhalf a li", offset=10, inode=1), 1.0)
    seen = reader.feed(sample("step 2\n", **{"offset": 30, "inode": 1, **change}), 2.0)
    assert len(of(facts.LogRestarted, seen)) == 1
    assert [line.text for line in of(facts.LineSeen, seen)] == ["step 2"]


def test_escape_codes_and_direction_marks_never_reach_a_line() -> None:
    text = "\x1b[31mstep 4\x1b[0m \x1b]0;title\x07\u202eevil\x00 loss 1\n"
    assert [f.text for f in of(facts.LineSeen, read(text))] == ["step 4 evil loss 1"]


def test_a_line_of_ten_million_characters_is_read_within_its_limit() -> None:
    reader = LogReader([TUNING_OOM, DISK])
    for _ in range(160):
        reader.feed(sample("9" * 65536), 1.0)
    assert len(reader.partial) == LINE_LIMIT
    assert [s.step for s in of(facts.StepSeen, reader.feed(sample("\nstep 3\n"), 2.0))] == [3]


@pytest.mark.parametrize("blob", [bytes(range(256)) * 64, b"\xff\xfe" * 3000, b"\xe2\x96" * 3000])
def test_binary_rubbish_is_read_without_an_exception(blob: bytes) -> None:
    seen = read(blob.decode(errors="replace"), TUNING_OOM, DISK)
    assert all(line.text.isprintable() for line in of(facts.LineSeen, seen))


TOKENS = st.sampled_from(
    [
        "\n", "\r", "\r\n", "\x1b[", "31m", "\x1b]0;", "\x07", "step 3",
        "100%|##| 3/9 [00:01<00:02]",
        "Traceback (most recent call last):\n", '  File "a.py", line 1, in f\n', "ValueError: x\n",
        "Exception in thread T-1:\n", "target 2 DIED OutOfMemoryError\n", "[rank1]: ",
        "loss: nan",
        "\nThe above exception was the direct cause of the following exception:\n\n",
    ]
)  # fmt: skip


@given(st.lists(st.one_of(TOKENS, st.text(max_size=12)), max_size=40), st.integers(1, 7))
def test_any_text_in_any_pieces_gives_the_same_lines(words: list[str], size: int) -> None:
    text = "".join(words)
    torn = LogReader([TUNING_OOM, DISK])
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    seen = [fact for piece in pieces for fact in torn.feed(sample(piece), 1.0)]
    whole = read(text, TUNING_OOM, DISK)
    assert [f.text for f in of(facts.LineSeen, seen)] == [f.text for f in of(facts.LineSeen, whole)]
    assert all(f.text.isprintable() for f in of(facts.LineSeen, whole))
