"""A lasting look at one run: connects, sends the agent, hands out records, comes back after a loss.

Everything happens in one daemon thread; `get` and the requests may be called from any other.
Trouble on the way is a `LinkChange`, never a statement about the run.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from dflash_watch.clock import Clock
from dflash_watch.errors import UsageError, WatchError
from dflash_watch.frame import Frame, Hello, LinkChange, Record, StackSample
from dflash_watch.journal import Note, note_nothing
from dflash_watch.offer import ToolOffer
from dflash_watch.place import Place, TargetChoice
from dflash_watch.transport import way
from dflash_watch.transport.agent_link import AgentLink, Entering, agent_config
from dflash_watch.transport.ask import Ask, ask_on_terminal, remembering
from dflash_watch.transport.backoff import STEADY_S, delay_s
from dflash_watch.transport.base import Host, Reason, Stream, TransportError
from dflash_watch.transport.greeting import Reply, agree, read_word
from dflash_watch.transport.host_side import HostSide, host_config, is_wanted
from dflash_watch.transport.program import Program, build_program

_WAIT_S = 0.1
_LOOK_S = 5.0
_QUEUE = 300
_STACKS_S = 30.0
_CONTAINER = (Reason.CONTAINER_FROZEN, Reason.CONTAINER_STOPPED, Reason.CONTAINER_MISSING)


class _Wanted(msgspec.Struct, frozen=True):
    """A stack sample that was asked for and has not come."""

    pid: int
    label: str
    until_s: float
    native: bool = False


class Session:
    """Records of one run at one place, for as long as it is open.

    Args:
        place: the way there.
        target: which run.
        every_s: seconds between frames.
        clock: this machine's.
        ask: where a secret is asked for; by default the terminal, if a person sits there.
        program: what is run over there; our agent by default.
        early: that program's script, started at the place already (`way.enter_early`). Should it
            not get as far as a first word, the way is gone again from its start.
        note: where it is noted what is done to the machine over there.
    """

    def __init__(  # noqa: PLR0913 - the last four are for `check` and for tests
        self,
        place: Place,
        target: TargetChoice,
        every_s: float,
        clock: Clock,
        *,
        ask: Ask = ask_on_terminal,
        program: Callable[[], Program] = build_program,
        early: Stream | None = None,
        note: Note = note_nothing,
    ) -> None:
        self._place, self._target, self._every_s, self._clock = place, target, every_s, clock
        self._ask, self._build, self._note = remembering(ask), program, note
        self._records: queue.Queue[Record] = queue.Queue(_QUEUE)
        self._orders: queue.Queue[_Wanted | float] = queue.Queue()
        self._wanted: dict[int, _Wanted] = {}
        self._closing, self._retry = threading.Event(), threading.Event()
        self._host: Host | None = None
        self._early = early
        self._side: HostSide | None = None
        self._link: AgentLink | None = None
        self._hello: Hello | None = None
        self._was_up = False
        self._offer = ToolOffer(note, clock)
        self._loss: str | None = None
        self._attempt, self._last_seq = 0, -1
        self._entering = Entering(self._explain)
        self._begun_s = clock.monotonic_s()
        self._up_s: float | None = None
        self._host_t: float | None = None
        self.passed_over: Counter[str] = Counter()
        """Kinds of records that only a newer version knows -> how many came."""
        self.error: WatchError | None = None
        """Why it gave up for good, if it did."""
        self._thread = threading.Thread(target=self._run, name="session", daemon=True)
        self._thread.start()

    # -- for the caller --------------------------------------------------------------------------

    def get(self, timeout_s: float) -> Record | None:
        """The next record, None when none came in time.

        Raises:
            EOFError: there will be no more.
        """
        try:
            return self._records.get(timeout=max(timeout_s, 0.0))
        except queue.Empty:
            if self._closing.is_set():
                raise EOFError from None
            return None

    @property
    def is_over(self) -> bool:
        """Closed, or given up for good, and everything has been taken."""
        return self._closing.is_set() and self._records.empty()

    def request_stacks(self, pid: int, label: str, *, native: bool = False) -> None:
        """Ask for a stack sample; exactly one arrives as a record, with `error` if it failed.

        Args:
            pid: the process, as counted over there.
            label: handed back.
            native: C frames too, for which the process is stopped a moment.
        """
        until_s = self._clock.monotonic_s() + _STACKS_S
        self._orders.put(_Wanted(pid, label, until_s, native))
        self._wake()

    def set_pace(self, every_s: float) -> None:
        """Seconds between frames from now on, over reconnects too."""
        self._every_s = every_s
        self._orders.put(every_s)
        self._wake()

    def retry_now(self) -> None:
        """Do not wait for the next attempt to connect."""
        self._retry.set()

    def close(self) -> None:
        """End the agent and let go, within a second whatever the other side does."""
        self._closing.set()
        self._retry.set()
        self._wake()
        self._thread.join(0.95)

    def _wake(self) -> None:
        """What was ordered is done now, not when the next bytes come."""
        if (link := self._link) is not None:
            link.wake()

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._attempt_once()
        finally:  # whatever ends this thread, nobody shall wait for records any longer
            self._closing.set()
            self._let_go()

    def _attempt_once(self) -> None:
        was_early = self._early is not None and self._place.host is not None
        self._begun_s, self._up_s = self._clock.monotonic_s(), None
        try:
            self._serve()
        except UsageError as error:
            self._give_up(error)
        except TransportError as error:
            if was_early and not self._was_up and error.reason is not Reason.TIMEOUT:
                return  # OpenSSH's client did not get in: the way of our own knows why
            if error.permanent and not self._was_up:
                self._give_up(error)
            elif not self._closing.is_set():
                self._wait_after(error)

    def _serve(self) -> None:
        """One agent from start to end; returns when closing."""
        program = self._build()
        stream, now_s = self._enter(program), self._clock.monotonic_s()
        link = AgentLink(stream, self._place, now_s, self._entering.begin())
        link.start(program.code, self._config())
        self._link = link
        self._hello, self._last_seq = None, -1
        self._offer.begin()
        try:
            while not self._closing.is_set():
                self._obey(link)
                if self._side is not None and self._side.is_frozen:
                    link.excuse(self._clock.monotonic_s())
                for data in link.step(_WAIT_S, self._clock.monotonic_s()):
                    if not self._closing.is_set():
                        self._take(data, program)
        finally:
            self._note_end()
            self._hello = self._link = None
            self._end_side()
            link.stop()

    def _note_end(self) -> None:
        if self._hello is not None:
            self._note("agent", "told to end", pid=self._hello.agent_pid)

    def _enter(self, program: Program) -> Stream:
        """The program's streams: those that were opened early, once, else new ones."""
        early, self._early = self._early, None
        last_step = "container" if self._place.entry else "agent"
        if early is not None:
            self._say(last_step)
            return early
        if self._host is None:
            self._host = way.open_host(self._place, self._ask, self._say)
            if self._place.host is not None:
                self._note("connect", "connected", ssh=self._place.host)
        self._say(last_step)
        command = ("sh", "-c", program.script)
        return way.enter(self._host, self._place, command, self._place.connect_timeout_s)

    def _config(self) -> dict[str, Any]:
        target = self._target._asdict()
        told = {key: value for key, value in target.items() if value is not None}
        return {**agent_config(self._every_s), "target": told}

    def _take(self, data: bytes, program: Program) -> None:
        record = read_word(data, self._place.label())
        match record:
            case Hello() if self._hello is None:  # once a connection: each begins a host side
                self._greet(record, program)
            case Frame():
                if self._hello is not None and record.seq > self._last_seq:
                    self._last_seq, self._host_t = record.seq, record.t
                    self._put(record)
                    self._look_for_gpus(record)
            case StackSample():
                self._put(record)
                self._forget(record)
            case Reply():
                self._answered(record)
            case str():
                self.passed_over[record] += 1

    def _greet(self, hello: Hello, program: Program) -> None:
        """Only an agent that is the one we sent may speak for the run."""
        agree(hello, program.sha256, self._place.label())
        self._hello, self._was_up, self._loss = hello, True, None
        self._up_s = self._clock.monotonic_s()
        self._entering.spoke()
        self._note(
            "agent", "started", pid=hello.agent_pid, uid=hello.uid, python=hello.python,
            sha256=program.sha256, bytes=len(program.code), entry=self._place.entry,
            into=self._place.entry_arg,
        )  # fmt: skip
        self._put(LinkChange(t=self._clock.wall_s(), state="up"))
        self._put(hello)
        if is_wanted(self._place) and self._host is not None:
            self._side = HostSide(
                self._host, self._place, program, host_config(self._place, hello), self._put,
                self._note_side, self._clock,
            )  # fmt: skip

    def _note_side(self, outcome: str, hello: Hello) -> None:
        pid, beside = hello.agent_pid, self._place.entry_arg
        self._note("agent", outcome, pid=pid, uid=hello.uid, python=hello.python, beside=beside)

    def _look_for_gpus(self, frame: Frame) -> None:
        """Where the container's own view of the GPUs fails the host is asked."""
        if self._side is not None and frame.seq > 0:
            fails = any(gap.source == "gpu" for gap in frame.gaps)
            if fails or frame.gpus:
                self._side.want_gpus(on=fails)

    def _end_side(self) -> None:
        side, self._side = self._side, None
        if side is not None:
            side.close()

    # -- requests --------------------------------------------------------------------------------

    def _obey(self, link: AgentLink) -> None:
        """Pass on what was ordered, once the agent has spoken; fail what is overdue."""
        now_s = self._clock.monotonic_s()
        for number in [n for n, wanted in self._wanted.items() if now_s > wanted.until_s]:
            self._fail_stacks(self._wanted.pop(number), f"no answer within {_STACKS_S:.0f} s")
        while self._hello is not None and not self._orders.empty():
            order = self._orders.get()
            if isinstance(order, _Wanted):
                self._ask_stacks(link, order)
            else:
                link.ask("pace", every_s=order)

    def _ask_stacks(self, link: AgentLink, wanted: _Wanted) -> None:
        """Pass it on, and that our py-spy is to be had."""
        keys = self._offer.keys()
        if wanted.native:
            keys["native"] = True
        self._wanted[link.ask("stacks", pid=wanted.pid, label=wanted.label, **keys)] = wanted

    def _answered(self, reply: Reply) -> None:
        wanted = self._wanted.pop(reply.id, None)
        if wanted is None:
            return
        if self._link is not None and self._offer.answer(self._link, self._hello, reply):
            self._ask_stacks(self._link, wanted)
        else:  # the sample itself did not come before its reply
            self._fail_stacks(wanted, reply.error or "the agent sent none")

    def _forget(self, sample: StackSample) -> None:
        for number, wanted in self._wanted.items():
            if (wanted.pid, wanted.label) == (sample.pid, sample.label):
                del self._wanted[number]
                return

    def _fail_stacks(self, wanted: _Wanted, why: str) -> None:
        t = self._clock.wall_s() if self._host_t is None else self._host_t
        sample = StackSample(t=t, pid=wanted.pid, label=wanted.label, tool="none", error=why)
        self._put(sample)

    # -- the link --------------------------------------------------------------------------------

    def _say(self, step: str) -> None:
        """Progress of the first connection; a reconnect stays `lost` until it is up."""
        if not self._was_up:
            self._put(LinkChange(t=self._clock.wall_s(), state="connecting", step=step))

    def _wait_after(self, error: TransportError) -> None:
        """Announce the loss, look for its reason, wait for the next attempt."""
        now_s, up_s = self._clock.monotonic_s(), self._up_s
        self._attempt = 0 if up_s is not None and now_s - up_s > STEADY_S else self._attempt
        wait_s = delay_s(self._attempt, now_s - self._begun_s if up_s is None else 0.0)
        self._attempt += 1
        until_s = now_s + wait_s
        self._announce(str(error), wait_s)
        self._fail_open_requests(f"connection lost: {error.message}")
        better = self._explain(error)
        left_s = max(until_s - self._clock.monotonic_s(), 0.0)
        if better is not None and better.message != error.message:
            self._announce(str(better), left_s)
        self._retry.wait(left_s)
        self._fail_open_requests(f"connection lost: {error.message}")
        if not self._closing.is_set():
            self._retry.clear()

    def _explain(self, error: TransportError) -> TransportError | None:
        """What the host says about the loss; a host that does not answer is let go."""
        if self._host is None or error.reason in _CONTAINER:
            return None
        better = way.explain_loss(self._host, self._place, _LOOK_S)
        if better is not None and better.reason not in _CONTAINER:
            self._let_go()
        return better

    def _announce(self, reason: str, retry_in_s: float) -> None:
        t = self._clock.wall_s()
        if reason != self._loss:
            self._loss = reason
            self._note("link", "lost", reason=reason)
        self._put(LinkChange(t=t, state="lost", reason=reason, retry_in_s=round(retry_in_s, 1)))

    def _fail_open_requests(self, why: str) -> None:
        """Asked before or during the loss; a new pace is part of the next configuration anyway."""
        wanted = list(self._wanted.values())
        self._wanted.clear()
        while not self._orders.empty():
            order = self._orders.get()
            wanted += [order] if isinstance(order, _Wanted) else []
        for each in wanted:
            self._fail_stacks(each, why)

    def _give_up(self, error: WatchError) -> None:
        self.error = error
        self._note("link", "given up", reason=str(error))
        self._put(LinkChange(t=self._clock.wall_s(), state="closed", reason=str(error)))
        self._closing.set()

    def _let_go(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.close()

    def _put(self, record: Record) -> None:
        """Waits while nobody takes: the agent then leaves frames out, nothing piles up here."""
        while True:
            with suppress(queue.Full):
                return self._records.put(record, timeout=0.1)
            if self._closing.is_set():  # nobody will take it
                return None
