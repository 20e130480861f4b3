"""Host certificates: does an authority that known_hosts trusts vouch for this key? Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    SSHCertPublicKeyTypes,
    load_ssh_public_identity,
)

from dflash_watch.transport.known_hosts import KnownKey, fingerprint, is_revoked, matches

SUFFIX = "-cert-v01@openssh.com"


def certificate_trouble(
    blob: bytes,
    names: tuple[str, ...],
    known: Sequence[KnownKey],
    authorities: Sequence[KnownKey],
    now_t: float,
) -> str | None:
    """Why a certificate that a server showed proves nothing; None if it proves the host.

    Args:
        blob: the certificate as it travels.
        names: of the host, the plain one last.
        known: all lines of known_hosts, for authorities that were revoked.
        authorities: those that may speak for these names.
        now_t: moment that its times are compared with.

    Source: OpenSSH, PROTOCOL.certkeys.
    """
    try:
        certificate = _parse(blob)
        certificate.verify_cert_signature()
        signer = _blob(certificate.signature_key())
    except (ValueError, InvalidSignature, UnsupportedAlgorithm) as error:
        return f"cannot be read: {str(error) or type(error).__name__}"
    if is_revoked(known, names, signer):
        return f"authority {fingerprint(signer)} is marked @revoked in known_hosts"
    if all(line.blob != signer for line in authorities):
        return f"signed by {fingerprint(signer)}, which known_hosts does not name for this host"
    if certificate.type is not SSHCertificateType.HOST:
        return "made for a user, not for a host"
    if certificate.critical_options:
        return "has conditions that are not known here"
    wanted = [name.decode(errors="replace") for name in certificate.valid_principals]
    if not any(matches(name, names[-1]) for name in wanted):
        return f"made for {', '.join(wanted) or 'nobody'}, not for {names[-1]}"
    if not certificate.valid_after <= now_t < certificate.valid_before:
        return "not valid at this time"
    return None


def certified_key(line: bytes) -> bytes:
    """The key that a certificate file (`-cert.pub`) speaks of, as it travels.

    Raises:
        ValueError: it is no certificate, or of a kind that is not known.
    """
    try:
        return _blob(_read(line).public_key())
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error


def _parse(blob: bytes) -> SSHCertificate:
    size = int.from_bytes(blob[:4], "big")
    return _read(blob[4 : 4 + size] + b" " + base64.b64encode(blob))


def _read(line: bytes) -> SSHCertificate:
    found = load_ssh_public_identity(line)
    if not isinstance(found, SSHCertificate):
        raise ValueError("no certificate")  # noqa: TRY004  the caller reads one kind of error
    return found


def _blob(key: SSHCertPublicKeyTypes) -> bytes:
    """A public key as it stands in known_hosts."""
    line = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return base64.b64decode(line.split()[1])
