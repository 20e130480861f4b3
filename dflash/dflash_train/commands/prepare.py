"""`dflash-train prepare`: chats or text to tokenised shards with loss masks."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from dflash_train.cli import Parser
from dflash_train.corpus.progress import Progress, default_workers
from dflash_train.errors import EXIT_STOPPED, UsageError

EXAMPLES = """\
examples:
  dflash-train prepare --tokenizer models/target --data chats.jsonl --out data/chats
  dflash-train prepare --tokenizer models/target --data chats.jsonl --out data/plain --thinking off
  dflash-train prepare --tokenizer models/target --data text.txt --out data/text --max-length 4096

a line: {"messages": [{"role": ..., "content": ...}], "tools": [...], "enable_thinking": true}
exit codes: 0 done, 1 failed, 64 usage or data, 75 interrupted (the same command goes on)
"""
COUNTED = {
    "extra": "documents beyond one a line: turns that the template shows otherwise later",
    "cut": "documents cut at --max-length",
    "long": "documents left out: longer than --max-length",
    "short": "documents left out: shorter than a block",
    "unsupervised": "documents left out: no supervised tokens",
    "bad": "lines left out: bad, see problems.jsonl",
    "empty": "lines left out: empty",
}


def build_parser() -> argparse.ArgumentParser:
    """All arguments of `prepare`."""
    parser = Parser(
        prog="dflash-train prepare",
        description="Tokenise chats or text, with the loss mask the chat template gives.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--tokenizer", "--target", metavar="PATH_OR_ID", required=True, help="of the target")
    add("--data", type=Path, action="append", metavar="FILE", required=True,
        help="chats (.jsonl) or text (.txt, a document a line), also .gz; repeatable")  # fmt: skip
    add("--out", type=Path, metavar="DIR", required=True, help="new folder, or one to go on with")
    add("--chat-template", type=Path, metavar="FILE", help="instead of the tokenizer's own")
    add(
        "--thinking",
        choices=("on", "off"),
        help="enable_thinking of the template; a line's goes first",
    )
    add("--max-length", type=int, default=3072, metavar="N", help="tokens of a document (3072)")
    add("--long", choices=("cut", "drop"), default="cut", help="what becomes of longer ones (cut)")
    add("--block-size", type=int, default=16, metavar="N", help="shorter ones are left out (16)")
    add("--max-bad", type=int, default=100, metavar="N", help="bad lines that are borne (100)")
    add("--part-lines", type=int, default=1000, metavar="N", help="lines of a shard (1000)")
    add("--workers", type=int, default=default_workers(), metavar="N",
        help="processes (%(default)s)")  # fmt: skip
    add("--json", action="store_true", help="the header on standard output instead of the table")
    return parser


def run(given: argparse.Namespace) -> int:
    """Prepare, and show what came of it.

    Raises:
        DflashError: says what cannot be used.
    """
    _check(given)
    if importlib.util.find_spec("datasets") is None:
        raise UsageError("not installed: datasets", hint="pip install 'dflash-toolkit[train]'")
    from dflash_train.corpus.build import PrepareRequest, prepare  # noqa: PLC0415  (seconds)
    from dflash_train.corpus.encode import EncodeOptions, Long  # noqa: PLC0415

    request = PrepareRequest(
        inputs=tuple(given.data),
        out=given.out,
        options=EncodeOptions(
            tokenizer=given.tokenizer,
            chat_template=_template_text(given.chat_template),
            thinking=None if given.thinking is None else given.thinking == "on",
            max_length=given.max_length,
            block_size=given.block_size,
            long=Long(given.long),
        ),
        workers=given.workers,
        part_lines=given.part_lines,
        max_bad=given.max_bad,
    )
    try:
        with Progress() as progress:
            header = prepare(request, progress)
    except KeyboardInterrupt:
        sys.stderr.write("dflash-train: interrupted; the same command goes on from here\n")
        return EXIT_STOPPED
    sys.stdout.write(_as_json(header) if given.json else render_header(header, given.out))
    return 0


def render_header(header: dict[str, Any], folder: Path) -> str:
    """What was made, for people."""
    from dflash_train.corpus.lengths import render_lengths  # noqa: PLC0415  (see run)

    counts, made_of = header["counts"], header["made_of"]
    share = header["supervised_tokens"] / header["tokens"]
    lines = [
        f"{folder}: {counts['documents']:,} documents from {counts['lines']:,} lines",
        f"{header['tokens']:,} tokens, {share:.1%} of them supervised",
        f"loss mask by {' and '.join(made_of['loss_mask'])}",
        *(f"{counts[key]:>11,} {text}" for key, text in COUNTED.items() if counts.get(key)),
        "",
        render_lengths(header["histogram"], header["buckets"]),
    ]
    return "\n".join(lines) + "\n"


def _as_json(header: dict[str, Any]) -> str:
    return json.dumps(header, sort_keys=True, ensure_ascii=False) + "\n"


def _check(given: argparse.Namespace) -> None:
    lowest = {
        "block_size": 2,
        "max_length": given.block_size,
        "max_bad": 0,
        "part_lines": 1,
        "workers": 1,
    }
    for name, least in lowest.items():
        value = getattr(given, name)
        if value < least:
            raise UsageError(f"--{name.replace('_', '-')}: got {value}, expected {least} or more")


def _template_text(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UsageError(f"--chat-template {file}: {reason}") from None
