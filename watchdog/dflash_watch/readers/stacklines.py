"""One line of a stack dump: thread headings and frames as the tools print them.

Lines in, records out; no memory. Searches from the ends and for fixed words, so the time is linear
in the line whatever it holds.
"""

from __future__ import annotations

import re

import msgspec

from dflash_watch.frame import StackFrame

SPY, FAULT, GDB, PYSTACK, KERNEL = "py-spy", "faulthandler", "gdb", "pystack", "kernel"

_SPY_THREAD = re.compile(
    r"Thread (0x[0-9A-Fa-f]{1,16}|\d{1,20})(?:/0x[0-9A-Fa-f]{1,16})? \(([\w+, ]{1,40})\)"
    r'(?:: "(.{0,200})")?$'
)
_FAULT_THREAD = re.compile(
    r"(Current t|T)hread (?:0x)?([0-9A-Fa-f]{1,16})(?: \[([^\]]{0,64})\])?"
    r" \(most recent call first\):$"
)
_GDB_THREAD = re.compile(
    r"Thread \d{1,6} \((?:Thread (0x[0-9a-f]{1,16}))?[ (]{0,2}(?:LWP|process) (\d{1,10})\)?"
    r"(?: \"([^\"]{0,64})\")?\)"
)
_PYSTACK_THREAD = re.compile(
    r"Traceback for thread (\d{1,10})(?: \((.{0,64})\))? (?:\[([\w, ]{0,80})\] )?"
    r"\(most recent call last\):$"
)
_PYSTACK_EMPTY = re.compile(r"The frame stack for thread (\d{1,10}) is empty$")
_PYSTACK_MORE = re.compile(r"(?:In |Not currently attached).{0,60}\[([\w, ]{0,80})\]$")
_KERNEL_FRAME = re.compile(r"\[<[0-9a-f]{1,16}>\] (?:\? )?([\w.]{1,120})\+0x")
_KERNEL_FILE = re.compile(r"/proc/(\d{1,10})/(?:task/(\d{1,10})/)?stack\b")
_SUFFIX = re.compile(r"(?:\.(?:constprop|isra|part|cold|lto_priv)(?:\.\d{1,4})?){1,4}$")
_GDB_FRAME = re.compile(r"#(\d{1,5})\s{1,4}(?:(0x[0-9a-f]{1,16}) in )?(?=\S)")
_FOR_FILE = re.compile(r"for file ([^\n]{1,500}?), line (\d{1,7}), in ([^\s(]{1,200})")
_IN = re.compile(r'", line (\d{1,9}),? in (.{1,500})$')


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """A line that begins a thread."""

    tool: str
    tid: int
    name: str | None = None
    active: bool | None = None
    owns_gil: bool | None = None
    waits_gil: bool | None = None
    in_gc: bool | None = None
    is_current: bool = False
    """faulthandler's `Current thread`: the one that took the dump."""
    outermost_first: bool = False


def read_heading(line: str) -> Heading | None:
    """The thread that a line begins, without line end and prefix; None for any other line."""
    if line.startswith("Thread "):
        return _spy_heading(line) or _fault_heading(line) or _gdb_heading(line)
    if line.startswith("Current thread "):
        return _fault_heading(line)
    if line.startswith(("Traceback for thread ", "The frame stack for ")):
        return _pystack_heading(line)
    return None


def status_heading(line: str) -> dict[str, bool | None] | None:
    """What pystack says below the heading of a thread with several interpreters."""
    found = _PYSTACK_MORE.match(line.strip())
    return _status(found.group(1)) if found else None


def spy_frame(line: str) -> StackFrame:
    """`    name (file:line)`, also `name (libc.so.6)` and a bare name."""
    body = line.strip()
    cut = body.rfind(" (") if body.endswith(")") else -1
    inner = body[cut + 2 : -1] if cut > 0 else ""
    if cut > 0 and ")" in inner:  # a path with brackets in it
        cut = body.rfind(" (", 0, cut)
        inner = body[cut + 2 : -1] if cut > 0 else ""
    if cut <= 0:
        return StackFrame(body, "", 0)
    file, colon, number = inner.rpartition(":")
    if colon and number.isdecimal():
        return StackFrame(body[:cut], file, int(number[:9]))
    return StackFrame(body[:cut], inner, 0)


def file_frame(line: str) -> StackFrame | None:
    """`File "x.py", line 3, in f` of faulthandler (`in` without comma), py-bt and pystack."""
    start = line.find('File "')
    if start < 0:
        return None
    found = _IN.search(line, start)
    if found is None:
        return None
    name, file = found.group(2).rstrip(), line[start + 6 : found.start()]
    if name.endswith(")") and "(C)" in line[:start]:  # `in sleep (/lib/libc.so.6)`
        cut = name.rfind(" (")
        library = name[cut + 2 : -1]
        name = name[:cut].removesuffix(" (inlined)") if cut > 0 else name
        file = library if file in ("", "???") else file
        name = plain_symbol(name)
    return StackFrame(name, file, int(found.group(1)))


def kernel_frame(line: str) -> StackFrame | None:
    """`[<0>] futex_wait_queue+0x60/0x90` of /proc/PID/stack."""
    found = _KERNEL_FRAME.search(line[:200])
    return StackFrame(found.group(1), "[kernel]", 0) if found else None


def kernel_heading(line: str) -> Heading | None:
    """`==> /proc/12/task/13/stack <==`, as `tail` prints it above the frames."""
    found = _KERNEL_FILE.search(line[:200])
    return Heading(tool=KERNEL, tid=int(found.group(2) or found.group(1))) if found else None


def is_gdb_frame(line: str) -> bool:
    """`#3  0x00007f in read () from libc.so.6` begins here; gdb may break it over lines."""
    return line.startswith("#") and _GDB_FRAME.match(line) is not None


def gdb_frame(text: str) -> StackFrame | None:
    """A whole frame of `bt`: a C or C++ function, or a Python one where gdb knows Python."""
    found = _GDB_FRAME.match(text)
    if found is None:
        return None
    body = text[found.end() :].strip()
    python = _FOR_FILE.search(body) if "for file " in body else None
    if python:
        return StackFrame(python.group(3), python.group(1), int(python.group(2)))
    end = _name_end(body)
    file, line = _gdb_place(body[end:])
    return StackFrame(plain_symbol(body[:end].strip()), file, line)


def plain_symbol(name: str) -> str:
    """A C function's name without symbol version (`f@GLIBC_2.2.5`) and suffix (`f.cold`)."""
    at = name.find("@", 1)
    bare = name[:at] if at > 0 and "(" not in name[:at] else name
    return _SUFFIX.sub("", bare) if "." in bare else bare


def builtin_frame(line: str) -> StackFrame | None:
    """`<built-in method sleep of module object at remote 0x7f>`: the leaf of a py-bt."""
    words = line.strip().split(" ", 3)
    if len(words) == 4 and words[:2] == ["<built-in", "method"]:
        return StackFrame(words[2], "<built-in>", 0)
    return None


def _number(text: str) -> int:
    return int(text, 16) if text.startswith("0x") else int(text)


def _spy_heading(line: str) -> Heading | None:
    found = _SPY_THREAD.match(line)
    if found is None:
        return None
    flags = found.group(2).lower()
    return Heading(
        tool=SPY,
        tid=_number(found.group(1)),
        name=found.group(3),
        active="active" in flags,
        owns_gil="gil" in flags or None,
    )


def _fault_heading(line: str) -> Heading | None:
    found = _FAULT_THREAD.match(line)
    if found is None:
        return None
    is_current = found.group(1).startswith("Current")
    return Heading(
        tool=FAULT, tid=int(found.group(2), 16), name=found.group(3), is_current=is_current
    )


def _gdb_heading(line: str) -> Heading | None:
    found = _GDB_THREAD.match(line)
    return Heading(tool=GDB, tid=int(found.group(2)), name=found.group(3)) if found else None


def _pystack_heading(line: str) -> Heading | None:
    found = _PYSTACK_EMPTY.match(line)
    if found:
        return Heading(tool=PYSTACK, tid=int(found.group(1)))
    found = _PYSTACK_THREAD.match(line)
    if found is None:
        return None
    said = _status(found.group(3) or "")
    return Heading(
        tool=PYSTACK,
        tid=int(found.group(1)),
        name=found.group(2),
        owns_gil=said["owns_gil"],
        waits_gil=said["waits_gil"],
        in_gc=said["in_gc"],
        outermost_first=True,
    )


def _status(text: str) -> dict[str, bool | None]:
    return {
        "owns_gil": "Has the GIL" in text or None,
        "waits_gil": "Waiting for the GIL" in text or None,
        "in_gc": "Garbage collecting" in text or None,
    }


def _name_end(body: str) -> int:
    """Where a C++ name ends and gdb's arguments begin: the first ` (` outside angle brackets."""
    depth = 0
    for i, c in enumerate(body[:2000]):
        if c == "<":
            depth += 1
        elif c == ">" and body[i - 1] != "-":
            depth = max(depth - 1, 0)
        elif c == " " and depth == 0 and i and body.startswith("(", i + 1):
            return i
    return len(body)


def _gdb_place(rest: str) -> tuple[str, int]:
    """File and line, or the library, behind the arguments."""
    at, lib = rest.rfind(") at "), rest.rfind(") from ")
    if at >= 0:
        file, _, number = rest[at + 5 :].strip().rpartition(":")
        return (file, int(number[:9])) if number.isdecimal() else (rest[at + 5 :].strip(), 0)
    return (rest[lib + 7 :].strip(), 0) if lib >= 0 else ("", 0)
