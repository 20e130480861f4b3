"""Xids and clock reasons: from the driver's numbers to words."""

from __future__ import annotations

import pytest
from dflash_watch.readers.clockreasons import in_words
from dflash_watch.readers.xids import WORDS, Origin, Xid, event_line, is_hardware, parse_xid, words


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "[12.5] NVRM: Xid (PCI:0000:11:00): 79, pid=1234, name=python, GPU has fallen off.",
            Xid(number=79, pci="0000:11:00", pid=1234, name="python"),
        ),
        (
            "NVRM: Xid (PCI:0000:65:00 GPU-I:05): 94, pid='<unknown>', name=<unknown>, Contained",
            Xid(number=94, pci="0000:65:00"),
        ),
        (
            "NVRM: Xid (PCI:0000:11:00): 31, pid=7, name=pt_main_thread, Ch 00000008",
            Xid(number=31, pci="0000:11:00", pid=7, name="pt_main_thread"),
        ),
        ("NVRM: Xid (PCI:0000:0a:00): 154, GPU recovery action", Xid(number=154, pci="0000:0a:00")),
        (event_line("00000000:13:00.0", 48), Xid(number=48, pci="00000000:13:00.0")),
        (event_line(None, 48), Xid(number=48, pci="0")),
        ("NVRM: GPU 0000:11:00.0: GPU has fallen off the bus.", None),
        ("Xid said the user", None),
    ],
)
def test_a_kernel_line_gives_number_bus_and_process(line, expected):
    assert parse_xid(line) == expected


def test_errors_of_programs_are_those_that_device_plugins_leave_alone_and_no_hardware():
    programs = {number for number, (origin, _) in WORDS.items() if origin is Origin.PROGRAM}
    assert programs == {13, 31, 43, 45, 68, 69, 109}
    assert not any(map(is_hardware, programs))
    assert all(map(is_hardware, (48, 63, 64, 74, 79, 92, 94, 95)))
    assert "a program's own fault" in words(31)
    assert "the hardware" in words(79)


def test_a_number_that_is_not_known_is_said_to_be_that():
    assert "not in the list" in words(9999)
    assert not is_hardware(9999)


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (0, "none"),
        (0x1, "it idles"),
        (0x4, "its own power limit"),
        (
            0x64,
            "hardware thermal slowdown, too hot (software thermal slowdown), its own power limit",
        ),
        (0x80000000, "another reason (0x80000000)"),
    ],
)
def test_every_bit_of_the_clock_reasons_has_its_words_the_worst_first(mask, text):
    assert in_words(mask) == text


def test_no_two_bits_share_their_words():
    assert len({in_words(1 << bit) for bit in range(12)}) == 12
