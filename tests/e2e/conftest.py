"""`watched`: runs in the container and the real watchdog outside, ended after each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.places.fixtures import Proxmox
from e2e.watched import Watched, at_end


@pytest.fixture
def watched(proxmox: Proxmox, tmp_path: Path) -> Iterator[Watched]:
    """See watched.py."""
    proxmox.container.require_python()
    yield from at_end(Watched(proxmox, tmp_path))
