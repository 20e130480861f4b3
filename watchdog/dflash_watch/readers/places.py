"""What a waiting thread is there for: the data loader, the experiment logger, a forked child.

`waits.wait_reason` names the kind of a wait, this file its purpose. Data and pure functions; it
knows nothing of time: whether a thread stays there is decided by whoever compares samples.
"""

from __future__ import annotations

import re
from functools import lru_cache

from dflash_watch.frame import StackFrame

NEAR = 8
"""Frames from the leaf in which a library counts as what the thread waits for."""
DATA = re.compile(
    r"torch/utils/data/|(?:^|/)data_?load(?:er|ing)\w*\.py$|(?:^|/)webdataset/|nvidia/dali/"
    r"|tensorflow/python/data/|(?:^|/)grain/|streaming/base/|accelerate/data_loader\.py$"
    r"|/(?:fetchers|combined_loader)\.py$|fairseq/data/|(?:^|/)prefetch\w*\.py$|(?:^|/)ffcv/"
    r"|detectron2/data/|mxnet/gluon/data/|paddle/(?:fluid/)?(?:io|reader|dataloader)/"
)
LOGGERS = re.compile(
    r"(?:^|/)(?:wandb|mlflow|comet_ml|neptune|clearml|swanlab|aim|trackio|tensorboardX?|loguru"
    r"|sentry_sdk|dvclive|sacred|visdom)/|torch/utils/tensorboard/|(?:^|/)logging/\w+\.py$"
    r"|absl/logging/|tensorflow/python/summary/|lightning\w*/(?:pytorch/)?loggers/"
)
BARS = re.compile(r"(?:^|/)(?:tqdm|rich|alive_progress|progressbar)/")
BAR_WRITES = re.compile(
    r"^(?:acquire|__enter__|display|refresh|fp_write|print_status|write|flush)$"
)
SERVED = frozenset({
    "queue-get", "queue-put", "poll", "join", "subprocess", "pipe", "condition", "lock", "read",
    "sleep", "socket", "output", "unknown",
})  # fmt: skip
"""Waits in which somebody else has to do something; anything else is work or the kernel."""
FORKED = re.compile(r"multiprocessing/popen_fork(?:server)?\.py$")
SHARED_LOCKS = re.compile(
    r"multiprocess(?:ing)?/(?:queues|synchronize|connection|pool|managers)\.py$"
)
"""Locks that another process can open: waiting there is what idle workers do."""


@lru_cache(maxsize=4096)
def is_data_file(file: str) -> bool:
    """Does the file belong to a data loader? Asked of the same few files in each look."""
    return DATA.search(file.replace("\\", "/")) is not None


def place_of(frames: tuple[StackFrame, ...], wait: str) -> str | None:
    """What a thread that waits is there for.

    Args:
        frames: innermost first.
        wait: `waits.wait_reason` of it.

    Returns:
        `data` (a data loader), `logger` (an experiment logger, a log handler, a progress bar),
        `file-lock`; None when it works or nothing of the kind shows.
    """
    if wait == "file-lock":
        return "file-lock"
    if wait not in SERVED:
        return None
    for number, frame in enumerate(frames):
        file = frame.file.replace("\\", "/")
        if is_data_file(file):
            return "data"
        if number < NEAR and LOGGERS.search(file):
            return "logger"
        if number < NEAR and BARS.search(file) and BAR_WRITES.match(_name(frame)):
            return "logger"
    return None


def data_stage(frames: tuple[StackFrame, ...]) -> str:
    """Where in its life a data loader waits: `start`, `next`, `shutdown`."""
    names = {_name(frame) for frame in frames if DATA.search(frame.file)}
    if any(name.startswith(("_shutdown", "__del__", "_try_join")) for name in names):
        return "shutdown"
    if names & {"__init__", "_reset", "_get_iterator"}:
        return "start"
    return "next"


def is_forked(frames: tuple[StackFrame, ...]) -> bool:
    """Was this process made by fork alone, so that locks of other threads came with it?"""
    return any(FORKED.search(frame.file) for frame in frames)


def waits_for_own_lock(frames: tuple[StackFrame, ...], wait: str) -> bool:
    """Does it wait for a lock that only threads of its own process can open?"""
    if wait != "lock":
        return False
    return not any(SHARED_LOCKS.search(frame.file) for frame in frames[:NEAR])


def _name(frame: StackFrame) -> str:
    return frame.name.rpartition(".")[2]
