"""What one line of a log says: dispatches it to the formats and words, remembers what moved."""

from __future__ import annotations

from typing import Any

import msgspec

from dflash_watch.readers import bars, facts, numbers, words
from dflash_watch.readers.counters import Counters, Learner, Repeats, is_milestone
from dflash_watch.readers.signatures import Matcher
from dflash_watch.readers.tracebacks import Told, Tracebacks


class Where(msgspec.Struct, frozen=True):
    """When and in which log a line was seen."""

    t: float
    path: str
    backlog: bool
    line: int = 0

    def fields(self) -> dict[str, Any]:
        """As keyword arguments of a fact."""
        return {"t": self.t, "path": self.path, "backlog": self.backlog, "line": self.line}


class Meaning:
    """Turns lines into facts. Holds what has to be remembered between lines, bounded."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._tracebacks = Tracebacks()
        self._counters, self._learner, self._repeats = Counters(), Learner(), Repeats()
        self._loading: str | None = None
        self._largest_bar = 0
        self._evaluating = False
        """An evaluation was announced and has not ended: bars without a name are its own."""
        self._evaluation_bars: set[str] = set()

    def line(self, text: str, at: Where) -> list[facts.LogFact]:
        """Facts of a whole line."""
        out: list[facts.LogFact] = [facts.LineSeen(text=text, **at.fields())]
        mine, told = self._tracebacks.feed(text, at.line)
        for one in told:
            out += self._traceback(one, at)
        if mine or not text.strip():
            return out
        out += self._signatures(text, at)
        counted = self.counts(text, at)
        out += counted
        steps = [one.step for one in counted if isinstance(one, facts.StepSeen)]
        step = steps[0] if steps else None
        for what, value in numbers.bad_numbers(text):
            out.append(
                facts.NumbersSeen(what=what, value=value, step=step, text=text, **at.fields())
            )
        if words.may_matter(text):
            out += self._words(text, at)
        count, first_t = self._repeats.count(text, at.t)
        if is_milestone(count):
            every_s = (at.t - first_t) / (count - 1) if at.t > first_t else None
            out.append(facts.RepeatSeen(text=text, count=count, every_s=every_s, **at.fields()))
        return out

    def counts(self, text: str, at: Where) -> list[facts.LogFact]:
        """Steps of a line or of a bar's state."""
        out: list[facts.LogFact] = []
        for part in numbers.split_ranks(text):
            bar = bars.parse_bar(part)
            if bar is not None:
                out += self._bar(bar, part, at)
                continue
            reading = numbers.read_counter(part)
            if reading is not None:
                out += self._reading(reading, part, at)
            else:
                out += self._learned(part, at)
        return out

    def bar_state(self, text: str, at: Where) -> list[facts.LogFact]:
        """Of a line still being written: only a bar whose counts are whole."""
        bar = bars.parse_bar(text)
        return [] if bar is None else self._bar(bar, text, at)

    def end_of_piece(self, at: Where, *, is_last: bool = False) -> list[facts.LogFact]:
        """Tracebacks that are whole although more of them may come; after the last piece all."""
        told = self._tracebacks.flush(is_last=is_last)
        return [fact for one in told for fact in self._traceback(one, at)]

    def _bar(self, bar: bars.Bar, text: str, at: Where) -> list[facts.LogFact]:
        if words.is_loading_bar(bar.name):
            return self._loading_bar(bar, text, at)
        series = f"bar:{bar.name}/{bar.total}"
        evaluates = self._is_evaluation(bar, series)
        moved = self._counters.move(series, bar.n)
        if moved is None or bar.n == 0:  # an empty bar is drawn before anything is done
            return []
        tokens_per_s, loss = numbers.figures(text)
        step = facts.StepSeen(
            value=bar.n,
            step=bar.n,
            total=bar.total,
            tokens_per_s=tokens_per_s,
            loss=loss,
            fmt="bar",
            series=series,
            steps_per_s=bar.per_s,
            phase="evaluating" if evaluates else words.bar_phase(bar.name),
            restarted=moved.restarted,
            text=text,
            **at.fields(),
        )
        if not self._is_full(bar, step.phase):
            return [step]
        return [step, facts.DoneSeen(how="bar", text=text, **at.fields())]

    def _is_evaluation(self, bar: bars.Bar, series: str) -> bool:
        known = self._largest_bar > 0 and bar.total != self._largest_bar
        own = self._evaluating and not bar.name and known
        if own and len(self._evaluation_bars) < 64:
            self._evaluation_bars.add(series)  # it is closed after the evaluation's last word
        return own or series in self._evaluation_bars or words.is_evaluation_bar(bar.name)

    def _is_full(self, bar: bars.Bar, phase: str) -> bool:
        if bar.total is None or phase != "training" or "epoch" in bar.name.lower():
            return False
        self._largest_bar = max(self._largest_bar, bar.total)
        return bar.n >= bar.total > 1 and bar.total == self._largest_bar

    def _loading_bar(self, bar: bars.Bar, text: str, at: Where) -> list[facts.LogFact]:
        if self._counters.move(f"loading:{bar.name}/{bar.total}/{self._loading}", bar.n) is None:
            return []
        return [
            facts.LoadingSeen(
                what=bar.name,
                done=bar.n,
                total=bar.total,
                subject=self._loading,
                finished=bar.total is not None and bar.n >= bar.total,
                text=text,
                **at.fields(),
            )
        ]

    def _reading(self, reading: numbers.Reading, text: str, at: Where) -> list[facts.LogFact]:
        moved = self._counters.move(reading.series, reading.value)
        if moved is None:
            return []
        return [
            facts.StepSeen(
                value=reading.value,
                step=reading.step,
                total=reading.total,
                tokens_per_s=reading.tokens_per_s,
                loss=reading.loss,
                fmt=reading.fmt,
                series=reading.series,
                epoch=reading.epoch,
                rank=reading.rank,
                phase=words.bar_phase(reading.before),
                restarted=moved.restarted,
                text=text,
                **at.fields(),
            )
        ]

    def _learned(self, text: str, at: Where) -> list[facts.LogFact]:
        found = self._learner.look(text)
        if found is None:
            return []
        series, value = found
        tokens_per_s, loss = numbers.figures(text)
        return [
            facts.StepSeen(
                value=value,
                tokens_per_s=tokens_per_s,
                loss=loss,
                series=series,
                rank=numbers.rank_of(text),
                text=text,
                **at.fields(),
            )
        ]

    def _words(self, text: str, at: Where) -> list[facts.LogFact]:
        out: list[facts.LogFact] = []
        how = words.says_done(text)
        if how is not None:
            out.append(facts.DoneSeen(how=how, text=text, **at.fields()))
        phase = words.phase_of(text)
        if phase is not None:
            if phase[0] in ("evaluating", "training"):
                self._evaluating = phase == ("evaluating", "begin")
            out.append(facts.PhaseSeen(name=phase[0], edge=phase[1], text=text, **at.fields()))
        loading = self._loading_words(text, at)
        return [*out, loading] if loading is not None else out

    def _loading_words(self, text: str, at: Where) -> facts.LoadingSeen | None:
        worker, device, took_s = words.worker_in(text), words.device_in(text), words.took_s(text)
        if took_s is not None:
            subject, self._loading = worker or self._loading, None
            return facts.LoadingSeen(
                what=subject or text.strip(),
                subject=subject,
                device=device,
                took_s=took_s,
                finished=True,
                text=text,
                **at.fields(),
            )
        what = words.loads_what(text)
        if what is None and not (worker and device and text.rstrip().endswith("...")):
            return None
        if worker is not None:
            self._loading = worker
        named = f"{worker} on {device}" if worker and device else what or worker or text.strip()
        return facts.LoadingSeen(
            what=named,
            total=words.how_many(what) if what else None,
            subject=worker,
            device=device,
            text=text,
            **at.fields(),
        )

    def _signatures(self, text: str, at: Where) -> list[facts.LogFact]:
        matches = self._matcher.in_line(text)
        if not matches:
            return []
        rank = numbers.rank_of(text)
        subject = words.worker_in(text) or ("run" if rank is None else f"rank-{rank}")
        return [
            facts.SignatureSeen(
                failure=match.signature.failure,
                subject=subject,
                text=text,
                meaning=match.signature.meaning,
                grave=match.signature.grave,
                **at.fields(),
            )
            for match in matches
        ]

    def _traceback(self, told: Told, at: Where) -> list[facts.LogFact]:
        at = msgspec.structs.replace(at, line=told.line)
        out: list[facts.LogFact] = [
            facts.TracebackSeen(
                subject=told.subject,
                exception=told.exception,
                message=told.message,
                text=told.text,
                thread=told.thread,
                rank=told.rank,
                fatal=told.fatal,
                mixed=told.mixed,
                **at.fields(),
            )
        ]
        out.extend(
            facts.SignatureSeen(
                failure=match.signature.failure,
                subject=told.subject,
                text=match.text,
                meaning=match.signature.meaning,
                grave=match.signature.grave,
                **at.fields(),
            )
            for match in self._matcher.in_text(told.text)
        )
        return out
