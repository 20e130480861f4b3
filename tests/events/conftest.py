"""Shared memory of its own for each test, so that runs of one test never see another's pages."""

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def shm():
    """A directory in real shared memory."""
    path = Path(tempfile.mkdtemp(prefix="dflash-test-", dir="/dev/shm"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
