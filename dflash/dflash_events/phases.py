"""Phases of the whole run."""

from __future__ import annotations

from dflash_events import layout as at
from dflash_events.beats import BeatPage
from dflash_events.worker import Emit


class RunPhase:
    """A phase of the whole run: begin and end are events, the page says it in between."""

    def __init__(
        self,
        page: BeatPage,
        emit: Emit,
        name: str,
        budget_s: float | None,
        detail: str | None,
    ) -> None:
        self._page, self._emit, self._name = page, emit, name
        self._budget_s, self._detail = budget_s, detail

    def __enter__(self) -> None:
        self._before = self._page.words[at.H_PHASE]
        self._page.set_phase(self._page.text(self._name))
        self._announce("begin")

    def __exit__(self, *_: object) -> None:
        self._page.set_phase(self._before)
        self._announce("end")

    def _announce(self, edge: str) -> None:
        self._emit(
            "phase", name=self._name, edge=edge, budget_s=self._budget_s, detail=self._detail
        )
