"""Why a thread stands where it stands, read off its innermost frames and the kernel's words: data.

A reason is what the place is for, not proof that it waits there for ever: `stacks.compare` adds
the time.
"""

from __future__ import annotations

import re

import msgspec

from dflash_watch.frame import StackFrame, ThreadStack

ENTRY = 5
"""Frames from the outside in which a thread's purpose shows."""
NEAR = 4
"""Frames from the leaf in which a blocking call counts."""


class Rule(msgspec.Struct, frozen=True):
    """A function and file that mean a reason."""

    reason: str
    name: re.Pattern[str]
    file: re.Pattern[str]


def _rules(*rows: tuple[str, str, str]) -> tuple[Rule, ...]:
    return tuple(Rule(reason, re.compile(name), re.compile(file)) for reason, name, file in rows)


# Where threads block: looked for near the leaf, the leaf first.
_BLOCKING = _rules(
    ("queue-put", r"^_?(?:put|offer|push|send_item)", r"queues?\.pyx?$|queue[^/]*\.py$"),
    ("queue-get", r"^_?(?:get|take|pop|recv_item)", r"queues?\.pyx?$|queue[^/]*\.py$"),
    ("queue-get", r"^(?:_try_get_data|_get_data)$", r"utils/data/dataloader\.py$"),
    ("file-lock", r".", r"(?:file_?lock|file_baton|filelock)[^/]*\.py$|/(?:filelock)/"),
    ("file-lock", r"^(?:flock|lockf|fcntl)", r"."),
    ("join", r"^(?:join|_wait_for_tstate_lock)$", r"(?:threading|multiprocessing/\w+)\.py$"),
    ("subprocess", r"^_?(?:try_)?(?:wait|communicate|poll)$", r"(?:subprocess|popen_\w+)\.py$"),
    ("lock", r"^(?:acquire|__enter__|lock)", r"(?:threading|locks?|semaphore|synchronize)\.py$"),
    ("lock", r".", r"(?:^|/)locks\.py$"),
    ("lock", r"^acquire(?:_lock)?$", r"."),
    ("peer", r"^(?:meet|_wait)$", r"dflash_train/averaging\.py$"),
    ("collective", r".", r"torch/distributed/(?!elastic|run|launcher)|deepspeed/comm/"),
    ("collective", r".", r"torch/nn/parallel/distributed\.py$"),
    ("collective", r"^(?:all_?gather|all_?reduce|reduce_?scatter|barrier|broadcast)", r"."),
    ("collective", r"(?:^|::)(?:ProcessGroup(?:NCCL|Gloo|MPI)|WorkNCCL|ncclGroupEnd|ncclAll\w+)",
     r"."),
    ("device", r"^(?:synchronize|(?:cuda|hip)\w+Synchronize|cu(?:Stream|Event|Ctx)Sync)", r"."),
    ("device", r".", r"lib(?:cuda|cudart|nccl|hip)[\w.\-]*\.so"),
    ("socket", r"^(?:recv|recv_into|readinto|accept|connect|send|sendall|do_handshake|read)$",
     r"(?:socket|ssl|http/client|urllib3/[^/]*|redis/\w+)\.py$"),
    ("sleep", r"^(?:sleep|nanosleep|clock_nanosleep)$", r"."),
    ("poll", r"^(?:select|poll|wait|_poll|epoll_wait)$",
     r"(?:selectors|connection|libc[\w.\-]*\.so[\w.]*)(?:\.py)?$"),
)  # fmt: skip
# The same by native frames, as `py-spy --native`, gdb and pystack name them; most have no file.
_NATIVE = _rules(
    ("gil", r"^(?:take_gil|PyEval_(?:RestoreThread|AcquireThread)|PyGILState_Ensure)$", r""),
    ("collective", r"(?:^|::)(?:ProcessGroup(?:NCCL|Gloo|MPI)|WorkNCCL|gloo::)", r""),
    ("collective", r"^(?:nccl(?:GroupEnd|All\w+|Reduce\w+|Send|Recv)|MPI_\w+)", r""),
    ("device", r"^(?:(?:cuda|hip)\w*Synchronize|cu(?:Stream|Event|Ctx)Sync)", r""),
    ("collective", r"", r"libnccl[\w.\-]*\.so"),
    ("device", r"^synchronize$", r""),
    ("device", r"", r"lib(?:cuda|cudart|hip|amdhip)[\w.\-]*\.so"),
    ("output", r"^_*(?:libc_|GI_+)*writev?$", r""),
    ("socket", r"^_*(?:libc_|GI_+)*(?:recv(?:from|msg)?|send(?:to|msg)?|accept4?|connect)$", r""),
    ("poll", r"^_*(?:libc_|GI_+)*(?:p?poll|p?select|epoll_p?wait)$", r""),
    ("sleep", r"^_*(?:libc_|GI_+)*(?:clock_)?nanosleep\w*$", r""),
    ("join", r"^_*(?:pthread_\w*join\w*|wait4|waitpid)$", r""),
    ("file-lock", r"^_*(?:libc_|GI_+)*flock$", r""),
    ("file", r"^_*(?:libc_|GI_+)*(?:p?read(?:64)?|fsync|fdatasync|open(?:at)?(?:64)?|fstatat\w*)$",
     r""),
    ("lock", r"^_*(?:GI_+)*(?:pthread_(?:mutex|cond|rwlock)|PyThread_acquire|lll_lock_wait)", r""),
    ("lock", r"^_*(?:new_)?(?:sem_\w*wait|(?:do_)?futex_\w*wait)", r""),
)  # fmt: skip
NATIVE_NEAR = 12
"""Native frames below the innermost Python frame in which a blocking call counts."""
_CONDITION = _rules(("condition", r"^wait(?:_for)?$", r"threading\.py$"))

# What a thread is busy with: anywhere in the stack, the leaf first.
_BUSY = _rules(
    ("tune", r".", r"triton/runtime/autotuner\.py$|/autotuner/|triton/testing\.py$"),
    ("tune", r"^do_bench", r"."),
    ("compile", r".", r"torch/_(?:dynamo|inductor|functorch)/|triton/compiler/|triton/backends/"),
    ("compile", r".", r"utils/cpp_extension\.py$"),
    ("save", r"^(?:save|_save|_legacy_save|save_file|save_pretrained)$", r"."),
    ("load", r"^(?:load|_load|load_file|from_pretrained|load_state_dict|_load_pretrained_model)$",
     r"(?:serialization|safetensors|modeling_utils|auto_factory|hub|module)[^/]*\.py$"),
    ("import", r"^(?:_find_and_load|_load_unlocked|exec_module|_call_with_frames_removed)$", r"."),
)  # fmt: skip
# Frames of a compiled function that merely runs, and of the compiler's wrapper around it.
_NOT_COMPILING = re.compile(
    r"torch/_dynamo/(?:eval_frame|external_utils|nn_module)[^/]*\.py$"
    r"|torch/_functorch/_aot_autograd/runtime_wrappers\.py$|torch/_inductor/(?:utils|output_code)\.py$"
)

_CALLS = {
    "lock": "futex futex_waitv",
    "sleep": "nanosleep clock_nanosleep",
    "poll": "poll ppoll select pselect6 epoll_wait epoll_pwait epoll_pwait2",
    "join": "wait4 waitid",
    "socket": "recvfrom recvmsg sendto sendmsg connect accept accept4",
    "file-lock": "flock",
    "device": "ioctl",
    "read": "read readv",
    "output": "write writev",
    "file": "pread64 pwrite64 fsync fdatasync getdents64 openat newfstatat statx",
}
_REASONS = {name: reason for reason, names in _CALLS.items() for name in names.split()}
# The same by their numbers on x86_64, of records without names.
_SYSCALLS = {
    "202": "lock",
    "35": "sleep",
    "230": "sleep",
    "7": "poll",
    "23": "poll",
    "232": "poll",
    "270": "poll",
    "271": "poll",
    "281": "poll",
    "61": "join",
    "247": "join",
    "45": "socket",
    "47": "socket",
    "42": "socket",
    "43": "socket",
    "73": "file-lock",
    "16": "device",
    "0": "read",
    "19": "read",
    "1": "output",
    "20": "output",
    "17": "file",
    "18": "file",
    "74": "file",
    "75": "file",
    "217": "file",
    "257": "file",
    "262": "file",
}
_WCHAN = (
    ("nfs", "storage"),
    ("rpc_", "storage"),
    ("fuse", "storage"),
    ("ceph", "storage"),
    ("cifs", "storage"),
    ("smb", "storage"),
    ("ptlrpc", "storage"),
    ("ldlm_", "storage"),
    ("p9_", "storage"),
    ("futex", "lock"),
    ("nanosleep", "sleep"),
    ("pipe_write", "output"),
    ("pipe", "pipe"),
    ("tty_write", "output"),
    ("unix_stream_sendmsg", "output"),
    ("poll", "poll"),
    ("nvidia", "device"),
    ("uvm", "device"),
    ("flock", "file-lock"),
    ("ptrace", "traced"),
)

# Threads that are in every dump and wait by design.
_HELPERS = _rules(
    ("helper", r".", r"torch/_inductor/compile_worker/|tqdm/_monitor\.py$|wandb/|sentry_sdk/"),
    ("helper", r"^_worker$", r"concurrent/futures/thread\.py$"),
    ("helper", r"^_feed$", r"multiprocessing/queues\.py$"),
    ("helper", r"^(?:_serve|_handle_\w+)$", r"multiprocessing/(?:resource_sharer|pool)\.py$"),
    ("helper", r".", r"torch/utils/tensorboard/|tensorboard/summary/|prometheus_client/"),
    ("helper", r"^_run$", r"dflash_events/(?:ticker|sink)\.py$"),
    ("helper", r"^_pin_memory_loop$", r"utils/data/_utils/pin_memory\.py$"),
    ("helper", r"^_monitor$", r"logging/handlers\.py$"),
    (
        "helper",
        r".",
        r"(?:^|/)(?:pydevd|debugpy|ipykernel|posthog|apscheduler|watchfiles)(?:/|\.py$)",
    ),
    (
        "helper",
        r"^(?:_periodically_flush|listen|_run$)",
        r"(?:^|/)ray/(?:profiling|import_thread)\.py$",
    ),
)
_HELPER_NAMES = re.compile(
    r"^(?:dflash-(?:events|ticker)|QueueFeederThread|tqdm_monitor|ThreadPoolExecutor-\d+_\d+"
    r"|pt_autograd_\d+|pt_nccl_\w+|cuda-EvtHandlr|pin_memory)"
)


def wait_reason(thread: ThreadStack) -> str:
    """Why the thread stands: a blocking place near its leaf, what it is busy with, or the kernel.

    Returns:
        `queue-get queue-put lock file-lock join subprocess peer collective device socket sleep poll
        condition storage disk stopped traced pipe read output file gil` where it waits; `tune
        compile save load import` where it works on something known; `none` for plain code;
        `unknown` without any evidence.
    """
    if thread.state in ("T", "t"):
        return "stopped" if thread.state == "T" else "traced"
    python = tuple(frame for frame in thread.frames if not is_native(frame))
    near = _first(_BLOCKING, python[:NEAR]) or _first(_NATIVE, native_leaf(thread.frames))
    # Waiting on a lock while tuning is waiting; syncing the device while tuning is tuning.
    busy = _first(_BUSY, tuple(f for f in thread.frames if not _NOT_COMPILING.search(f.file)))
    if near in ("device", "sleep", "subprocess") and busy in ("tune", "compile"):
        return busy
    known = _first(_CONDITION, python[:1]) if near in (None, "lock") else near
    known = known or near or busy or _kernel_reason(thread)
    return known or ("none" if thread.frames else "unknown")


def is_native(frame: StackFrame) -> bool:
    """Is it a frame of C code, not of Python?"""
    return not (frame.file.endswith((".py", ".pyx", ".pyi")) or frame.file.startswith("<"))


def native_leaf(frames: tuple[StackFrame, ...]) -> tuple[StackFrame, ...]:
    """The native frames that lie below the innermost Python frame, innermost first."""
    count = next((i for i, frame in enumerate(frames) if not is_native(frame)), len(frames))
    return frames[: min(count, NATIVE_NEAR)]


def is_helper(thread: ThreadStack) -> bool:
    """The thread is a service of the interpreter or a library, idle by design, or has no frames."""
    if thread.name == "MainThread":
        return False
    if thread.name and _HELPER_NAMES.match(thread.name):
        return True
    if not thread.frames:
        return (
            thread.state in (None, "S") and not thread.owns_gil and thread.name in (None, "python")
        )
    # What the thread was started for, not a library that its work happens to call.
    return _first(_HELPERS, thread.frames[-ENTRY:]) is not None


def _first(rules: tuple[Rule, ...], frames: tuple[StackFrame, ...]) -> str | None:
    for frame in frames:
        for rule in rules:
            # Newer tools say `Queue.get`, older ones `get`.
            if rule.file.search(frame.file) and rule.name.search(frame.name.rpartition(".")[2]):
                return rule.reason
    return None


def _kernel_reason(thread: ThreadStack) -> str | None:
    if thread.wchan:
        for word, reason in _WCHAN:
            if word in thread.wchan:
                return reason
    if thread.state == "D":
        return "disk"
    if thread.state == "R" or thread.syscall == "running":
        return "none"
    if thread.call is not None:
        return _REASONS.get(thread.call)
    return _SYSCALLS.get((thread.syscall or "").split(" ")[0])
