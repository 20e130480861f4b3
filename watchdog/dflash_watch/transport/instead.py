"""Where our own connection does not get in and OpenSSH's client may: then it carries the watch.

It is asked only where the configuration names something that we lack; what it says in vain is not
told, but the refusal that came first.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from dflash_watch.errors import WatchError
from dflash_watch.place import Place
from dflash_watch.transport.base import Host, Reason, TransportError, run
from dflash_watch.transport.openssh import OpenSshHost
from dflash_watch.transport.ssh_options import SshOptions, fetch_options

_CHECK_S = 5.0


def openssh_instead(place: Place, error: TransportError, say: Callable[[str], None]) -> Host:
    """A host behind `ssh`, once it has answered.

    Args:
        place: the way there.
        error: why our own connection did not get in.
        say: told in one line why the other client is used.

    Raises:
        TransportError: `error`, where there is nothing that only OpenSSH could do, or it cannot.
    """
    why = _why(place, error)
    if why is None:
        raise error
    host = OpenSshHost(place)
    say(f"OpenSSH's own client ({why})")
    try:
        reply = run(host, ("true",), 2 * place.connect_timeout_s)
    except WatchError:
        raise error from None
    if reply.status != 0:
        raise error
    return host


def _why(place: Place, error: TransportError) -> str | None:
    if error.reason is Reason.NO_COMMON_ALGORITHM:
        return "no algorithm in common with ours"
    if error.reason not in (Reason.AUTH_REFUSED, Reason.HOST_KEY_UNKNOWN):
        return None
    options = fetch_options(place)
    words = options.client_host_keys
    if error.reason is Reason.AUTH_REFUSED:
        words = (*options.client_logins, *_hardware_keys(options), *_master(place))
    return ", ".join(words) or None


def _hardware_keys(options: SshOptions) -> tuple[str, ...]:
    public = [Path(f"{path}.pub") for path in options.identity_files]
    kinds = [path.read_text(errors="replace")[:3] for path in public if path.is_file()]
    return ("a FIDO key",) if "sk-" in kinds else ()


def _master(place: Place) -> tuple[str, ...]:
    """Whether a connection of the person's own stands that others may use (ControlMaster)."""
    words = ["ssh", "-O", "check"]
    words += ["-F", place.ssh_config] if place.ssh_config else []
    words += ["-p", str(place.port)] if place.port else []
    words += ["-l", place.user] if place.user else []
    try:
        done = subprocess.run(
            [*words, "--", place.host or ""],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_CHECK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return ("a master connection",) if done.returncode == 0 else ()
