"""What is run over there: a constant script and the code that it is fed."""

from __future__ import annotations

import msgspec


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What is run over there."""

    script: str
    """For `sh -c`; constant."""
    code: bytes
    sha256: str


def build_program() -> Program:
    """Our own agent."""
    # Imported here: packing files costs time that only a connection should spend.
    from dflash_watch.agent.bundle import build_agent  # noqa: PLC0415
    from dflash_watch.agent.stub import ENTRY_SCRIPT  # noqa: PLC0415

    code, digest = build_agent()
    return Program(script=ENTRY_SCRIPT, code=code, sha256=digest)
