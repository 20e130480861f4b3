"""Is the key that the host shows the key we know? One clear line if not."""

from __future__ import annotations

import time

import paramiko

from dflash_watch.place import Place
from dflash_watch.transport import known_hosts
from dflash_watch.transport.base import Reason, TransportError
from dflash_watch.transport.host_certificate import SUFFIX, certificate_trouble
from dflash_watch.transport.known_hosts import Judgement, KnownKey
from dflash_watch.transport.ssh_options import SshOptions


def prefer_known_types(options: SshOptions, transport: paramiko.Transport) -> None:
    """Ask for a key of the type we know; asking for another one looks like a changed key.

    Certificates come first where an authority may speak for the host, and are not asked for else.
    """
    names = known_hosts.names_of(options.hostname, options.port, options.host_key_alias)
    known = known_hosts.read_known_hosts(options.known_hosts)
    types = {line.key_type for line in known_hosts.lines_for(known, names)}
    if "ssh-rsa" in types:
        types |= {"rsa-sha2-512", "rsa-sha2-256"}
    security = transport.get_security_options()
    order = sorted(security.key_types, key=lambda name: name not in types)
    if known_hosts.authorities_for(known, names):
        order = [name + SUFFIX for name in order] + order
    security.key_types = tuple(order)


def check_host_key(options: SshOptions, key: paramiko.PKey, place: Place) -> None:
    """Raises unless the key is known, certified, or new and wanted."""
    known = known_hosts.read_known_hosts(options.known_hosts)
    names = known_hosts.names_of(options.hostname, options.port, options.host_key_alias)
    blob = key.asbytes()
    shown = known_hosts.fingerprint(blob)
    trouble = _certificate_trouble(key, names, known)
    if trouble is None and not known_hosts.is_revoked(known, names, blob):
        return
    match known_hosts.judge(known, names, key.get_name(), blob):
        case Judgement.KNOWN:
            return
        case Judgement.REVOKED:
            raise TransportError(
                Reason.HOST_KEY_REVOKED,
                f"{options.alias}: host key {shown} is marked @revoked in known_hosts",
                hint="do not connect; ask who runs the host",
            )
        case Judgement.CHANGED:
            lines = known_hosts.lines_for(known, names)
            old = [known_hosts.fingerprint(line.blob) for line in lines]
            file, _, _ = lines[0].where.rpartition(":")
            raise TransportError(
                Reason.HOST_KEY_CHANGED,
                f"{options.alias}: host key changed (was {', '.join(old)}, is {shown})",
                hint="compare with the host's console, then remove"
                f" {', '.join(line.where for line in lines)}: ssh-keygen -R '{names[0]}' -f {file}",
            )
        case Judgement.NEW:
            if not (place.accept_new_host_keys or options.strict in ("accept-new", "no")):
                raise TransportError(
                    Reason.HOST_KEY_UNKNOWN,
                    f"{options.alias}: host key {shown} is not known"
                    + (f", its certificate {trouble}" if trouble else ""),
                    hint="compare with the host's console, then log in once with ssh, or use"
                    " --accept-new-host-key",
                )
            if options.known_hosts:
                known_hosts.append_known_host(options.known_hosts[0], names[0], key)


def _certificate_trouble(
    key: paramiko.PKey, names: tuple[str, ...], known: tuple[KnownKey, ...]
) -> str | None:
    """None: the key came with a certificate that proves it; empty: it came without one."""
    shown = getattr(key, "public_blob", None)
    if shown is None or not shown.key_type.endswith(SUFFIX):
        return ""
    authorities = known_hosts.authorities_for(known, names)
    return certificate_trouble(shown.key_blob, names, known, authorities, time.time())
