"""The header of a directory of shards: what was prepared, from what, and how; reads JSON only."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from dflash_train.errors import UsageError

HEADER_NAME, SCHEMA = "corpus.json", 1


def check_installed() -> None:
    """Raises UsageError where the package that reads shards is missing; a tiny run needs none."""
    if importlib.util.find_spec("datasets") is None:
        raise UsageError("not installed: datasets", hint="pip install 'dflash-toolkit[train]'")


def read_header(folder: Path) -> dict[str, Any]:
    """The header of a finished directory.

    Raises:
        UsageError: none there, not finished, or not readable.
    """
    file = folder / HEADER_NAME
    try:
        header = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"--data {folder}: no {HEADER_NAME} there, expected a folder that prepare wrote",
            hint=f"dflash-train prepare --tokenizer PATH --data FILE --out {folder}",
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"--data {file}: cannot be read: {error}", hint="prepare anew") from None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise UsageError(f"--data {file}: not a header of schema {SCHEMA}", hint="prepare anew")
    if header.get("state") != "whole":
        raise UsageError(
            f"--data {folder}: preparing was not finished", hint="run the same prepare again"
        )
    return header
