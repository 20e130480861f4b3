"""The files of a target: found by path or id, whole, and known again by a fingerprint; no torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from dflash_train.errors import UsageError

CONFIG_NAME = "config.json"
INDEX_NAME, SINGLE_NAME = "model.safetensors.index.json", "model.safetensors"
WANTED = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")
"""What is fetched of a hub id: nothing that runs code, no second copy in another format."""
SAMPLE_BYTES = 65536


def find_target(path_or_id: str) -> Path:
    """Folder of a target; an id is fetched into the hub's own cache unless it is there.

    Raises:
        UsageError: no such folder, no model in it, a part missing, or the hub does not give it.
    """
    folder = Path(path_or_id).expanduser()
    if not folder.is_dir():
        if folder.exists() or path_or_id.startswith((".", "/", "~")) or path_or_id.count("/") != 1:
            raise UsageError(
                f"target {path_or_id}: no such folder",
                hint="expected a folder with config.json and *.safetensors, or a hub id OWNER/NAME",
            )
        folder = _fetch(path_or_id)
    check_whole(folder)
    return folder


def check_whole(folder: Path) -> None:
    """Refuse a folder that is no model, or lacks a part of it.

    Raises:
        UsageError: names what is missing, and what to do.
    """
    if not (folder / CONFIG_NAME).is_file():
        raise UsageError(
            f"target {folder}: no {CONFIG_NAME} in it",
            hint="expected a folder that transformers' save_pretrained writes",
        )
    weights = weight_files(folder)
    missing = [file.name for file in weights if not file.is_file()]
    if missing:
        raise UsageError(
            f"target {folder}: {len(missing)} of {len(weights)} weight files missing:"
            f" {', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}",
            hint="copy or download it again",
        )
    for file in weights:
        _header(file)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files with the weights, as the index names them; in order.

    Raises:
        UsageError: no safetensors there, or an index that cannot be read.
    """
    index = folder / INDEX_NAME
    if not index.is_file():
        if (folder / SINGLE_NAME).is_file():
            return (folder / SINGLE_NAME,)
        others = sorted(file.name for file in folder.glob("*.bin"))
        found = f"{others[0]} only" if others else "none"
        raise UsageError(
            f"target {folder}: no {SINGLE_NAME} or {INDEX_NAME} (weights seen: {found})",
            hint="save it with save_pretrained, which writes safetensors",
        )
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return tuple(folder / name for name in sorted(set(places.values())))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UsageError(f"target {index}: cannot be read: {error}", hint="copy it again") from None


def fingerprint(folder: Path) -> str:
    """One value for one model: configuration, tensor tables, sizes, and samples of the weights.

    A model of the same shapes with other weights has another one; nothing is read in full.

    Returns:
        The first 16 digits of a sha256.
    """
    digest = hashlib.sha256()
    settings = json.loads((folder / CONFIG_NAME).read_text(encoding="utf-8"))
    for volatile in ("_name_or_path", "transformers_version"):
        settings.pop(volatile, None)
    digest.update(json.dumps(settings, sort_keys=True).encode())
    for file in weight_files(folder):
        digest.update(_header(file))
        size = file.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        with file.open("rb") as handle:
            for place in (size // 4, size // 2, 3 * size // 4, max(0, size - SAMPLE_BYTES)):
                handle.seek(place)
                digest.update(handle.read(SAMPLE_BYTES))
    return digest.hexdigest()[:16]


def _header(file: Path) -> bytes:
    """Table of tensors at the head of a safetensors file, checked against the file's size."""
    with file.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        size = file.stat().st_size
        text = handle.read(length) if length <= size else b""
    try:
        table = json.loads(text)
        ends = [facts["data_offsets"][1] for name, facts in table.items() if name != "__metadata__"]
    except (ValueError, KeyError, AttributeError, TypeError):
        raise UsageError(
            f"target {file}: not a safetensors file", hint="copy or download it again"
        ) from None
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise UsageError(
            f"target {file}: {size} bytes, expected {expected}: cut short?",
            hint="copy or download it again",
        )
    return text


def _fetch(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415  (only for a hub id)
    from huggingface_hub.errors import (  # noqa: PLC0415
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
    )

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(WANTED)))
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError) as error:
        cause = " ".join(str(error).split())
        raise UsageError(
            f"target {hub_id}: neither a folder here nor fetched from the hub: {cause[:160]}",
            hint="check the name, the network, and `hf auth login` for a gated model",
        ) from error
