"""Learned limits between two watchings."""

import json
import os
from pathlib import Path

import pytest
from dflash_watch.clock import SystemClock
from dflash_watch.commands.learned import (
    MOST_PROFILES,
    LimitsKeeper,
    limits_path,
    profiles_path,
    read_limits,
    read_profiles,
)
from dflash_watch.commands.stored import Writer
from dflash_watch.limits import LearnedLimits
from dflash_watch.place import Place, TargetChoice
from dflash_watch.profiles import Profile

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


def keep(tmp_path, key: str, used_t: float) -> None:
    keeper = LimitsKeeper(limits_path(tmp_path, HERE, RUN), SystemClock(), profiles_path(tmp_path))
    profile = Profile(limit_s=9.0, steps=50, phases={"saving": 3.0}, used_t=used_t)
    keeper.close(learned(), LONG_S, (key, profile))


def test_profiles_of_commands_are_kept_beside_each_other_for_their_owner_only(tmp_path):
    for number, key in enumerate(("one", "two")):
        keep(tmp_path, key, float(number))
    found = read_profiles(profiles_path(tmp_path))
    assert {key: one.limit_s for key, one in found.items()} == {"one": 9.0, "two": 9.0}
    assert found["two"].phases == {"saving": 3.0}


def test_commands_not_seen_for_longest_are_forgotten(tmp_path):
    path = profiles_path(tmp_path)
    for number in range(MOST_PROFILES + 3):
        LimitsKeeper(limits_path(tmp_path, HERE, RUN), SystemClock(), path)._write(
            {"profile": (str(number), Profile(limit_s=9.0, steps=9, phases={}, used_t=number))}
        )
    found = read_profiles(path)
    assert len(found) == MOST_PROFILES
    assert "0" not in found


def test_profiles_that_cannot_be_read_are_none(tmp_path):
    path = profiles_path(tmp_path)
    assert read_profiles(path) == {}
    for text in ("[]", '{"profiles": 3}', '{"profiles": {"a": 7}}', "\0\xff"):
        path.write_text(text)
        assert read_profiles(path) == {}


DEEP, WILD = "[" * 200_000, "1" + "0" * 400


@pytest.mark.parametrize(
    "text",
    [
        DEEP,
        f'{{"profiles": {{"a": {{"limit_s": 5, "steps": 1, "phases": {{}}, "used_t": {WILD}}}}}}}',
        f'{{"profiles": {{"a": {{"limit_s": {WILD}, "steps": {WILD}, "phases": {{}}}}}}}}',
        f'{{"identity": 5, "gaps": {{"a": [{WILD}]}}, "steps": {{"a": {WILD}}}, "over_s": 1}}',
        '{"identity": [1], "gaps": 5, "steps": [], "over_s": null, "phases": "x"}',
    ],
)
def test_files_of_anybody_end_nothing_and_are_written_anew(text, tmp_path):
    for name in ("limits.json", "profiles.json"):
        (tmp_path / name).write_text(text)
    read_limits(tmp_path / "limits.json")
    read_profiles(tmp_path / "profiles.json")
    keeper = LimitsKeeper(tmp_path / "limits.json", SystemClock(), tmp_path / "profiles.json")
    profile = Profile(limit_s=1.0, steps=9, phases={}, used_t=5.0)
    keeper.close(learned(), 5, ("mine", profile))
    assert read_limits(tmp_path / "limits.json").identity == "run/7/100"
    assert read_profiles(tmp_path / "profiles.json")["mine"] == profile


def test_a_pipe_or_a_folder_in_their_place_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").write_bytes(bytes(2 << 20))
    for path in (tmp_path / "pipe", tmp_path / "huge", tmp_path, Path("/dev/zero")):
        assert read_limits(path) is None
        assert read_profiles(path) == {}


def test_what_a_later_version_learned_is_neither_understood_nor_overwritten(tmp_path):
    newer = json.dumps({"schema": 2, "profiles": {}, "identity": "run/7/100", "gaps": {}})
    limits, profiles = tmp_path / "limits.json", tmp_path / "profiles.json"
    for path in (limits, profiles):
        path.write_text(newer)
    assert read_limits(limits) is None
    keeper = LimitsKeeper(limits, SystemClock(), profiles)
    keeper.close(learned(), 5, ("mine", Profile(limit_s=1.0, steps=9, phases={}, used_t=5.0)))
    assert limits.read_text() == profiles.read_text() == newer


def test_limits_are_kept_again_once_the_disk_takes_them(tmp_path):
    path = limits_path(tmp_path, HERE, RUN)
    (tmp_path / "limits").write_text("a file where the folder should be")
    writer = Writer("learned limits not kept")
    writer.put(path, learned().to_data())
    (tmp_path / "limits").unlink()
    writer.put(path, learned().to_data())
    assert read_limits(path) is not None
