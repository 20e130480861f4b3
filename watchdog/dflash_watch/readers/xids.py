"""Xids: the driver's numbers for trouble of a card, in words, and by whose fault they are.

Source: NVIDIA's list of Xid errors; which are a program's own: the list that its device plugin for
Kubernetes leaves alone (13, 31, 43, 45, 68, 109).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_LINE = re.compile(
    r"Xid \(PCI:(?P<pci>[0-9a-fA-F:.]+)(?: GPU-I:\d+)?\): ?(?P<number>\d{1,5})"
    r"(?:, pid='?(?P<pid>\d+|<unknown>)'?)?(?:, name=(?P<name>[^,\n]{1,64}))?"
)


class Origin(StrEnum):
    """Where such an error comes from."""

    PROGRAM = "a program's own fault"
    HARDWARE = "the hardware"
    DRIVER = "driver or firmware"


WORDS: dict[int, tuple[Origin, str]] = {
    8: (Origin.DRIVER, "the card stopped answering a program"),
    13: (Origin.PROGRAM, "a kernel did what the engine does not allow"),
    31: (Origin.PROGRAM, "a kernel touched memory it does not own"),
    32: (Origin.DRIVER, "damaged commands reached the card"),
    38: (Origin.DRIVER, "the firmware failed"),
    43: (Origin.PROGRAM, "a program's work on the card was ended"),
    45: (
        Origin.PROGRAM,
        "a program's work was taken off the card, after an error or because it ended",
    ),
    48: (Origin.HARDWARE, "memory of the card had an error that cannot be corrected"),
    61: (Origin.HARDWARE, "a controller of the card stopped at a fault"),
    62: (Origin.HARDWARE, "a controller of the card halted"),
    63: (Origin.HARDWARE, "a bad row of memory was noted, to be mapped away at the next reset"),
    64: (Origin.HARDWARE, "a bad row of memory could not be mapped away"),
    68: (Origin.PROGRAM, "the video decoder met what it cannot decode"),
    69: (Origin.PROGRAM, "a program used the engine wrongly"),
    74: (Origin.HARDWARE, "an NVLink failed"),
    79: (Origin.HARDWARE, "the card fell off the bus"),
    92: (Origin.HARDWARE, "memory errors that can be corrected come often"),
    94: (Origin.HARDWARE, "a memory error ended the program it hit, and no other"),
    95: (Origin.HARDWARE, "a memory error that may have hit any program on the card"),
    109: (Origin.PROGRAM, "a program's work did not leave the card in time"),
    110: (Origin.HARDWARE, "a security fault of the card"),
    119: (Origin.DRIVER, "the card's firmware does not answer the driver"),
    120: (Origin.DRIVER, "the card's firmware failed"),
    136: (Origin.HARDWARE, "a link of the card could not be set up"),
    137: (Origin.HARDWARE, "access to another card over NVLink failed"),
    140: (Origin.HARDWARE, "memory of the card had errors that were not recovered"),
    154: (Origin.HARDWARE, "the card asks to be reset, or its machine to be restarted"),
}
"""Number -> by whose fault, and what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One error as a kernel line or an event of the driver tells it."""

    number: int
    pci: str | None = None
    pid: int | None = None
    """In the host's numbers; None where the driver does not know it."""
    name: str | None = None
    """Of that process."""


def parse_xid(line: str) -> Xid | None:
    """The Xid of a kernel line; None for a line without."""
    found = _LINE.search(line)
    if found is None:
        return None
    pid, name = found["pid"], (found["name"] or "").strip("'\" ")
    return Xid(
        number=int(found["number"]),
        pci=found["pci"],
        pid=int(pid) if pid and pid.isdigit() else None,
        name=name if name and name != "<unknown>" else None,
    )


def words(number: int) -> str:
    """`what happened: whose fault`, or that the number is not known here."""
    if number not in WORDS:
        return "not in the list this was built with: see NVIDIA's Xid errors"
    origin, text = WORDS[number]
    return f"{text}: {origin}"


def is_hardware(number: int) -> bool:
    """Is it trouble of the card itself?"""
    return number in WORDS and WORDS[number][0] is Origin.HARDWARE


def event_line(pci: str | None, number: int) -> str:
    """The line that the kernel log would have, for an Xid that came as an event."""
    return f"NVRM: Xid (PCI:{pci or '0'}): {number}, as an event of the driver"
