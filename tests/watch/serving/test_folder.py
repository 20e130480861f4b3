"""Names and sockets of servers: private, found while they live, free again however they ended."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from dflash_watch.place import Place, TargetChoice
from dflash_watch.serving.folder import (
    LONGEST_NAME,
    Card,
    address,
    claim,
    find_servers,
    opened,
    served_name,
    server_folders,
    viewer_folders,
)

ROOT = Path(__file__).resolve().parents[3]
LONG_S = 60.0
CT = Place(host="10.1.2.6", entry="pct", entry_arg="200")


def card(name: str = "a", key: str = "k") -> Card:
    return Card(name=name, pid=os.getpid(), key=key, what="this machine", since_t=1.0)


@pytest.fixture
def taken(tmp_path):
    made = claim(tmp_path / "serve", card())
    yield made
    made.release()


@pytest.mark.parametrize(
    ("place", "target", "name", "wanted"),
    [
        (Place(), TargetChoice(), None, "local"),
        (Place(), TargetChoice(run_dir="/data/runs/demo/"), None, "demo"),
        (Place(), TargetChoice(pid=4711), None, "pid-4711"),
        (CT, TargetChoice(), None, "10.1.2.6-ct-200"),
        (CT, TargetChoice(log="/var/log/train.log"), None, "10.1.2.6-ct-200-train.log"),
        (CT, TargetChoice(), "night run", "night-run"),
        (Place(host="../../etc"), TargetChoice(match="a/b; rm *"), None, "etc-a-b-rm"),
        (Place(), TargetChoice(match="/" * 9), None, "local"),
    ],
)
def test_a_name_can_be_typed_and_is_no_path(place, target, name, wanted):
    assert served_name(place, target, name) == wanted


def test_a_name_has_an_end():
    assert len(served_name(Place(), TargetChoice(match="x" * 500), None)) == LONGEST_NAME


def test_folder_card_and_socket_are_for_their_owner_only(taken):
    made = [taken.folder, *taken.folder.iterdir()]
    modes = {one.name: stat.S_IMODE(one.lstat().st_mode) for one in made}
    assert modes == {"serve": 0o700, "a.json": 0o600, "a.sock": 0o600}


def test_a_folder_that_others_may_read_is_closed_to_them_first(tmp_path):
    (tmp_path / "serve").mkdir(mode=0o755)
    claim(tmp_path / "serve", card()).release()
    assert stat.S_IMODE((tmp_path / "serve").stat().st_mode) == 0o700


def test_a_folder_behind_a_link_is_not_used(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "serve").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="serve"):
        claim(tmp_path / "serve", card())


def test_a_folder_in_which_others_may_write_is_not_looked_into(taken):
    taken.folder.chmod(0o777)
    assert find_servers([taken.folder]) == []


def test_one_that_lives_is_found_and_its_name_is_not_given_again(taken):
    (found,) = find_servers([taken.folder])
    assert (found.card, found.folder) == (card(), taken.folder)
    assert claim(taken.folder, card()) is None


def test_one_that_ended_leaves_nothing(taken):
    taken.shut()
    again = claim(taken.folder, card("b"))
    again.release()
    assert sorted(one.name for one in taken.folder.iterdir()) == ["a.json", "a.sock"]
    assert [one.card.name for one in find_servers([taken.folder])] == ["a"]


KILLED = """
import os, sys
from pathlib import Path
from dflash_watch.serving.folder import Card, claim
made = claim(Path(sys.argv[1]), Card(name="a", pid=os.getpid(), key="k", what="", since_t=0.0))
print("taken", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_one_left_is_recognised_and_replaced(tmp_path):
    folders = os.pathsep.join(str(ROOT / name) for name in ("dflash", "watchdog"))
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "serve")], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": folders},
    )  # fmt: skip
    assert process.stdout.readline() == "taken\n"
    assert [one.card.pid for one in find_servers([tmp_path / "serve"])] == [process.pid]
    process.kill()
    process.communicate()
    assert (tmp_path / "serve" / "a.sock").exists()
    assert find_servers([tmp_path / "serve"]) == []
    again = claim(tmp_path / "serve", card())
    try:
        assert [one.card.pid for one in find_servers([tmp_path / "serve"])] == [os.getpid()]
    finally:
        again.release()


def test_a_path_of_any_length_has_a_socket(tmp_path):
    folder = tmp_path / ("deep" * 50) / "serve"
    made = claim(folder, card())
    try:
        link = socket.socket(socket.AF_UNIX)
        with link, opened(folder) as descriptor:
            link.connect(address(descriptor, "a"))
    finally:
        made.release()
    assert len(str(folder)) > 108


@pytest.mark.parametrize("text", [b"", b"[]", b"\xff\0", b'{"name": "other"}', b"[" * 9999])
def test_a_card_that_is_none_is_no_server_and_in_nobodys_way(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text)
    (tmp_path / "pipe.json").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo.json")
    tmp_path.chmod(0o700)
    assert find_servers([tmp_path]) == []
    made = claim(tmp_path, card("x"))
    assert [one.card.name for one in find_servers([tmp_path])] == ["x"]
    made.release()


def test_systemds_folder_comes_before_the_logins_and_that_before_the_state_directory(tmp_path):
    given = {"RUNTIME_DIRECTORY": "/run/dflash-watch:/run/b", "XDG_RUNTIME_DIR": "/run/user/7"}
    state = tmp_path / "state"
    told = [str(one) for one in server_folders(given, state)]
    assert told == ["/run/dflash-watch", "/run/user/7/dflash-watch", str(state / "serve")]
    assert server_folders({}, state) == [state / "serve"]
    assert set(viewer_folders({}, state)) >= {state / "serve", Path("/run/dflash-watch")}
