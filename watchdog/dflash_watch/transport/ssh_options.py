"""What ssh_config says about a host, as OpenSSH itself resolves it.

`ssh -G` applies Include, Match and defaults; where there is no OpenSSH, paramiko's parser reads the
files after Include is expanded here and Match blocks that it would misread are switched off.
"""

from __future__ import annotations

import getpass
import os
import shlex
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paramiko

from dflash_watch.model import Record
from dflash_watch.place import Place
from dflash_watch.transport.base import Reason, TransportError
from dflash_watch.transport.config_text import expanded_config
from dflash_watch.transport.openssh import default_user, layered_config, refuse_names

_RESOLVE_TIMEOUT_S = 10.0
DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")

_LOGINS = {"gssapiauthentication": "GSSAPI", "pkcs11provider": "PKCS#11"}
_HOST_KEYS = {"knownhostscommand": "KnownHostsCommand", "verifyhostkeydns": "VerifyHostKeyDNS"}


class SshOptions(Record, frozen=True, kw_only=True):
    """One resolved host. Paths are absolute, tokens are filled in."""

    alias: str
    """As typed."""
    hostname: str
    port: int
    user: str
    identity_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    """CertificateFile; `KEY-cert.pub` beside a key needs no word."""
    identities_only: bool = False
    identity_agent: str | None = None
    """None: from the environment; `none`: no agent."""
    known_hosts: tuple[str, ...] = ()
    """Files, the one to write first."""
    host_key_alias: str | None = None
    strict: str = "ask"
    """StrictHostKeyChecking: `yes`, `ask`, `accept-new`, `no`."""
    proxy_jump: tuple[str, ...] = ()
    proxy_command: str | None = None
    connect_timeout_s: float | None = None
    client_logins: tuple[str, ...] = ()
    """Ways to log in that only OpenSSH's client knows, in words."""
    client_host_keys: tuple[str, ...] = ()
    """The same for proofs of a host."""


def fetch_options(place: Place) -> SshOptions:
    """Options for `place.host`; the person's own words (user, port) win.

    Raises:
        TransportError: the name cannot be one, or the configuration cannot be read.
    """
    host = place.host or ""
    refuse_names(place)
    user = default_user(place)
    try:
        values = parse_resolved(_ssh_g(place, user))
    except FileNotFoundError:
        values = _without_openssh(place, user)
    except subprocess.TimeoutExpired:
        raise TransportError(
            Reason.TIMEOUT,
            f"{host}: ssh -G did not answer in {_RESOLVE_TIMEOUT_S:.0f} s: a command of Match exec"
            " or a name lookup (CanonicalizeHostname) in ssh_config hangs",
        ) from None
    return build_options(host, values)


def parse_resolved(text: str) -> dict[str, list[str]]:
    """Output of `ssh -G`: keyword -> its values, in order."""
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if value:
            values.setdefault(key.lower(), []).append(value)
    return values


def build_options(alias: str, values: Mapping[str, list[str]]) -> SshOptions:
    """Record from keyword lists, tokens and `~` filled in."""

    def last(key: str, default: str) -> str:
        value = values.get(key, [default])[-1]
        return default if value == "none" else value

    hostname, port = last("hostname", alias), last("port", "22")
    user = last("user", getpass.getuser())
    tokens = _tokens(alias, hostname, port, user)

    def fill(text: str) -> str:
        return str(Path(_substitute(text, tokens)).expanduser())

    known = [*values.get("userknownhostsfile", []), *values.get("globalknownhostsfile", [])]
    command, timeout = last("proxycommand", ""), last("connecttimeout", "")
    return SshOptions(
        alias=alias,
        hostname=hostname,
        port=int(port),
        user=user,
        identity_files=tuple(fill(path) for path in values.get("identityfile", DEFAULT_KEYS)),
        certificate_files=tuple(fill(path) for path in values.get("certificatefile", ())),
        identities_only=last("identitiesonly", "no") == "yes",
        identity_agent=values["identityagent"][-1] if "identityagent" in values else None,
        known_hosts=tuple(fill(f) for line in known for f in shlex.split(line) if f != "none"),
        host_key_alias=last("hostkeyalias", "") or None,
        strict={"true": "yes", "false": "no", "off": "no"}.get(
            (strict := last("stricthostkeychecking", "ask")), strict
        ),
        proxy_jump=tuple(hop for hop in last("proxyjump", "").split(",") if hop),
        proxy_command=_substitute(command, tokens) or None,
        connect_timeout_s=float(timeout) if timeout else None,
        client_logins=tuple(
            words for key, words in _LOGINS.items() if last(key, "no") not in ("", "no")
        ),
        client_host_keys=tuple(
            words for key, words in _HOST_KEYS.items() if last(key, "no") not in ("", "no", "false")
        ),
    )


def _ssh_g(place: Place, user: str | None) -> str:
    argv = ["ssh", "-G"]
    argv += ["-p", str(place.port)] if place.port else []
    argv += ["-l", place.user] if place.user else []
    config = None
    if user:
        config = layered_config(place.ssh_config, {"User": user})
        argv += ["-F", "/dev/stdin"]
    elif place.ssh_config:
        argv += ["-F", place.ssh_config]
    done = subprocess.run(
        [*argv, "--", place.host or ""],
        input=config or "",
        capture_output=True,
        text=True,
        timeout=_RESOLVE_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"ssh -G ended with {done.returncode}"]
        raise TransportError(Reason.UNKNOWN_HOST, f"{place.host}: ssh_config: {lines[-1]}")
    return done.stdout


def _without_openssh(place: Place, user: str | None) -> dict[str, list[str]]:
    files = [place.ssh_config] if place.ssh_config else ["~/.ssh/config", "/etc/ssh/ssh_config"]
    text = "".join(expanded_config(Path(path).expanduser()) for path in files)
    found: dict[str, Any] = dict(paramiko.SSHConfig.from_text(text).lookup(place.host or ""))
    values = {key: value if isinstance(value, list) else [value] for key, value in found.items()}
    values.setdefault("user", [user or getpass.getuser()])
    values.setdefault("userknownhostsfile", ["~/.ssh/known_hosts"])
    values.setdefault("globalknownhostsfile", ["/etc/ssh/ssh_known_hosts"])
    if place.user:
        values["user"] = [place.user]
    if place.port:
        values["port"] = [str(place.port)]
    return values


def _tokens(alias: str, hostname: str, port: str, user: str) -> dict[str, str]:
    return {
        "%%": "%",
        "%d": str(Path.home()),
        "%h": hostname,
        "%n": alias,
        "%p": port,
        "%r": user,
        "%u": getpass.getuser(),
        "%i": str(os.getuid()),
        "%l": socket.gethostname(),
        "%L": socket.gethostname().split(".")[0],
    }


def _substitute(text: str, tokens: Mapping[str, str]) -> str:
    """Percent tokens filled in from left to right; unknown ones stay."""
    parts, rest = [], text
    while "%" in rest:
        before, _, after = rest.partition("%")
        token = "%" + after[:1]
        parts += [before, tokens.get(token, token)]
        rest = after[1:]
    return "".join(parts) + rest
