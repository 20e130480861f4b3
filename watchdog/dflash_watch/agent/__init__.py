"""Runs on the watched side: standard library only, Python 3.8 and newer.

Imports `dflash_events` and `pynvml` besides, which travel with it. `bundle.py` and `stub.py` are
the operator's side of it.
"""

AGENT_VERSION = "0.1.0"
PROTOCOL, PROTOCOL_MIN = 1, 1
"""Highest and lowest number spoken here (docs/frames.md, "Versions")."""
