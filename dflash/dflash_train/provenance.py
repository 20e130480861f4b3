"""Which code and which versions a run is made of; read without importing any of it."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "datasets",
    "triton",
    "flash-linear-attention",
    "causal-conv1d",
    "dflash-toolkit",
)
OWN = ("dflash_train", "dflash_events")


def versions() -> dict[str, str]:
    """Package to version, for those that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def source_files() -> list[Path]:
    """Every file of our own packages, where the interpreter finds them."""
    files: list[Path] = []
    for package in OWN:
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            files += sorted(Path(folder).rglob("*.py"))
    return files
