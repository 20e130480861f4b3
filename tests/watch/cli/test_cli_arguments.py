"""The command line as a table: what it means, and what is answered when it means nothing."""

import pytest
from dflash_watch.cli import PARSERS, run_command
from dflash_watch.commands import arguments
from dflash_watch.commands.request import build_request
from dflash_watch.errors import UsageError
from dflash_watch.place import Place, TargetChoice


def request(*words: str):
    return build_request(arguments.watch_parser().parse(words))


def test_nothing_typed_means_the_newest_run_of_this_machine():
    asked = request()
    assert asked.place == Place()
    assert asked.target == TargetChoice()
    assert asked.options.where == "this machine"


def test_the_command_of_the_readme_means_ssh_and_a_container():
    asked = request("--host", "10.1.2.6", "--ct", "200")
    assert asked.place == Place(host="10.1.2.6", entry="pct", entry_arg="200")
    assert asked.options.where == "10.1.2.6 · ct 200"


def test_a_prefix_is_an_argument_list():
    asked = request("--exec", "kubectl exec -i 'my pod' --")
    assert asked.place.exec_prefix == ("kubectl", "exec", "-i", "my pod", "--")


def test_what_the_person_says_about_the_run_travels_with_every_capture():
    asked = request("--roles", "target=0-1,drafter=2", "--expect-tokens-per-s", "14.2k")
    assert asked.options.roles == {"target": (0, 1), "drafter": (2,)}
    assert asked.options.expect_tokens_per_s == 14200


def test_a_path_on_another_machine_stays_as_typed():
    asked = request("--host", "box", "--run-dir", "~/runs/a")
    assert asked.target.run_dir == "~/runs/a"


def test_a_path_on_this_machine_is_made_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert request("--run-dir", "runs/a").target.run_dir == str(tmp_path / "runs/a")
    assert request("--log", "a.log").options.watched_log == str(tmp_path / "a.log")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--hots", "x"], "unknown option --hots; did you mean --host?"),
        (["--run_dir=x"], "unknown option --run_dir; did you mean --run-dir?"),
        (["--zzz"], "unknown option --zzz; see dflash-watch --help"),
        (["chek"], "unknown command 'chek'; did you mean check?"),
        (["serv"], "unknown command 'serv'"),
        (["root@10.1.2.6"], "for a host write dflash-watch --host root@10.1.2.6"),
        (["--json", "check"], "'check' stands after the options; write dflash-watch check"),
        (["--json", "--plain"], "not allowed with argument --json"),
        (["--pid", "1", "--run-dir", "x"], "not allowed with argument --pid"),
        (["--ct", "200", "--docker", "x"], "not allowed with argument --ct"),
        (["--host"], "--host: expected one argument"),
        (["check", "--record", "x"], "unknown option --record"),
        (["replay"], "the following arguments are required: CAPTURE"),
        (["explain", "a", "b"], "'b' is one word too many"),
        (["explain", "pipline-deadlock"], "did you mean pipeline-deadlock?"),
        (["explain", "staled"], "did you mean stalled?"),
        (["explain", "log-silnt"], "did you mean log-silent?"),
        (["explain", "gpu-view"], "did you mean gpu-view-lost"),
        (["explain", "zzz"], "see dflash-watch explain for the list"),
        (
            ["--plain", "--on-stall", "no-such-program x"],
            "no program no-such-program on this machine",
        ),
        (["--plain", "--on-stall", "sh no-such.sh"], "--on-stall: no file no-such.sh for sh"),
        (["--plain", "--ssh-config", "no-such-file"], "--ssh-config: no-such-file: No such file"),
        (["check", "--ct", "train"], "--ct: 'train' is not the number of a container"),
        (["incidents", "--incidents", "/no/such"], "--incidents: /no/such is not there"),
        (["incidents", "--journal", "--incidents", "/no/such"], "/no/such is not there"),
        (["incidents", "--incidents", "/dev/null"], "--incidents: /dev/null is no folder"),
        (["--demo", "--plain"], "--demo: only the dashboard has scenes; write --demo alone"),
        (["--publish-f", "3"], "unknown option --publish-f"),
    ],
)
def test_a_wrong_command_line_is_answered_with_the_next_step(words, told):
    with pytest.raises(UsageError) as refused:
        run_command(words)
    assert told in str(refused.value)
    assert refused.value.exit_code == 64


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("pipeline-deadlock", "pipeline-deadlock: The workers wait for each other"),
        ("Pipeline_Deadlock", "pipeline-deadlock: The workers wait for each other"),
        ("stalled", "stalled: alive, no progress, will not recover by itself"),
        ("log-silent", "log-silent: a symptom"),
    ],
)
def test_every_kind_of_word_on_the_screen_is_explained(capfd, word, told):
    assert run_command(["explain", word]) == 0
    assert capfd.readouterr().out.startswith(f"{told}\n")


@pytest.mark.parametrize("command", [None, *PARSERS])
def test_help_fits_a_screen_and_hides_what_is_not_for_people(command):
    build = arguments.watch_parser if command is None else PARSERS[command]
    text = build().format_help()
    assert len(text.splitlines()) <= 56
    assert max(map(len, text.splitlines())) <= 100
    assert "publish" not in text
