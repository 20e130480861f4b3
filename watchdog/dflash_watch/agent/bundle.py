"""The agent as one blob: a zip of its modules, `dflash_events` and `pynvml`. Operator's side.

The same sources give the same bytes. Imports none of what it packs. After `keep_compiled` the zip
lies in Python's own cache folder, with the byte code beside each source: a Python of the same
version over there then compiles nothing, any other passes it over and reads the source.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import marshal
import os
import sys
import zipfile
from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)
LEVEL = 6
"""Of packing: the last percent of size would cost twice the time."""
OPERATOR_ONLY = frozenset({"bundle.py", "stub.py"})
_BYTE_CODE = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
"""Head of byte code that is not compared with its source: in a zip there is no file to look at."""


@functools.lru_cache(maxsize=1)
def build_agent() -> tuple[bytes, str]:
    """The zip's bytes and their sha256 (hex).

    Raises:
        FileNotFoundError: a package that the agent needs is not installed here.
    """
    sources = _sources()
    data = _kept(_stamp(sources)) or _pack(sources, _stamp(sources), compiled=False)
    return data, hashlib.sha256(data).hexdigest()


def keep_compiled() -> None:
    """Let the next start find the zip whole and compiled; does it once, in a third of a second.

    Nothing is kept where Python itself may keep no byte code.
    """
    sources = _sources()
    stamp, place = _stamp(sources), _place()
    if place is None or sys.dont_write_bytecode or _kept(stamp) is not None:
        return
    new = place.with_suffix(f".{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(_pack(sources, stamp, compiled=True))
        new.replace(place)
    except OSError:  # not our folder, no room: the sources will do
        new.unlink(missing_ok=True)


def _kept(stamp: bytes) -> bytes | None:
    """The zip that was kept, if it is of these very sources."""
    place = _place()
    try:
        data = place.read_bytes() if place is not None else b""
    except OSError:
        return None
    return data if data.endswith(stamp) else None


def _place() -> Path | None:
    """Where it is kept: beside Python's own byte code of this file."""
    try:
        mine = Path(importlib.util.cache_from_source(__file__))
    except NotImplementedError:  # this Python keeps nothing
        return None
    return mine.with_name(f"agent.{sys.implementation.cache_tag}.zip")


def _stamp(sources: dict[str, Path]) -> bytes:
    """What the zip is of; lies in it as its comment."""
    seen = hashlib.sha256(_BYTE_CODE)
    for name, path in sorted(sources.items()):
        state = path.stat()
        seen.update(f"{name} {path} {state.st_mtime_ns} {state.st_size}\n".encode())
    return seen.hexdigest().encode()


def _pack(sources: dict[str, Path], stamp: bytes, *, compiled: bool) -> bytes:
    """The zip; what stands in it for `dflash_watch` itself is empty: only the agent is needed."""
    blob = io.BytesIO()
    with zipfile.ZipFile(blob, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "dflash_watch/__init__.py", b"")
        for name, path in sorted(sources.items()):
            text = path.read_bytes()
            _add(archive, name, text)
            if compiled:
                code = compile(text, name, "exec", dont_inherit=True)
                _add(archive, f"{name}c", _BYTE_CODE + marshal.dumps(code))
        archive.comment = stamp if compiled else b""
    return blob.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data, compresslevel=LEVEL)


def _sources() -> dict[str, Path]:
    """Name in the zip -> file: the agent, the reading half of `dflash_events`, and `pynvml`."""
    here = Path(__file__).parent
    own = {
        f"dflash_watch/agent/{path.relative_to(here).as_posix()}": path
        for path in here.rglob("*.py")
        if path.name not in OPERATOR_ONLY
    }
    events = _origin("dflash_events").parent
    kept = {f"dflash_events/{path.name}": path for path in events.glob("*.py")}
    return {**own, **kept, "pynvml.py": _origin("pynvml")}


def _origin(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{name}: not installed, the agent cannot be built")
    return Path(spec.origin)
