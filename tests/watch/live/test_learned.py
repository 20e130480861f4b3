"""Learned limits between two watchings."""

from dflash_watch.clock import SystemClock
from dflash_watch.commands.learned import LimitsKeeper, limits_path, read_limits
from dflash_watch.limits import LearnedLimits
from dflash_watch.place import Place, TargetChoice

LONG_S = 60.0
HERE, RUN = Place(), TargetChoice(pid=7)


def learned(identity: str | None = "run/7/100") -> LearnedLimits:
    limits = LearnedLimits(identity)
    for _ in range(10):
        limits.observe("training", 1.5)
    return limits


def test_what_was_learned_is_read_back_by_the_same_command_line(tmp_path):
    path = limits_path(tmp_path, HERE, RUN)
    LimitsKeeper(path, SystemClock()).close(learned(), LONG_S)
    again = read_limits(limits_path(tmp_path, Place(), TargetChoice(pid=7)))
    assert again is not None
    assert again.to_data() == learned().to_data()


def test_another_place_or_run_has_limits_of_its_own(tmp_path):
    paths = {
        limits_path(tmp_path, place, target)
        for place in (HERE, Place(host="box"), Place(host="box", entry="pct", entry_arg="200"))
        for target in (RUN, TargetChoice(), TargetChoice(run_dir="7"))
    }
    assert len(paths) == 9


def test_limits_of_no_run_are_not_kept(tmp_path):
    path = limits_path(tmp_path, HERE, RUN)
    LimitsKeeper(path, SystemClock()).close(learned(identity=None), LONG_S)
    assert not path.exists()


def test_what_cannot_be_read_is_nothing_learned(tmp_path):
    path = tmp_path / "a.json"
    assert read_limits(path) is None
    for text in ('{"gaps": ', "[]", "\0\xff"):
        path.write_text(text)
        assert read_limits(path) is None


def test_a_disk_that_refuses_is_said_once_and_stops_nothing(tmp_path, caplog):
    (tmp_path / "limits").write_text("a file where the folder should be")
    keeper = LimitsKeeper(limits_path(tmp_path, HERE, RUN), SystemClock())
    keeper.close(learned(), LONG_S)
    assert caplog.text.count("learned limits not kept") == 1
