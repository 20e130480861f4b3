"""Files and folders that only their owner can read, whatever the umask, whoever writes there too.

A link that somebody put where a file is expected is refused, and so is a file that belongs to
another user: what is written may be log text, and a link may lead to a file that matters.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def make_folder(path: Path) -> None:
    """The folder and what is missing above it, 0700; what is there already stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for one in reversed(missing):
        try:
            one.mkdir(mode=0o700)
        except FileExistsError:
            if not one.is_dir():
                raise
            continue
        one.chmod(0o700)  # an umask may have taken even the owner's rights


def open_private(path: Path, flags: int, *, any_kind: bool = False) -> int:
    """A descriptor of a file that is ours alone; never waits for a pipe that nobody reads.

    Args:
        path: of a regular file, made when `flags` say so.
        flags: of `os.open`.
        any_kind: a device or a pipe will do as well, as a person may have named one.

    Raises:
        OSError: a link, somebody else's, no regular file, or it cannot be opened.
    """
    extra = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | extra, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link, name the file itself") from error
        raise
    try:
        _check(descriptor, any_kind=any_kind)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_regular(path: Path) -> BinaryIO:
    """A file for reading, whoever's it is; never waits for a pipe that nobody writes.

    Raises:
        OSError: no regular file, or it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return os.fdopen(descriptor, "rb")


def _check(descriptor: int, *, any_kind: bool) -> None:
    seen = os.fstat(descriptor)
    if not stat.S_ISREG(seen.st_mode):
        if any_kind:
            return
        raise OSError(errno.EINVAL, "not a regular file")
    if seen.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "belongs to another user")
    if stat.S_IMODE(seen.st_mode) != 0o600:
        os.fchmod(descriptor, 0o600)
