"""The peer: speculators 0.9.0 in an environment of its own, asked by files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from parity.environment import UnavailableError, python_with_speculators

PEER = Path(__file__).with_name("peer.py")


@pytest.fixture(scope="session")
def peer(tmp_path_factory):
    """Runs requests in one process of the peer's; where it cannot be had, a failure under CI."""
    try:
        python = python_with_speculators()
    except UnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no speculators 0.9.0 to compare with: {error}")

    def ask(*requests):
        file = tmp_path_factory.mktemp("asked") / "request.json"
        file.write_text(json.dumps([[str(word) for word in one] for one in requests]))
        done = subprocess.run(
            [python, PEER, file],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"},
        )
        assert done.returncode == 0, done.stderr[-3000:]

    return ask
