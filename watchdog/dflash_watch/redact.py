"""Masks secrets in any text before it is kept or shown: a last net under the agent's own masking.

Works by names (`--api-key X`, `HF_TOKEN=X`, `"password": "x"`) and by shapes (`hf_...`, AWS keys,
JSON web tokens, private keys, `Bearer X`, logins in URLs). Linear in the text; idempotent.
"""

from __future__ import annotations

import re
from functools import lru_cache

from dflash_events.secrets import MASK, is_secret_name

SHORTEST = 8
"""A text shorter than this holds no secret beside its name."""

_NAME = re.compile(
    r"(?<![\w.-])(?P<name>-{0,2}[A-Za-z_][\w.-]{0,80})(?P<sep>\\?['\"]?\s{0,4}[:=]\s{0,4}|\s{1,4})"
)
_VALUE = re.compile(
    r"\\?\"[^\"\n\\]{1,20000}\\?\"|\\?'[^'\n\\]{1,20000}\\?'|[^\s,;&'\"\\{}\[\]()<>]{1,20000}"
)
_URL = re.compile(r"(?i)(?<![a-z0-9+.-])(?P<head>[a-z][a-z0-9+.-]{0,30}://)[^/\s@]{1,1000}@")
_RANDOM_KEY = re.compile(r"(?i)(?:^|[._-])key$")
_SCHEME = re.compile(
    r"(?i)\b(?P<scheme>bearer|basic|negotiate|digest)(?P<gap>\s{1,4})(?P<value>[\w.~+/=-]{8,4000})"
)
_SHAPES = re.compile(
    r"\beyJ[\w-]{8,4000}\.[\w-]{8,4000}\.[\w-]{0,4000}"  # JSON web token
    r"|\bA(?:KIA|SIA)[A-Z0-9]{16}\b"
    r"|\bAIza[\w-]{30,60}"
    r"|\b(?:hf_|ghp_|gho_|github_pat_|glpat-|xox[bp]-)[\w-]{8,400}"
    r"|\bsk-(?:ant-|proj-)?[\w-]{16,400}"
    r"|\b(?:ghs|ghu|ghr|npm|pypi|dop_v1|xoxa|xoxs|hvs)[_-][\w-]{10,400}"
    r"|(?<=hooks\.slack\.com/services/)[\w/-]{10,200}"
)
_PRIVATE = re.compile(
    r"(?P<head>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?:(?!-----END)[^\x00]){0,20000}"
)
_TOOLS = re.compile(
    r"(?P<tool>\bsshpass\s{1,4}-p\s{0,4}|\bcurl\b[^\n|;]{0,80}?\s(?:-u|--user)\s{1,4})(?P<value>\S{1,400})"
)
_COOKIE = re.compile(r"(?i)(?P<head>\b(?:set-)?cookie:\s{1,4})[^\n]{1,4000}")


_HINT = re.compile(
    r"(?i)key|token|pass|secret|credential|auth|cookie|://|bearer|basic|negotiate|digest|eyJ"
    r"|A(?:KIA|SIA)|AIza|hf_|gh[opsur]_|github_pat|glpat|xox|sk-|npm|pypi|dop_v1|hvs|slack|curl"
)
"""A text without any of these holds no secret that the patterns below it would find."""


def redact(text: str) -> str:
    """The text with every secret that is recognised replaced by `***`."""
    if _HINT.search(text) is None:
        return text
    text = _PRIVATE.sub(rf"\g<head>{MASK}", text)
    text = _COOKIE.sub(rf"\g<head>{MASK}", text)
    text = _SHAPES.sub(MASK, _URL.sub(rf"\g<head>{MASK}@", text))
    text = _SCHEME.sub(_scheme, text)
    text = _TOOLS.sub(rf"\g<tool>{MASK}", text)
    return _named(text)


def redact_tree(value: object) -> object:
    """Lists and dictionaries, as JSON has them, with all texts redacted and secret names masked."""
    if isinstance(value, dict):
        return {
            key: MASK
            if isinstance(inner, str) and inner and is_secret_name(str(key))
            else redact_tree(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact_tree(inner) for inner in value]
    return _remembered(value) if isinstance(value, str) else value


def _remembered(text: str) -> str:
    """Redacted; short texts come again in every frame, so their answers are kept."""
    if len(text) < SHORTEST:
        return text
    return _redact_again(text) if len(text) < 500 else redact(text)


@lru_cache(maxsize=4096)
def _redact_again(text: str) -> str:
    return redact(text)


def _named(text: str) -> str:
    """Text with the values behind secret names masked."""
    parts: list[str] = []
    done = 0
    for found in _NAME.finditer(text):
        if found.start() < done or not _may_name(found["name"], found["sep"]):
            continue
        value = _VALUE.match(text, found.end())
        if value and _is_secret(found["name"], found["sep"], value.group()):
            parts += [text[done : value.start()], _masked(value.group())]
            done = value.end()
    parts.append(text[done:])
    return "".join(parts)


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
        # `token: 17` in a log of a language model counts; it opens nothing.
        return not (name.lower().endswith("token") and bare.isdigit() and len(bare) < 8)
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
