"""`fake_nvml`: a fake driver of one's own for each test, compiled once a session."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fake_nvml import FakeNvml


@pytest.fixture(scope="session")
def fake_nvml_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled library."""
    if shutil.which("gcc") is None:
        pytest.skip("the fake NVML is compiled with gcc, which is not here")
    return FakeNvml.build(tmp_path_factory.mktemp("fake-nvml-build")).library


@pytest.fixture
def fake_nvml(fake_nvml_build: Path, tmp_path: Path) -> FakeNvml:
    """Eight idle H200s in a folder of this test."""
    folder = tmp_path / "fake-nvml"
    folder.mkdir()
    shutil.copy2(fake_nvml_build, folder)
    nvml = FakeNvml(folder)
    nvml.reset()
    return nvml
