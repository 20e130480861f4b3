"""Proving who we are: agent, key files; secrets where a person can be asked."""

from __future__ import annotations

import base64
import copy
import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm

from dflash_watch.transport.ask import Ask, ask_nobody
from dflash_watch.transport.base import Reason, TransportError
from dflash_watch.transport.host_certificate import certified_key
from dflash_watch.transport.ssh_agent import SshAgent, agent_socket
from dflash_watch.transport.ssh_options import SshOptions

_MAX_KEYS = 6
"""A server counts tries and then hangs up."""
_TYPING_S = 120.0
"""For a person who is asked by the server: a code has to be fetched from somewhere."""


def authenticate(transport: paramiko.Transport, options: SshOptions, ask: Ask) -> None:
    """Log in.

    Raises:
        TransportError: refused; says what was tried.
    """
    tried: list[str] = []
    try:
        allowed = _try_keys(transport, options, ask, tried)
        if allowed is not None and not _try_secret(transport, options, ask, allowed, tried):
            raise _refused(options, tried)
    except TransportError:
        raise
    except paramiko.AuthenticationException as error:
        if not _is_timeout(error):
            raise _refused(options, tried) from error
        raise TransportError(
            Reason.TIMEOUT, f"{options.alias}: login as {options.user}: sshd does not answer"
        ) from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        text = str(error) or "the server hung up"
        raise TransportError(
            Reason.AUTH_REFUSED if "too many" in text.lower() else Reason.LOST,
            f"{options.alias}: login as {options.user} broke off: {text}",
            hint="with many keys in the agent, set IdentitiesOnly and IdentityFile",
        ) from error


def _try_keys(
    transport: paramiko.Transport, options: SshOptions, ask: Ask, tried: list[str]
) -> list[str] | None:
    """None once logged in, else the methods that the server would still take."""
    allowed = ["publickey", "password", "keyboard-interactive"]
    agent = SshAgent(agent_socket(options))
    with closing(agent):
        for name, key in itertools.islice(_keys(agent, options, ask, tried), _MAX_KEYS):
            tried.append(name)
            try:
                more = transport.auth_publickey(options.user, key)
            except paramiko.BadAuthenticationType as error:
                return list(error.allowed_types)
            except paramiko.AuthenticationException as error:
                if _is_timeout(error):
                    raise
                continue
            return list(more) or None
    return allowed


def _keys(
    agent: SshAgent, options: SshOptions, ask: Ask, skipped: list[str]
) -> Iterator[tuple[str, paramiko.PKey]]:
    """Agent keys first; with IdentitiesOnly only those that a file names."""
    wanted = {_public_blob(path) for path in options.identity_files}
    offered: set[bytes] = set()
    for key in agent.get_keys():
        if not options.identities_only or key.asbytes() in wanted:
            offered.add(key.asbytes())
            yield f"agent key {key.comment or key.get_name()}", key
    for path in options.identity_files:
        file_key = _load(path, ask, skipped) if Path(path).is_file() else None
        if file_key is not None and file_key.asbytes() not in offered:
            for file in (path + "-cert.pub", *options.certificate_files):
                if (certified := _certified(file_key, file)) is not None:
                    yield file, certified
            yield path, file_key


def _certified(key: paramiko.PKey, file: str) -> paramiko.PKey | None:
    """The key with the certificate of a file, if that certifies this key."""
    try:
        if certified_key(Path(file).read_bytes()) != key.asbytes():
            return None
        certified = copy.copy(key)
        certified.load_certificate(file)
    except (OSError, IndexError, ValueError, paramiko.SSHException):
        return None
    return certified


def _public_blob(path: str) -> bytes:
    try:
        words = Path(path + ".pub").read_text().split()
        return base64.b64decode(words[1])
    except (OSError, IndexError, ValueError):
        return b""


def _load(path: str, ask: Ask, skipped: list[str]) -> paramiko.PKey | None:
    """A key file, asking for its passphrase where it has one and somebody answers."""
    try:
        return paramiko.PKey.from_path(path)
    except (TypeError, paramiko.PasswordRequiredException):
        passphrase = ask(f"passphrase for {path}: ")
    except (OSError, ValueError, UnsupportedAlgorithm, paramiko.SSHException) as error:
        skipped.append(f"{path} (unusable: {error})")
        return None
    if not passphrase:
        skipped.append(f"{path} (has a passphrase, nobody to ask)")
        return None
    try:
        # Bytes: with text the loader below it fails for every passphrase.
        return paramiko.PKey.from_path(path, passphrase.encode())  # type: ignore[arg-type]  # same
    except (TypeError, ValueError, paramiko.SSHException):
        skipped.append(f"{path} (wrong passphrase)")
        return None


def _try_secret(
    transport: paramiko.Transport,
    options: SshOptions,
    ask: Ask,
    allowed: list[str],
    tried: list[str],
) -> bool:
    """The server's own questions, a password, or one after the other; False: nobody to ask."""

    def answer(title: str, text: str, prompts: list[tuple[str, bool]]) -> list[str]:
        del title, text
        return [ask(f"{options.user}@{options.alias}: {prompt}") or "" for prompt, _ in prompts]

    left = list(allowed)
    if "keyboard-interactive" in left and ask is not ask_nobody:
        tried.append("keyboard-interactive")
        transport.auth_timeout = _TYPING_S
        try:
            left = list(transport.auth_interactive(options.user, answer))
        except paramiko.BadAuthenticationType:
            tried.pop()
        else:
            if not left:
                return True
    password = ask(f"{options.user}@{options.alias}'s password: ") if "password" in left else None
    if not password:
        return False
    tried.append("password")
    return not transport.auth_password(options.user, password)


def _is_timeout(error: Exception) -> bool:
    """Paramiko has one exception for "no" and for silence."""
    return "timeout" in str(error).lower()


def _refused(options: SshOptions, tried: list[str]) -> TransportError:
    what = ", ".join(tried) if tried else "no usable key found"
    return TransportError(
        Reason.AUTH_REFUSED,
        f"{options.alias}: login as {options.user} refused (tried: {what})",
        hint=f"does `ssh {options.user}@{options.alias}` get in? add the key to the agent, or name"
        " it in ssh_config",
    )
