"""Where the recorded evidence of the scenarios lies."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def captures() -> Path:
    return Path(__file__).parent / "captures"
