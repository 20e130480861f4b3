"""Masks what must not be written down or sent: passwords, keys, tokens, logins in URLs.

By name (`--api-key X`, `HF_TOKEN=X`, `"password": "x"`) and by shape (`hf_...`, AWS keys, JSON web
tokens, private keys, `Bearer X`, `https://me:pw@host`). One set of rules for both sides: the
trainer's configuration and command line, the agent's command lines before they leave the watched
machine, and every text of an incident. Linear in the text; masking twice changes nothing more.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Iterable

MASK = "***"
SHORTEST = 8
"""A text shorter than this holds no secret beside its name."""

_LAST = re.compile(
    r"(?:^|[._-])(?:\w{0,40}token|auth|authorization)$"
    r"|(?:^|(?:db|ftp|login|my|mysql|pg|postgres|redis|smtp|ssh|user)[._-]?)pass$",
    re.IGNORECASE,
)
_ANYWHERE = re.compile(
    r"password|passwd|passphrase|secret|credential|(?:api|access|private)[_-]?key", re.IGNORECASE
)
_SHOUTED = re.compile(r"(?:^|_)(?:TOKEN|AUTH|PASS)(?:_|$)|_KEY$")
"""In the names of environment variables."""
_HARMLESS = re.compile(
    r"(?:^|[._-])(?:pad|bos|eos|unk|mask|sep|cls|image|start|end|per|max|num|next|last|first|prev"
    r"|special|added|bonus|draft|target|sub)[_-]?token$"
    r"|tokens?[-_.](?:per|ids?|count|total|len|length|size|budget|s)(?:[-_.]|$)|tokeniz",
    re.IGNORECASE,
)
_RANDOM_KEY = re.compile(r"(?:^|[._-])key$", re.IGNORECASE)

_HINT = re.compile(
    r"key|token|pass|secret|credential|auth|cookie|://|bearer|basic|negotiate|digest|eyJ"
    r"|A(?:KIA|SIA)|AIza|hf_|gh[opsur]_|github_pat|glpat|xox|sk-|wandb|npm|pypi|dop_v1|hvs|slack"
    r"|curl",
    re.IGNORECASE,
)
"""A text without any of these holds no secret that the patterns below it would find."""
_NAME = re.compile(
    r"(?<![\w.-])(?P<name>-{0,2}[A-Za-z_][\w.-]{0,200})"
    r"(?P<sep>\\?['\"]?\s{0,4}[:=]\s{0,4}|\s{1,4})"
)
_VALUE = re.compile(
    r"\\\"[^\"\n\\]{1,20000}(?:\\\"|(?=[\n\\]|\Z))|\\'[^'\n\\]{1,20000}(?:\\'|(?=[\n\\]|\Z))"
    r"|\"(?:[^\"\n\\]|\\[^\n]){1,20000}(?:\"|(?=\\?\n|\\?\Z))"  # a quote may have no end
    r"|'(?:[^'\n\\]|\\[^\n]){1,20000}(?:'|(?=\\?\n|\\?\Z))"
    r"|[^\s,;&'\"\\{}\[\]()<>]{1,20000}"
)
_FIGURE = re.compile(r"\d{1,7}(?:\.\d{0,17})?(?:e[+-]?\d{1,3})?(?:%|[mu]?s|/\d{1,7})?")
_ASSIGNED = re.compile(r"(-{0,2}[\w.-]{1,200})([=:])(.+)", re.DOTALL)
_SCRIPT = re.compile(r"-[a-z]{0,4}c")
"""The option of a shell or of Python before a whole script in one argument."""
_LOGIN = re.compile(r"(?<=://)[^/\s'\"]{1,4000}@")
_SCHEME = re.compile(
    r"\b(?P<scheme>bearer|basic|negotiate|digest)(?P<gap>\s{1,4})(?P<value>[\w.~+/=-]{8,4000})",
    re.IGNORECASE,
)
_SHAPES = re.compile(
    r"\beyJ[\w-]{8,4000}\.[\w-]{8,4000}\.[\w-]{0,4000}"  # JSON web token
    r"|\bA(?:KIA|SIA)[A-Z0-9]{12,20}\b"
    r"|\bAIza[\w-]{30,60}"
    r"|\b(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|wandb_v1_)[\w-]{8,400}"
    r"|\bsk-[\w-]{16,400}"
    r"|\b(?:npm|pypi|dop_v1|hvs)[_-][\w-]{10,400}"
    r"|(?<=hooks\.slack\.com/services/)[\w/-]{10,200}"
)
_OLD_WANDB_KEY = re.compile(r"\b[0-9a-f]{40}\b")
"""Also the shape of a commit, so only in arguments."""
_PRIVATE = re.compile(
    r"(?P<head>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?:(?!-----END)[^\x00]){0,20000}"
)
_TOOLS = re.compile(
    r"(?P<tool>\bsshpass\s{1,4}-p\s{0,4}|\bcurl\b[^\n|;]{0,80}?\s(?:-u|--user)\s{1,4})"
    r"(?P<value>\S{1,400})"
)
_COOKIE = re.compile(r"(?P<head>\b(?:set-)?cookie:\s{1,4})[^\n]{1,4000}", re.IGNORECASE)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a value under this name is one to hide (`hf_token` is, `pad_token` is not)."""
    bare = name.lstrip("-")[-200:]
    if _HARMLESS.search(bare):
        return False
    shouted = bare.isupper() and _SHOUTED.search(bare)
    return bool(shouted or _LAST.search(bare) or _ANYWHERE.search(bare))


def mask_text(text: str) -> str:
    """The text with every secret that is recognised replaced by `***`."""
    if _HINT.search(text) is None:
        return text
    text = _PRIVATE.sub(rf"\g<head>{MASK}", text)
    text = _COOKIE.sub(rf"\g<head>{MASK}", text)
    text = _SHAPES.sub(MASK, _LOGIN.sub(f"{MASK}@", text))
    text = _SCHEME.sub(_scheme, text)
    text = _TOOLS.sub(rf"\g<tool>{MASK}", text)
    return _named(text)


def mask_arguments(arguments: Iterable[str]) -> list[str]:
    """A command line's words with `--api-key X`, `--token=X`, `PASSWORD=X` and URL logins masked.

    One word comes out for each that went in.
    """
    masked: list[str] = []
    before = ""
    for word in arguments:
        hidden = before.startswith("-") and is_secret_name(before) and "=" not in before
        if hidden and not word.startswith("--"):
            masked.append(MASK)
            before = ""
        else:
            masked.append(_mask_word(word, is_script=_SCRIPT.fullmatch(before) is not None))
            before = word
    return masked


def mask_tree(value: object) -> object:
    """Lists and dictionaries, as JSON has them, with texts and values under secret names masked."""
    if isinstance(value, dict):
        return {
            _remembered(key) if isinstance(key, str) else key: _hidden(inner)
            if is_secret_name(str(key))
            else mask_tree(inner)
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [mask_tree(inner) for inner in value]
    return _remembered(value) if isinstance(value, str) else value


def _hidden(value: object) -> object:
    """What stands under a secret name, every text in it masked; its shape stays."""
    if isinstance(value, dict):
        return {key: _hidden(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_hidden(inner) for inner in value]
    return MASK if isinstance(value, str) and value else value


def _mask_word(word: str, *, is_script: bool) -> str:
    assigned = None if is_script else _ASSIGNED.fullmatch(word)
    if assigned and is_secret_name(assigned.group(1)):
        return assigned.group(1) + assigned.group(2) + MASK
    return _OLD_WANDB_KEY.sub(MASK, mask_text(word))


def _remembered(text: str) -> str:
    """Masked; short texts come again in every frame, so their answers are kept."""
    if len(text) < SHORTEST:
        return text
    return _mask_again(text) if len(text) < 500 else mask_text(text)


@lru_cache(maxsize=4096)
def _mask_again(text: str) -> str:
    return mask_text(text)


def _named(text: str) -> str:
    """Text with the values behind secret names masked."""
    parts: list[str] = []
    done = 0
    for found in _NAME.finditer(text):
        if found.start() < done or not _may_name(found["name"], found["sep"]):
            continue
        value = _value(found["name"], text, found.end())
        if value and _is_secret(found["name"], found["sep"], value.group()):
            parts += [text[done : value.start()], _masked(value.group())]
            done = value.end()
    parts.append(text[done:])
    return "".join(parts)


def _value(name: str, text: str, start: int) -> re.Match[str] | None:
    """What stands behind a name; in full only where it is not let go, for it is read again then."""
    if not is_secret_name(name):
        peek = _VALUE.match(text, start, start + 400)
        if not peek or not _looks_random(peek.group().strip("\\\"'")):
            return None
    return _VALUE.match(text, start)


def _may_name(name: str, sep: str) -> bool:
    """A name behind which a secret can stand: assigned, or an option with its value next."""
    named = is_secret_name(name) or _RANDOM_KEY.search(name) is not None
    return named and (bool(sep.strip()) or name.startswith("-"))


def _is_secret(name: str, sep: str, value: str) -> bool:
    bare = value.strip("\\\"'")
    if not bare or (bare.startswith("-") and not sep.strip()):
        return False
    if bare.lower() in ("none", "null", "true", "false", "bearer", "basic", MASK):
        return False
    if is_secret_name(name):
        # `ms_token: 1.7` and `pass: 3` in a log of a training measure; they open nothing.
        return not (name.lower().endswith(("token", "pass")) and _FIGURE.fullmatch(bare))
    return bool(_RANDOM_KEY.search(name)) and _looks_random(bare)


def _looks_random(value: str) -> bool:
    return (
        len(value) >= 16
        and any(c.isdigit() for c in value)
        and any(c.isalpha() for c in value)
        and not any(c in "/.: " for c in value)
    )


def _masked(value: str) -> str:
    """The mask in the quotes of the value."""
    quote = re.match(r"\\?['\"]", value)
    return f"{quote.group()}{MASK}{quote.group()}" if quote else MASK


def _scheme(found: re.Match[str]) -> str:
    value = found["value"]
    wordlike = value.isalpha() and (value.islower() or value.istitle())
    return found.group() if wordlike else f"{found['scheme']}{found['gap']}{MASK}"
