"""One thread of a dump while its lines come in, and how C and Python frames are joined."""

from __future__ import annotations

import msgspec

from dflash_watch.frame import StackFrame, ThreadStack
from dflash_watch.readers import stacklines as sl

FRAME_LIMIT = 500
"""Frames kept of one thread, the innermost."""
NATIVE = 12
"""Frames from the leaf in which the interpreter's own functions tell what it does."""

_PLUMBING = (
    "_PyEval_", "PyEval_", "_PyFunction_", "function_code_fastcall", "_PyObject_", "PyObject_Call",
    "PyObject_Vectorcall", "PyVectorcall", "_PyVectorcall", "method_vectorcall", "do_call_core",
    "call_function", "cfunction_", "vectorcall_", "_PyCFunction", "_PyMethodDef", "slot_tp_call",
    "partial_call", "thread_run", "t_bootstrap", "pythread_wrapper",
)  # fmt: skip
_COLLECTING = {"gc_collect_main", "gc_collect_generations", "gc_collect_with_callback"}
_EVAL = ("_PyEval_EvalFrame", "PyEval_EvalFrame", "_PyEval_Vector", "PyEval_EvalCode")


class OpenThread:
    """A thread being read."""

    def __init__(self, heading: sl.Heading) -> None:
        self.heading = heading
        self.frames: list[StackFrame] = []
        self.python: list[StackFrame] = []  # of a py-bt
        self.pending = ""  # a frame of gdb that may go on in the next line
        self.indent: int | None = None
        self.said: dict[str, bool | None] = {}
        self.in_py_bt = False

    def add(self, frame: StackFrame | None) -> None:
        """Keep a frame, in the order of the text."""
        if frame is None:
            return
        frames = self.python if self.in_py_bt else self.frames
        if len(frames) < FRAME_LIMIT:
            frames.append(frame)
        elif self.heading.outermost_first:
            del frames[0]
            frames.append(frame)

    def hear(self, line: str) -> bool:
        """What faulthandler and gdb say of a thread among its frames."""
        for words, field in (("Garbage-collecting", "in_gc"), ("Waiting for the GIL", "waits_gil")):
            if words in line:
                self.said[field] = True
                return True
        return False

    def flush(self) -> None:
        """The frame of gdb that was being read is whole."""
        if self.pending:
            text, self.pending = self.pending, ""
            self.add(sl.gdb_frame(text))

    def built(self) -> ThreadStack:
        """The thread as far as it was read."""
        self.flush()
        frames = merged(self.frames, self.python)
        if self.heading.outermost_first:
            frames.reverse()
        head = self.heading
        names = {frame.name for frame in frames[:NATIVE]}
        return ThreadStack(
            tid=head.tid if head.tid >= 0 else None,
            name=head.name,
            frames=tuple(frames),
            active=head.active,
            owns_gil=head.owns_gil or self.said.get("owns_gil"),
            waits_gil=head.waits_gil or self.said.get("waits_gil") or "take_gil" in names or None,
            in_gc=head.in_gc or self.said.get("in_gc") or bool(names & _COLLECTING) or None,
        )


def merged(native: list[StackFrame], python: list[StackFrame]) -> list[StackFrame]:
    """Python's frames below the C functions that the innermost of them called."""
    if not python:
        return list(native)
    inner = []
    for frame in native:
        if frame.name.startswith(_EVAL):
            break
        if not frame.name.startswith(_PLUMBING):
            inner.append(frame)
    else:
        inner = []  # no interpreter in it: nothing to join
    return [*inner, *python][:FRAME_LIMIT]


def joined(native: ThreadStack, later: ThreadStack) -> ThreadStack:
    """`bt` and `py-bt` of one thread."""
    frames = merged(list(native.frames), list(later.frames))
    return msgspec.structs.replace(
        later, frames=tuple(frames), waits_gil=later.waits_gil or native.waits_gil
    )
