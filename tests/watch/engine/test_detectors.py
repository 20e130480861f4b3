"""Every detector: its examples hold, its documentation stands, nothing comes of nothing."""

from __future__ import annotations

import importlib

import pytest
from dflash_watch.detectors import catalogue, run_all
from dflash_watch.detectors.base import Detector, Example
from dflash_watch.detectors.examples import build_view, example, stacks, stuck_after, thread, worker
from dflash_watch.model import Inconclusive, Symptom
from dflash_watch.readers.facts import Signature

DETECTORS = sorted(catalogue().items())
SIGNATURES = (
    Signature(failure="kernels-missing", pattern="fast path is not available"),
    Signature(failure="cuda-oom", pattern="CUDA out of memory"),
    Signature(failure="triton-autotune-oom", pattern="do_bench.*out of memory", multiline=True),
)


def answers(detector: Detector, example: Example) -> list[Symptom]:
    view = build_view(example, signatures=SIGNATURES)
    found = list(detector.detect(view, detector.params))
    return [one for one in found if isinstance(one, Symptom)]


@pytest.mark.parametrize(("name", "detector"), DETECTORS)
def test_its_firing_example_fires_for_the_subject_it_names(name, detector):
    example = detector.firing()
    assert example.subject in {one.subject for one in answers(detector, example)}


@pytest.mark.parametrize(("name", "detector"), DETECTORS)
def test_its_clear_example_yields_no_symptom(name, detector):
    assert answers(detector, detector.clear()) == []


@pytest.mark.parametrize(("name", "detector"), DETECTORS)
def test_an_empty_window_never_yields_a_symptom(name, detector):
    assert answers(detector, Example(records=())) == []


@pytest.mark.parametrize(("name", "detector"), DETECTORS)
def test_asking_twice_gives_the_same_answer(name, detector):
    view = build_view(detector.firing(), signatures=SIGNATURES)
    first = list(detector.detect(view, detector.params))
    assert list(detector.detect(view, detector.params)) == first


@pytest.mark.parametrize(("name", "detector"), DETECTORS)
def test_no_symptom_begins_in_the_future_and_every_one_has_evidence(name, detector):
    example = detector.firing()
    now_t = build_view(example).now_t
    for one in answers(detector, example):
        assert one.since_t <= now_t
        assert one.evidence
        assert one.summary


def test_every_detector_is_documented_in_four_lines_and_a_first_line_of_its_own():
    first_lines = set()
    for name, _ in DETECTORS:
        module = importlib.import_module(f"dflash_watch.detectors.{name.replace('-', '_')}")
        lines = (module.__doc__ or "").splitlines()
        first_lines.add(lines[0])
        heads = [line.split(":")[0] for line in lines if line and not line.startswith(" ")]
        assert heads[1:] == ["Sees", "Means", "Wrong when", "Source"], name
    assert len(first_lines) == len(DETECTORS)


def test_a_rule_that_fails_is_reported_and_stops_no_other(monkeypatch):
    def broken(view, params):
        raise KeyError("x")
        yield

    found = dict(catalogue())
    good = found["link-lost"]
    found["work-still"] = Detector(detect=broken, params=None, firing=good.firing, clear=good.clear)
    monkeypatch.setattr("dflash_watch.detectors.catalogue", lambda: found)
    symptoms, inconclusive = run_all(build_view(good.firing()))
    assert {"link-lost", "rule-failed"} <= {one.name for one in symptoms}
    assert any(isinstance(one, Inconclusive) and "KeyError" in one.missing for one in inconclusive)


@pytest.mark.parametrize("beside", ["nobody", "tqdm_monitor"])
def test_a_thread_that_works_alone_holds_the_interpreter_lock_from_nobody(beside):
    detector = catalogue()["gil-owner-fixed"]
    silent = stuck_after(14, 12, lambda s: worker("drafter-0", s, step=14))
    works = thread(12, "run.py:work", name="MainThread", owns_gil=True)
    monitor = thread(13, "/site/tqdm/_monitor.py:run", name="Thread-1")
    threads = (works,) if beside == "nobody" else (works, monitor)
    alone = example(silent, stacks("A", 23, *threads), stacks("B", 26, *threads))
    assert answers(detector, alone) == []
