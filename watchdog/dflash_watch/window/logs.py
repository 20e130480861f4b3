"""What each log said: newest lines, numbers, exceptions, and how its file behaves."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from dflash_watch.frame import LogSample
from dflash_watch.readers import facts as f
from dflash_watch.readers.collectivelog import CollectiveLines

LINES = 200
KEPT = 100
MOST_LOGS = 32
"""Logs remembered of those that are not written any more."""
PAGE_BYTES = 4096
LAST_WORD, TRAILS_S = "train_runtime", 2.0
"""In the closing line of Hugging Face's Trainer, behind which it draws its bar once more."""


class LogFeed(Protocol):
    """An incremental reader of one log: text in, facts out."""

    @property
    def partial(self) -> str:
        """The line being written now."""

    def feed(self, sample: LogSample, t: float) -> list[f.LogFact]:
        """Facts of the new text."""


FeedFactory = Callable[[], LogFeed]


def of_this_run(sample: LogSample, manifest: Mapping[str, Any]) -> LogSample:
    """The first look at a log without the text that an earlier run wrote into it.

    Args:
        sample: first look at one log; later ones bring only what was written meanwhile.
        manifest: run.json; `log_start_bytes` is the size of `log_path` when the run began. A file
            that is smaller now was cut since, and all of it is this run's.

    Returns:
        Begins with a line end where it was cut, so that the first line counts as whole.
    """
    start = manifest.get("log_start_bytes")
    if not isinstance(start, int) or sample.path != manifest.get("log_path"):
        return sample
    if sample.offset is None or (sample.size_bytes or 0) < start:
        return sample
    older = start - sample.offset
    if older <= 0 or not sample.text:
        return sample
    kept = max(_text_bytes(sample) - older, 0)
    text = "\n" + _last_bytes(sample.text, kept)
    return msgspec.structs.replace(sample, text=text, offset=start - 1, text_bytes=kept + 1)


def _text_bytes(sample: LogSample) -> int:
    """Bytes in the file: masked, or decoded with replacement, the text has another length."""
    return len(sample.text.encode()) if sample.text_bytes is None else sample.text_bytes


def _last_bytes(text: str, num_bytes: int) -> str:
    raw = text.encode()
    return raw[max(len(raw) - num_bytes, 0) :].decode(errors="replace")


@dataclass(slots=True)
class LogTrack:
    """One log over time."""

    path: str
    feed: LogFeed
    sample: LogSample
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))
    rewritten: str | None = None
    """The line a progress bar stands at, not ended yet."""
    grown_t: float | None = None
    """When it last grew, as the watched host's clock has it."""
    growths: deque[tuple[float, int, bool]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """(moment, bytes, ends in a line end); the first one is what was there already, even if 0."""
    num_lines: int = 0
    """Lines read so far."""
    ended_line: bool | None = None
    truncated_t: float | None = None
    elsewhere_since_t: float | None = None
    """Since when it is not the file that is watched."""
    consumed: tuple[int | None, int] = (None, 0)
    """(inode, first byte not read yet)."""
    marks: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """(moment, line ends, carriage returns) of looks that brought text."""

    def take(self, sample: LogSample, t: float) -> list[f.LogFact]:
        """Take one look at the file; returns the facts in its new text."""
        first = self.grown_t is None
        if sample.truncated:
            self.truncated_t = t
        elsewhere = sample.deleted or sample.path_state != "same"
        self.elsewhere_since_t = (self.elsewhere_since_t or t) if elsewhere else None
        fresh = self._unread(sample)
        if fresh.text or first:
            size = max(len(fresh.text.encode()), self._grown_by(sample))
            self.growths.append((t, size, fresh.text.endswith("\n")))
        if fresh.text:
            self.ended_line = fresh.text.endswith("\n")
            self.marks.append((t, sample.newlines, sample.carriage_returns))
        if first:
            self.grown_t = t - (sample.mtime_age_s or 0.0)
        elif fresh.text or (sample.size_bytes or 0) > (self.sample.size_bytes or 0):
            self.grown_t = t
        self.sample = sample
        found = self.feed.feed(fresh, t) if fresh.text or first or sample.truncated else []
        for fact in found:
            self._note(fact)
        return found

    def _grown_by(self, sample: LogSample) -> int:
        """Bytes since the last look, text that was passed over included."""
        now, before = sample.size_bytes, self.sample.size_bytes
        same = sample.inode == self.sample.inode and now is not None and before is not None
        return max(now - before, 0) if same and now is not None and before is not None else 0

    def _unread(self, sample: LogSample) -> LogSample:
        """Without what a new agent read a second time."""
        if sample.offset is None or not sample.text:
            return sample
        size = _text_bytes(sample)
        inode, consumed = self.consumed
        again = 0
        if inode == sample.inode and not sample.truncated:
            again = min(max(consumed - sample.offset, 0), size)
        self.consumed = (sample.inode, sample.offset + size)
        if not again:
            return sample
        text = _last_bytes(sample.text, size - again)
        return msgspec.structs.replace(sample, text=text, offset=sample.offset + again)

    def _note(self, fact: f.LogFact) -> None:
        if isinstance(fact, f.LineSeen):
            self.lines.append(fact.text)
            self.num_lines = fact.line
            self.rewritten = None
        elif isinstance(fact, f.RewriteSeen):
            self.rewritten = fact.text


class Logs:
    """All logs of the run, and the facts found in them."""

    def __init__(self, new_feed: FeedFactory) -> None:
        self._new_feed = new_feed
        self.tracks: dict[str, LogTrack] = {}
        self.fresh: list[f.LogFact] = []
        """Facts of the newest frame only."""
        self.tracebacks: deque[f.TracebackSeen] = deque(maxlen=KEPT)
        self.signatures: deque[f.SignatureSeen] = deque(maxlen=KEPT)
        self.loading: deque[f.LoadingSeen] = deque(maxlen=KEPT)
        self.collectives = CollectiveLines()
        self.collectives_t: float | None = None
        """When the newest line about a rank's collectives was written."""
        self.done: f.DoneSeen | None = None
        self.phase: f.PhaseSeen | None = None
        self._stepped: deque[tuple[str, int]] = deque(maxlen=KEPT)
        """(log, line) of the newest steps."""

    def take(
        self, samples: tuple[LogSample, ...] | None, t: float, manifest: Mapping[str, Any]
    ) -> None:
        """Take the log part of a frame of the run that `manifest` describes."""
        self.fresh = []
        for sample in samples or ():
            track = self.tracks.get(sample.via)
            if track is None:
                sample = of_this_run(sample, manifest)  # noqa: PLW2901 - the look, cleaned
                track = LogTrack(sample.path, self._new_feed(), sample)
                self.tracks[sample.via] = track
            track.path = sample.path
            self.fresh.extend(track.take(sample, t))
        self._forget({sample.via for sample in samples or ()})
        for fact in self.fresh:
            self._note(fact)
            self._note_collectives(fact)

    def _forget(self, current: set[str]) -> None:
        """Keep logs that are written now, and of the others those that grew last."""
        left = [via for via in self.tracks if via not in current]
        for via in sorted(left, key=lambda one: self.tracks[one].grown_t or 0.0)[:-MOST_LOGS]:
            del self.tracks[via]

    def _note_collectives(self, fact: f.LogFact) -> None:
        if isinstance(fact, f.LogRestarted):
            self.collectives, self.collectives_t = CollectiveLines(), None
        elif isinstance(fact, f.LineSeen) and self.collectives.feed(fact.text):
            self.collectives_t = fact.t

    def _note(self, fact: f.LogFact) -> None:
        match fact:
            case f.TracebackSeen():
                self.tracebacks.append(fact)
            case f.SignatureSeen():
                self.signatures.append(fact)
            case f.LoadingSeen():
                self.loading.append(fact)
            case f.DoneSeen():
                self.done = fact
            case f.PhaseSeen():
                self.phase = fact if fact.edge == "begin" else None
            case f.StepSeen(phase="training") if not self._trails(fact):
                self.done = None
                self.phase = None
                self._stepped.append((fact.path, fact.line))

    def newest_step_line(self) -> int | None:
        """Line of the newest step in the log that a person would read."""
        track = self.main()
        path = track.path if track is not None else None
        return next((line for at, line in reversed(self._stepped) if at == path), None)

    def steps_since(self, fact: f.Fact) -> int:
        """Steps that the same log counts after this, as far as they are remembered."""
        return sum(path == fact.path and line > fact.line for path, line in self._stepped)

    def _trails(self, step: f.StepSeen) -> bool:
        """A bar drawn for the last time behind the Trainer's closing word takes nothing back."""
        done = self.done
        return done is not None and LAST_WORD in done.text and step.t - done.t <= TRAILS_S

    def main(self) -> LogTrack | None:
        """The log a person would read: the one that was named, else the one with most lines."""
        if not self.tracks:
            return None
        return max(
            self.tracks.values(),
            key=lambda track: (track.sample.watched_path is not None, len(track.lines)),
        )

    def longest_pause_s(self) -> float | None:
        """Longest pause between growths of the log that pauses least; None before three."""
        longest = []
        for track in self.tracks.values():
            moments = [growth[0] for growth in track.growths][1:]
            if len(moments) >= 3:
                longest.append(max(b - a for a, b in itertools.pairwise(moments)))
        return min(longest) if longest else None

    def silent_s(self, now_t: float) -> float | None:
        """Seconds since any log grew; None without a log."""
        grown = [track.grown_t for track in self.tracks.values() if track.grown_t is not None]
        return max(now_t - max(grown), 0.0) if grown else None
