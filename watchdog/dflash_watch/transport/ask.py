"""Asking a person for a secret, only where a person sits."""

from __future__ import annotations

import getpass
import os
import sys
import threading
from collections.abc import Callable

from dflash_watch.readers.lines import printable

Ask = Callable[[str], str | None]
"""Asks for a secret; None if there is nobody to ask."""


def ask_nobody(question: str) -> str | None:
    """Nobody is there: keys only."""
    del question
    return None


def ask_on_terminal(question: str) -> str | None:
    """Without echo, if this program is in the foreground of a terminal."""
    try:
        is_foreground = os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):  # no terminal of ours
        return None
    # What a server asks is shown to a person: no code of it may pass.
    return getpass.getpass(printable(question)) if is_foreground else None


def taking_turns(ask: Ask) -> Ask:
    """One question at a time, and one that was answered not again: for sessions side by side."""
    lock, answered = threading.Lock(), remembering(ask)

    def asked(question: str) -> str | None:
        with lock:
            return answered(question)

    return asked


def remembering(ask: Ask) -> Ask:
    """Each question once: a reconnect in the night finds nobody to ask again."""
    answers: dict[str, str] = {}

    def asked(question: str) -> str | None:
        if question not in answers:
            answer = ask(question)
            if answer is None:
                return None
            answers[question] = answer
        return answers[question]

    return asked
