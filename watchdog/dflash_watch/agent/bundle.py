"""The agent as one blob: a zip of its modules, `dflash_events` and `pynvml`. Operator's side.

The same sources give the same bytes. Imports none of what it packs.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import zipfile
from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)
OPERATOR_ONLY = frozenset({"bundle.py", "stub.py"})


@functools.lru_cache(maxsize=1)
def build_agent() -> tuple[bytes, str]:
    """The zip's bytes and their sha256 (hex).

    Raises:
        FileNotFoundError: a package that the agent needs is not installed here.
    """
    files = _agent_files() | _package_files("dflash_events") | _module_file("pynvml")
    blob = io.BytesIO()
    with zipfile.ZipFile(blob, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    data = blob.getvalue()
    return data, hashlib.sha256(data).hexdigest()


def _agent_files() -> dict[str, bytes]:
    """This package without the operator's own modules; its parent is empty on the other side."""
    here = Path(__file__).parent
    files = {"dflash_watch/__init__.py": b""}
    for path in sorted(here.rglob("*.py")):
        if path.name not in OPERATOR_ONLY:
            files["dflash_watch/agent/" + path.relative_to(here).as_posix()] = path.read_bytes()
    return files


def _package_files(name: str) -> dict[str, bytes]:
    """Modules of a package's top level: the reading half needs no subpackage."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{name}: not installed, the agent cannot be built")
    folder = Path(spec.origin).parent
    return {f"{name}/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.py"))}


def _module_file(name: str) -> dict[str, bytes]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{name}: not installed, the agent cannot be built")
    return {f"{name}.py": Path(spec.origin).read_bytes()}
