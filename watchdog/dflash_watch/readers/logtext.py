"""A log as it grows: text with offsets in, facts out.

Pure but for its memory of the log so far, which is bounded. Reads any text without an exception:
binary, half characters, lines of 100 MB. Decides nothing: what a fact means for the run is the
engine's business.
"""

from __future__ import annotations

from collections.abc import Iterable

from dflash_watch.frame import LogSample
from dflash_watch.readers import facts
from dflash_watch.readers.lines import LineSplitter
from dflash_watch.readers.meaning import Meaning, Where
from dflash_watch.readers.signatures import Matcher

TEXT_LIMIT = 1 << 20
"""Characters read of one piece; of more, the newest."""


class LogReader:
    """Facts of one log. Keep one for each `LogSample.via`, across renames of the file.

    Args:
        signatures: `[[signature]]` of all playbooks.

    Raises:
        UsageError: a signature is not a regular expression.
    """

    def __init__(self, signatures: Iterable[facts.Signature] = ()) -> None:
        self._lines = LineSplitter()
        self._meaning = Meaning(Matcher(signatures))
        self._first = True
        self._inode: int | None = None
        self._offset: int | None = None
        self._newline_t: float | None = None
        self._num_lines = 0

    @property
    def partial(self) -> str:
        """The line being written now, printable."""
        return self._lines.partial

    def feed(self, sample: LogSample, t: float) -> list[facts.LogFact]:
        """Facts of the sample's new text, oldest first.

        Args:
            sample: one look at the log; an empty `text` is a look that found nothing new.
            t: moment of the frame, wall clock of the watched host.
        """
        written_t = t - (sample.mtime_age_s or 0.0) if self._first else t
        at = Where(written_t, sample.path, self._first, self._num_lines)
        out = self._restarts(sample, at)
        text = sample.text[-TEXT_LIMIT:]
        if text:
            torn = sample.skipped_bytes > 0 or len(text) < len(sample.text)
            if torn or (self._first and sample.offset):
                self._lines.restart(mid_line=True)
            out += self._text(text, at)
        at = Where(at.t, at.path, at.backlog, self._num_lines)
        out += self._meaning.end_of_piece(at, is_last=sample.ended)
        self._remember(sample)
        return out

    def _text(self, text: str, at: Where) -> list[facts.LogFact]:
        out: list[facts.LogFact] = []
        newlines = self._lines.newlines
        for line in self._lines.feed(text):
            at = self._next(at)
            if line.ended:
                out += self._meaning.line(line.text, at)
            else:
                out += self._meaning.counts(line.text, at)
        out += self._meaning.bar_state(self._lines.partial, at)
        if self._lines.newlines > newlines:
            self._newline_t = at.t
            return out
        return [*out, self._rewrite(out, at)]

    def _next(self, at: Where) -> Where:
        self._num_lines += 1
        return Where(at.t, at.path, at.backlog, self._num_lines)

    def _rewrite(self, out: list[facts.LogFact], at: Where) -> facts.RewriteSeen:
        if self._newline_t is None:
            self._newline_t = at.t
        moved = any(isinstance(fact, facts.StepSeen | facts.LoadingSeen) for fact in out)
        return facts.RewriteSeen(
            text=self._lines.partial, since_t=self._newline_t, moved=moved, **at.fields()
        )

    def _restarts(self, sample: LogSample, at: Where) -> list[facts.LogFact]:
        if self._first:
            return []
        if sample.truncated:
            reason = "cut to nothing (copied and truncated)"
        elif self._inode is not None and sample.inode not in (None, self._inode):
            reason = "another file"
        elif sample.text and sample.offset is not None and sample.offset < (self._offset or 0):
            reason = "read again from an earlier place"
        else:
            return []
        self._lines.restart(mid_line=False)
        return [facts.LogRestarted(reason=reason, **at.fields())]

    def _remember(self, sample: LogSample) -> None:
        if sample.text:
            self._first = False
            self._offset = sample.offset
        self._inode = sample.inode if sample.inode is not None else self._inode
