"""What known_hosts says about a key; lines as ssh-keygen and people write them."""

from __future__ import annotations

import base64
from pathlib import Path

import paramiko
import pytest
from dflash_watch.transport.known_hosts import (
    Judgement,
    append_known_host,
    fingerprint,
    judge,
    names_of,
    parse_known_hosts,
    read_known_hosts,
)

ED, RSA = "ssh-ed25519", "ssh-rsa"
ONE, TWO = b"first key", b"second key"
# A fixed salt: two test processes must collect the same names.
HASHED = paramiko.HostKeys.hash_host("box", "|1|" + base64.b64encode(b"salt" * 5).decode())


def _line(names: str, blob: bytes, kind: str = ED, marker: str = "") -> str:
    return f"{marker}{names} {kind} {base64.b64encode(blob).decode()} comment\n"


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("", ("box",), Judgement.NEW),
        (_line("box", ONE), ("box",), Judgement.KNOWN),
        (_line("box,10.0.0.1", ONE), ("10.0.0.1",), Judgement.KNOWN),
        (_line("other", ONE), ("box",), Judgement.NEW),
        (_line("box", TWO), ("box",), Judgement.CHANGED),
        (_line("box", TWO, RSA), ("box",), Judgement.CHANGED),
        (_line("box", TWO) + _line("box", ONE), ("box",), Judgement.KNOWN),
        (_line(HASHED, ONE), ("box",), Judgement.KNOWN),
        (_line(HASHED, ONE), ("bax",), Judgement.NEW),
        (_line("*.lab,!old.lab", ONE), ("new.lab",), Judgement.KNOWN),
        (_line("*.lab,!old.lab", ONE), ("old.lab",), Judgement.NEW),
        (_line("[box]:2222", ONE), ("[box]:2222", "box"), Judgement.KNOWN),
        (_line("box", ONE), ("[box]:2222", "box"), Judgement.KNOWN),
        (_line("box", TWO), ("[box]:2222", "box"), Judgement.NEW),
        (_line("box", ONE) + _line("*", ONE, marker="@revoked "), ("box",), Judgement.REVOKED),
        (_line("*.lab", TWO, marker="@cert-authority ") + _line("box", ONE), ("box",), "known"),
        ("garbage\nbox ssh-ed25519 !!!\n# box\n" + _line("box", ONE), ("box",), Judgement.KNOWN),
    ],
)
def test_a_key_is_judged_by_the_lines_that_speak_of_its_host(
    text: str, names: tuple[str, ...], expected: Judgement
) -> None:
    assert judge(parse_known_hosts(text), names, ED, ONE) == expected


def test_names_follow_openssh() -> None:
    assert names_of("Box", 22, None) == ("box",)
    assert names_of("box", 2222, None) == ("[box]:2222", "box")
    assert names_of("10.0.0.1", 2222, "Lab") == ("lab",)


def test_a_new_key_is_appended_on_a_line_of_its_own_and_then_known(tmp_path: Path) -> None:
    file = tmp_path / "ssh" / "known_hosts"
    file.parent.mkdir()
    file.write_text(_line("other", ONE).rstrip("\n"))
    key = paramiko.ECDSAKey.generate()
    append_known_host(str(file), "box", key)
    known = read_known_hosts([str(tmp_path / "absent"), str(file)])
    assert judge(known, ("box",), key.get_name(), key.asbytes()) == Judgement.KNOWN
    assert judge(known, ("other",), ED, ONE) == Judgement.KNOWN


def test_a_fingerprint_reads_as_openssh_prints_it() -> None:
    assert fingerprint(b"abc") == "SHA256:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0"
