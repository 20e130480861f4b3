"""Viewers come and go, stop reading, and ask for too much; the watching does not notice."""

import json
import os
import socket
import threading
import time

import msgspec
import pytest
from dflash_watch.errors import UsageError, WatchError
from dflash_watch.model import Snapshot, Verdict
from dflash_watch.serving import hall as hall_module
from dflash_watch.serving import visit as visit_module
from dflash_watch.serving.folder import Card, Served, claim, find_servers
from dflash_watch.serving.hall import Greeting, Hall, refusal
from dflash_watch.serving.visit import choose_server, listing, reopen, visit

LONG_S = 60.0


def snapshot(t: float, ballast: str = "") -> Snapshot:
    return Snapshot(
        t=t, run="r", verdict=Verdict.RUNNING, since_t=0.0, failure="healthy", summary=ballast
    )


def until(holds, what: str) -> None:
    end_s = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.01)


class House:
    """A hall with its name, and its viewers."""

    def __init__(self, folder) -> None:
        card = Card(name="a", pid=os.getpid(), key="k", what="this machine", since_t=5.0)
        self.claim, self.orders = claim(folder, card), []
        self.hall = Hall(self.claim, lambda order: self.orders.append(dict(order)))
        self.served = Served(card=card, folder=folder)
        self.links = []

    def come(self) -> socket.socket:
        self.links.append(visit(self.served))
        self.links[-1].settimeout(LONG_S)
        return self.links[-1]

    def viewers(self) -> int:
        return len(self.hall._viewers)

    def close(self) -> None:
        for link in self.links:
            link.close()
        self.hall.close(0.2)
        self.claim.release()


@pytest.fixture
def house(tmp_path):
    made = House(tmp_path / "serve")
    yield made
    made.close()


def first(link: socket.socket) -> Snapshot:
    with link.makefile("rb") as lines:
        return msgspec.json.decode(lines.readline(), type=Snapshot)


def test_who_comes_gets_the_newest_at_once_and_knows_whose_guest_it_is(house):
    house.hall(snapshot(1.0))
    house.hall(snapshot(2.0))
    told = first(house.come())
    assert told.t == 2.0
    assert (told.serving.name, told.serving.pid) == ("a", os.getpid())


def test_all_get_the_same_and_are_counted(house):
    links = [house.come() for _ in range(3)]
    until(lambda: house.viewers() == 3, "three viewers")
    house.hall(snapshot(3.0))
    assert {(one.t, one.serving.viewers) for one in map(first, links)} == {(3.0, 3)}


def test_one_that_does_not_read_holds_up_neither_the_others_nor_the_watching(house):
    stalled, reading = house.come(), house.come()
    until(lambda: house.viewers() == 2, "two viewers")
    got = []

    def read() -> None:
        with reading.makefile("rb") as lines:
            got.extend(json.loads(line)["t"] for line in lines)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for number in range(1, 101):  # 100 MB for one that takes none of it
        house.hall(snapshot(float(number), "x" * 1_000_000))
    until(lambda: got and got[-1] == 100.0, "the newest, for the one that reads")
    waiting = [len(one._outlet._waiting) for one in house.hall._viewers.values()]
    assert max(waiting) <= 1
    stalled.close()
    until(lambda: house.viewers() == 1, "the stalled one's end")


def test_a_viewer_that_leaves_is_forgotten_and_its_name_is_free_for_another(house):
    for _ in range(3):
        house.come().close()
    until(lambda: house.viewers() == 0, "the end of all three")
    house.hall(snapshot(4.0))
    assert first(house.come()).t == 4.0


def test_orders_of_viewers_come_through_and_none_of_them_ends_the_watching(house):
    house.come().sendall(b'{"op": "quit"}\n{"op": "stacks"}\nrubbish\n{"op": "retry"}\n')
    until(lambda: len(house.orders) >= 2, "two orders")
    assert house.orders == [{"op": "stacks"}, {"op": "retry"}]


def test_closing_hangs_up_on_all_also_on_one_that_does_not_read(house):
    stalled = house.come()
    until(lambda: house.viewers() == 1, "the viewer")
    house.hall(snapshot(1.0, "x" * 4_000_000))
    house.hall.close(0.2)
    assert house.viewers() == 0
    with stalled.makefile("rb") as lines:
        assert not lines.read().endswith(b"\n")


def test_nobody_comes_in_once_it_is_closed(house):
    house.hall.close(0.0)
    with pytest.raises(WatchError, match="the watcher a"):
        visit(house.served)
    assert reopen(house.served) is None


def test_more_viewers_than_there_is_room_for_are_told_so(house, monkeypatch):
    monkeypatch.setattr(hall_module, "MOST_VIEWERS", 1)
    house.come()
    until(lambda: house.viewers() == 1, "the first")
    with pytest.raises(WatchError, match="lets you not in: 1 viewers are there already"):
        visit(house.served)


def test_another_user_is_told_whose_it_is_and_root_may_come():
    me = os.geteuid()
    assert refusal(me, 0) is None
    assert refusal(0, 0) is None
    assert refusal(me + 1, 0) == f"it belongs to user {me}, you are {me + 1}"


def test_a_server_of_another_protocol_is_one_line_with_both_versions(house, monkeypatch):
    monkeypatch.setattr(hall_module, "PROTOCOL", 99)
    with pytest.raises(WatchError) as told:
        visit(house.served)
    assert "(protocol 99), this is" in str(told.value)
    assert str(told.value).endswith("start it again with this version, or attach with its own")


def test_a_server_that_does_not_answer_is_named_after_a_while(tmp_path):
    card = Card(name="a", pid=7, key="k", what="", since_t=0.0)
    taken = claim(tmp_path, card)
    try:
        with pytest.raises(WatchError, match=r"a \(pid 7\) has not answered for 0.2 s"):
            visit(Served(card=card, folder=tmp_path), answer_s=0.2)
    finally:
        taken.release()


@pytest.mark.parametrize("line", [b"SSH-2.0-x\n", b'{"a": 1}\n', b"\xff\n", b"x" * 9999])
def test_what_answers_and_is_no_watcher_is_said(tmp_path, line):
    card = Card(name="a", pid=7, key="k", what="", since_t=0.0)
    taken = claim(tmp_path, card)

    def answer() -> None:
        link, _ = taken.door.accept()
        link.send(line)
        link.close()

    threading.Thread(target=answer, daemon=True).start()
    try:
        with pytest.raises(WatchError, match=r"no dflash-watch|hung up before"):
            visit(Served(card=card, folder=tmp_path))
    finally:
        taken.release()


def test_a_greeting_of_later_may_say_more():
    line = b'{"protocol": 1, "version": "9", "name": "a", "new": [1]}'
    assert msgspec.json.decode(line, type=Greeting).name == "a"
    assert visit_module.PROTOCOL == 1


def served(name: str) -> Served:
    return Served(
        card=Card(name=name, pid=1, key="k", what=f"host {name}", since_t=0.0), folder=None
    )


def test_the_only_server_needs_no_name_and_several_are_listed_with_what_to_type():
    one, other = served("one"), served("other")
    assert choose_server([one], None) is one
    assert choose_server([one, other], "other") is other
    with pytest.raises(UsageError, match="2 watchers are served here; type one of these lines"):
        choose_server([one, other], None)
    assert listing([one, other]) == [
        "dflash-watch attach one     host one", "dflash-watch attach other   host other"
    ]  # fmt: skip
    with pytest.raises(UsageError, match="no watcher 'x' is served here; there is: one, other"):
        choose_server([one, other], "x")
    with pytest.raises(WatchError, match="start one: dflash-watch serve"):
        choose_server([], None)


def test_nothing_is_found_where_nothing_is(tmp_path):
    assert find_servers([tmp_path / "nowhere", tmp_path]) == []


@pytest.mark.parametrize(
    "bad", [b'{"op": ["stacks"]}', b'{"op": {}}', b'{"op": null}', b"{}", b"[" * 9000, b"\xff\0"]
)
def test_an_order_that_is_none_costs_nothing_and_the_next_one_counts(house, bad):
    link = house.come()
    link.sendall(bad + b'\n{"op": "retry"}\n')
    until(lambda: house.orders, "the order behind it")
    assert house.orders == [{"op": "retry"}]
