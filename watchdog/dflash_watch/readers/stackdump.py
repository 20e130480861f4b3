"""One stream of lines becomes dumps: threads are closed, and dumps told apart.

A stream is what one process prints. A new dump begins where the text announces one, where the tool
changes, where a thread comes a second time, and after faulthandler's last thread, the main one.
"""

from __future__ import annotations

from dflash_watch.frame import StackSample, ThreadStack
from dflash_watch.readers import stacklines as sl
from dflash_watch.readers.stackthread import OpenThread, joined

THREAD_LIMIT = 4096
"""Threads kept of one dump."""
RAW_LIMIT = 1 << 18
"""Characters of a dump kept as printed."""
UNREAD_KEPT = 20
PATIENCE = 40
"""Other lines between an announcement and its dump: a command line may have as many (`-c`)."""

_Who = tuple[int, int | None, str | None]
"""Process, rank and command line of a dump, as far as they are told."""


class DumpBuilder:
    """Dumps of one stream.

    Args:
        rank: of the stream, where its prefix says so.
        pid: likewise; 0 where it does not.

    Attributes:
        unread: lines inside dumps that no format knows.
        unread_lines: the first of them.
    """

    def __init__(self, rank: int | None = None, pid: int = 0) -> None:
        self.unread = 0
        self.unread_lines: list[str] = []
        self._own: _Who = (pid, rank, None)
        self._next: _Who = self._own
        self._patience = 0
        self._done: list[StackSample] = []
        self._thread: OpenThread | None = None
        self._begin()

    def _begin(self) -> None:
        self._threads: list[ThreadStack] = []
        self._seen: dict[int, int] = {}
        self._raw: list[str] = []
        self._raw_size = 0
        self._tool = ""
        self._who = self._next
        self._ended = False  # faulthandler's main thread was seen

    def announce(self, pid: int = 0, rank: int | None = None, command: str | None = None) -> None:
        """What comes next is another dump: of this process or rank where they are named."""
        told = self._next if not self._threads and self._patience else self._own
        self.close()
        self._patience = PATIENCE
        self._next = (
            pid or told[0],
            told[1] if rank is None else rank,
            told[2] if command is None else command,
        )
        self._begin()

    def take(self) -> list[StackSample]:
        """Dumps that are whole."""
        done, self._done = self._done, []
        return done

    def feed(self, line: str) -> bool:
        """Take a line; True when it belongs to a dump."""
        heading = sl.read_heading(line.rstrip())
        if heading is not None:
            self._start(heading, line)
            return True
        if self._patience and not self._threads and line.strip():
            self._wait_less()
        if self._thread is None or self._thread.heading.tool == sl.KERNEL:
            return self._kernel(line)
        if not line.strip():
            self._end_thread()
            return True
        if self._frame(self._thread, line):
            self._note(line)
            return True
        self._end_thread()
        return line.startswith(("Python v", "[Inferior", "Extension modules:"))

    def _wait_less(self) -> None:
        self._patience -= self._thread is None
        if not self._patience:
            self._next = self._own
            self._begin()

    def close(self) -> None:
        """The stream ends, or another dump begins."""
        self._end_thread()
        if not self._threads:
            return
        pid, rank, command = self._who
        if not pid and self._tool in (sl.GDB, sl.PYSTACK):
            pid = _main_tid(self._threads)
        sample = StackSample(
            t=0.0,
            pid=pid,
            label="",
            tool=self._tool,
            mode="unknown",
            rank=rank,
            command=command,
            threads=tuple(self._threads),
            raw="\n".join(self._raw),
        )
        self._done.append(sample)
        self._next = self._own
        self._begin()

    def _start(self, heading: sl.Heading, line: str) -> None:
        again = self._seen.get(heading.tid)
        joins = again is not None and heading.tool == sl.GDB == self._tool and self._joins(again)
        self._end_thread()
        new = self._tool not in ("", heading.tool) or (again is not None and not joins)
        if new or self._ended:
            self.close()
        self._tool = heading.tool
        self._thread = OpenThread(heading)
        self._note(line)

    def _joins(self, index: int) -> bool:
        """Both of gdb: `bt` of all threads came before, `py-bt` of them comes now."""
        return index < len(self._threads) and not any(
            frame.file.endswith(".py") for frame in self._threads[index].frames
        )

    def _frame(self, thread: OpenThread, line: str) -> bool:
        match thread.heading.tool:
            case sl.SPY:
                return self._spy_line(thread, line)
            case sl.GDB:
                return self._gdb_line(thread, line)
            case sl.PYSTACK:
                return self._pystack_line(thread, line)
            case _:
                return self._fault_line(thread, line)

    def _spy_line(self, thread: OpenThread, line: str) -> bool:
        indent = len(line) - len(line.lstrip())
        if indent < 2:
            return False
        if thread.indent is None:
            thread.indent = indent
        if indent <= thread.indent:  # deeper are arguments and locals
            thread.add(sl.spy_frame(line))
        return True

    def _fault_line(self, thread: OpenThread, line: str) -> bool:
        if not line.startswith((" ", "\t")):
            return False
        frame = sl.file_frame(line)
        if frame is not None:
            thread.add(frame)
        elif not thread.hear(line) and not line.strip().startswith(("<", "...")):
            self._unread(line)
        return True

    def _pystack_line(self, thread: OpenThread, line: str) -> bool:
        if not line.startswith((" ", "* -")):
            return False
        if line.lstrip().startswith(("(Python) File", "(C) File")):
            thread.add(sl.file_frame(line))
        elif told := sl.status_heading(line):
            thread.said.update({key: value for key, value in told.items() if value})
        return True

    def _gdb_line(self, thread: OpenThread, line: str) -> bool:
        if sl.is_gdb_frame(line):
            thread.flush()
            thread.in_py_bt = False
            thread.pending = line[:4000]
            return True
        if line.startswith("Traceback (most recent call first)"):
            thread.flush()
            thread.in_py_bt = True
            return True
        if not line.startswith((" ", "\t", "(", "Unable to")):
            return False
        if thread.in_py_bt:
            thread.add(sl.file_frame(line) or sl.builtin_frame(line))
            thread.hear(line)
        elif thread.pending and len(thread.pending) < 4000:
            thread.pending += " " + line.strip()
        return True

    def _kernel(self, line: str) -> bool:
        """Frames of /proc/PID/stack: no heading but, at best, the file's name above them."""
        frame = sl.kernel_frame(line) if "+0x" in line else None
        if frame is None:
            self._end_thread()
            named = sl.kernel_heading(line) if "/stack" in line else None
            if named is not None:
                self._start(named, line)
            return named is not None
        if self._thread is None:
            self._start(sl.Heading(tool=sl.KERNEL, tid=-1 - len(self._threads)), line)
        if self._thread is not None:
            self._thread.add(frame)
        return True

    def _end_thread(self) -> None:
        thread = self._thread
        if thread is None:
            return
        self._thread = None
        if thread.heading.tool == sl.KERNEL and not thread.frames:
            return
        built = thread.built()
        index = self._seen.get(thread.heading.tid)
        if index is not None and index < len(self._threads):
            self._threads[index] = joined(self._threads[index], built)
        elif len(self._threads) < THREAD_LIMIT:
            self._seen[thread.heading.tid] = len(self._threads)
            self._threads.append(built)
        if thread.heading.tool == sl.FAULT and built.frames:
            self._ended = built.frames[-1].name == "<module>"

    def _note(self, line: str) -> None:
        self._raw_size += len(line) + 1
        if self._raw_size <= RAW_LIMIT:
            self._raw.append(line)

    def _unread(self, line: str) -> None:
        self.unread += 1
        if len(self.unread_lines) < UNREAD_KEPT:
            self.unread_lines.append(line[:200])


def _main_tid(threads: list[ThreadStack]) -> int:
    """Number of the main thread, which is the process's; 0 when none of them is it."""
    outermost = ("<module>", "_start", "_run_module_as_main")
    main = [one for one in threads if one.frames and one.frames[-1].name in outermost]
    return main[0].tid or 0 if len(main) == 1 else 0
