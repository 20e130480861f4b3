"""The only place where an argument list becomes one string for somebody else's shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dflash_watch.errors import UsageError

_WRAPPERS = frozenset({"sudo", "doas", "env", "nice", "ionice", "setsid", "stdbuf", "sshpass"})
_REMOTE_SHELLS = frozenset({"ssh", "slogin", "autossh"})


def shell_line(argv: Sequence[str]) -> str:
    """One line that a POSIX shell splits into exactly `argv` again.

    Raises:
        UsageError: an argument holds a NUL.
    """
    refuse_nul(argv)
    return shlex.join(argv)


def refuse_nul(argv: Sequence[str]) -> None:
    """No command line can carry a NUL.

    Raises:
        UsageError: an argument holds one.
    """
    for word in argv:
        if "\0" in word:
            raise UsageError(f"{word!r}: a NUL byte, which no command line can carry")


def joins_its_arguments(prefix: Sequence[str]) -> bool:
    """Whether the prefix hands its arguments to a remote shell joined by blanks, as ssh does."""
    for word in prefix:
        name = word.rsplit("/", 1)[-1]
        if name in _REMOTE_SHELLS:
            return True
        if name not in _WRAPPERS and not word.startswith("-") and "=" not in word:
            return False
    return False


def with_prefix(prefix: Sequence[str], argv: Sequence[str]) -> tuple[str, ...]:
    """`argv` behind a prefix that somebody typed.

    Behind ssh the command travels as one quoted word; anything else gets the words as they are.
    """
    if joins_its_arguments(prefix):
        return (*prefix, shell_line(argv))
    return (*prefix, *argv)
