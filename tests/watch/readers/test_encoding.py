"""Files as other systems' shells and mails leave them."""

from __future__ import annotations

from pathlib import Path

import pytest
from dflash_watch.pasted.files import read_files
from dflash_watch.readers.encoding import text_of
from dflash_watch.readers.gputext import parse_gpus
from dflash_watch.readers.pstext import parse_ps
from dflash_watch.readers.stackparse import parse_dumps
from hypothesis import given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_text_of_any_shell_is_read(name: str) -> None:
    text = 'Thread 1 (idle): "MainThread"\n    f (a.py:1)\n'
    assert text_of(text.encode(name)) == text


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert text_of(b"step 5 \xff\xfe loss") == "step 5 \ufffd\ufffd loss"
    assert text_of(b"\x00" * 40) == "\x00" * 40
    assert text_of(b"") == ""


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_become_text(raw: bytes) -> None:
    assert isinstance(text_of(raw), str)


def test_listings_written_by_powershell_are_evidence(tmp_path: Path) -> None:
    gpus, ps = tmp_path / "nvidia-smi.txt", tmp_path / "ps.txt"
    for path, source in ((gpus, "gpus/mig.txt"), (ps, "ps/eLf.txt")):
        text = (HERE / source).read_text("utf-8").replace("\n", "\r\n")
        path.write_bytes(text.encode("utf-16"))
    seen = read_files({"gpus": gpus, "ps": ps})
    assert seen.gpus is not None
    assert len(seen.gpus.gpus) == 2
    assert seen.processes is not None
    assert len(seen.processes) == 9


def test_what_a_mail_quotes_is_read() -> None:
    def quoted(source: str) -> str:
        return "".join(f"> {line}\n" for line in (HERE / source).read_text("utf-8").splitlines())

    assert len(parse_dumps(quoted("stacks/py-spy.txt")).samples[0].threads) == 9
    assert len(parse_gpus(quoted("gpus/old-driver.txt")).gpus) == 2
    assert len(parse_ps(quoted("ps/T.txt")).rows) == 9
