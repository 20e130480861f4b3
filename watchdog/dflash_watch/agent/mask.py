"""Secrets are masked before a command line leaves the watched machine."""

from __future__ import annotations

from typing import List

from dflash_events.secrets import mask_arguments, mask_text


def command_text(argv: List[str], limit: int = 400) -> str:
    """A command line for people: masked, one line, at most `limit` characters."""
    text = mask_text(" ".join(mask_arguments(argv))).replace("\n", " ")
    return text if len(text) <= limit else text[: limit - 3] + "..."
