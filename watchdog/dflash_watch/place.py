"""Where a run lives and which run it is: plain values from the command line.

Named tuples: a check starts its connection with these before it loads anything larger.
"""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """The way to the machine or container.

    `entry` and `entry_arg` name a row of transport/entries.py: (`pct`, `200`), (`docker`, `train`).
    """

    host: str | None = None
    """As typed, resolved through ssh_config; None is this machine."""
    user: str | None = None
    port: int | None = None
    entry: str | None = None
    entry_arg: str | None = None
    exec_prefix: tuple[str, ...] = ()
    """`--exec`: an argument list put before the agent's command, on `host` or here."""
    connect_timeout_s: float = 10.0
    ssh_config: str | None = None
    """Another ssh_config file (as `ssh -F`)."""
    accept_new_host_keys: bool = False
    host_side: bool = False
    """With a container: a second agent on its host (transport/host_side.py)."""

    def label(self) -> str:
        """As drawn in the header: `10.1.2.6 · ct 200`."""
        short = {"pct": "ct"}.get(self.entry or "", self.entry)
        parts = [self.host or "this machine", f"{short} {self.entry_arg}" if self.entry else None]
        if self.exec_prefix:
            # Imported here: only a prefix can hold a secret, and patterns take time to build.
            from dflash_events.secrets import mask_arguments, mask_text  # noqa: PLC0415

            parts.append(mask_text("exec " + " ".join(mask_arguments(self.exec_prefix))))
        return " · ".join(part for part in parts if part)


class TargetChoice(NamedTuple):
    """Which run: at most one is set; none means the newest run found."""

    run_dir: str | None = None
    pid: int | None = None
    match: str | None = None
    log: str | None = None
    tmux: str | None = None
