"""Certificates of hosts and of users, made by ssh-keygen and shown by a real sshd."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from dflash_watch.place import Place
from dflash_watch.transport import way
from dflash_watch.transport.base import Reason, TransportError
from e2e.places.sshd import Sshd

pytestmark = [pytest.mark.ssh]


def _sign(sshd: Sshd, authority: str, key: str, *words: str) -> Path:
    """`KEY-cert.pub`, made for `words`."""
    argv = ["ssh-keygen", "-q", "-s", str(sshd.work / authority), "-I", "test", *words]
    subprocess.run([*argv, str(sshd.work / f"{key}.pub")], check=True, stdin=subprocess.DEVNULL)
    return sshd.work / f"{key}-cert.pub"


def _authority(sshd: Sshd, name: str = "id_stranger", names: str = "box") -> str:
    return f"@cert-authority {names} {(sshd.work / f'{name}.pub').read_text()}"


def _place(sshd: Sshd, config: str | None = None) -> Place:
    return Place(host="box", ssh_config=config or sshd.ssh_config, connect_timeout_s=30.0)


def _refusal(place: Place) -> TransportError:
    with pytest.raises(TransportError) as caught:
        way.open_host(place).close()
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_host_that_an_authority_vouches_for_is_known(sshd: Sshd) -> None:
    """Finding 6: what paramiko leaves out of known_hosts is read here."""
    certificate = _sign(sshd, "id_stranger", "host_key", "-h", "-n", "box", "-V", "-1h:+1h")
    sshd.trust(extra=_authority(sshd, names="*.lab,b*x"))
    sshd.configure(extra=f"HostCertificate {certificate}\n")
    way.open_host(_place(sshd)).close()


@pytest.mark.parametrize(
    ("words", "authority", "why"),
    [
        (("-h", "-n", "other"), "id_stranger", "made for other, not for box"),
        (("-h", "-n", "box", "-V", "-2h:-1h"), "id_stranger", "not valid at this time"),
        (("-h", "-n", "box"), "host_key_other", "which known_hosts does not name"),
    ],
)
def test_a_certificate_that_proves_nothing_leaves_the_host_unknown_and_says_why(
    sshd: Sshd, words: tuple[str, ...], authority: str, why: str
) -> None:
    certificate = _sign(sshd, authority, "host_key", *words)
    sshd.trust(extra=_authority(sshd))
    sshd.configure(extra=f"HostCertificate {certificate}\n")
    error = _refusal(_place(sshd))
    assert error.reason is Reason.HOST_KEY_UNKNOWN
    assert why in str(error)


def test_an_authority_that_was_revoked_vouches_for_nobody(sshd: Sshd) -> None:
    certificate = _sign(sshd, "id_stranger", "host_key", "-h", "-n", "box")
    line = f"@revoked * {(sshd.work / 'id_stranger.pub').read_text()}"
    sshd.trust(extra=_authority(sshd) + line)
    sshd.configure(extra=f"HostCertificate {certificate}\n")
    assert "@revoked" in str(_refusal(_place(sshd)))


def test_a_certified_host_whose_key_was_revoked_is_refused(sshd: Sshd) -> None:
    certificate = _sign(sshd, "id_stranger", "host_key", "-h", "-n", "box")
    line = f"@revoked * {(sshd.work / 'host_key.pub').read_text()}"
    sshd.trust(extra=_authority(sshd) + line)
    sshd.configure(extra=f"HostCertificate {certificate}\n")
    assert _refusal(_place(sshd)).reason is Reason.HOST_KEY_REVOKED


def test_a_host_without_a_certificate_is_judged_by_its_key_beside_an_authority(sshd: Sshd) -> None:
    sshd.trust("host_key", extra=_authority(sshd))
    way.open_host(_place(sshd)).close()


@pytest.mark.parametrize("is_named", [True, False])
def test_a_key_goes_in_by_its_certificate(sshd: Sshd, tmp_path: Path, is_named: bool) -> None:
    """By CertificateFile, and by the name that ssh looks for beside the key."""
    for suffix in ("", ".pub"):
        shutil.copy(sshd.work / f"id_client{suffix}", sshd.work / f"id_signed{suffix}")
    certificate = _sign(sshd, "id_stranger", "id_signed", "-n", "root")
    config = Path(sshd.ssh_config).read_text().replace("id_client", "id_signed")
    if is_named:
        certificate = certificate.rename(tmp_path / "elsewhere-cert.pub")
        config += f"  CertificateFile {certificate}\n"
    (tmp_path / "config").write_text(config)
    authority = sshd.work / "id_stranger.pub"
    sshd.configure(extra=f"TrustedUserCAKeys {authority}\nAuthorizedKeysFile none\n")
    try:
        way.open_host(_place(sshd, str(tmp_path / "config"))).close()
        certificate.unlink()
        assert _refusal(_place(sshd, str(tmp_path / "config"))).reason is Reason.AUTH_REFUSED
    finally:
        for left in sshd.work.glob("id_signed*"):
            left.unlink()
