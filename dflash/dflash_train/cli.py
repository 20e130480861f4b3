"""`dflash-train`: the command line, its help and its exit codes; imports no torch.

Exit codes: 0 done, 1 failed, 64 usage, 75 stopped on request with a checkpoint written.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dflash_train.commands import COMMANDS
from dflash_train.errors import EXIT_DONE, EXIT_FAILED, EXIT_STOPPED, DflashError, UsageError
from dflash_train.output import finish

if TYPE_CHECKING:
    from dflash_train.config import Config

NEEDED = ("torch", "transformers", "safetensors", "numpy")
LAUNCHES = ("auto", "threads", "processes")
EXAMPLES = """\
examples:
  dflash-train --preset tiny --run-dir runs/demo
  dflash-train --preset tiny --run-dir runs/long optim.steps=2000 report.every_steps=20
  dflash-train resume --run-dir runs/demo
  dflash-train --preset tiny --run-dir runs/drill drill.fault=lock-cycle

exit codes: 0 done, 1 failed, 64 usage, 75 stopped on request with a checkpoint written
"""


class Parser(argparse.ArgumentParser):
    """Usage errors are one line and exit 64."""

    def error(self, message: str) -> NoReturn:
        """Raise what was not understood."""
        raise UsageError(message, hint=f"see {self.prog} --help")


class _Version(argparse.Action):
    """Reads the version only when asked: importing metadata costs more than parsing."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from dflash_events import __version__  # noqa: PLC0415  (only when asked)

        sys.stdout.write(f"dflash-train {__version__}\n")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """All arguments of training and resuming."""
    parser = Parser(
        prog="dflash-train",
        description="Train a DFlash drafter against a frozen target. No command means: train.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="resume | section.key=value", help="command, then settings")
    add(
        "--preset",
        metavar="NAME",
        help="settings to start from: tiny (CPU, no downloads), dflash (default with --target)",
    )
    add("--config", type=Path, metavar="FILE", help="TOML with sections of settings")
    add("--run-dir", type=Path, metavar="DIR", help="where the run writes everything")
    add("--target", metavar="PATH_OR_ID", help="the frozen model: a folder or a hub id")
    add("--data", metavar="DIR|FILE", help="shards of prepare, or chats or text")
    add("--init", metavar="DIR", help="go on from a published drafter, with its shapes")
    add("--target-devices", metavar="LIST", help="one replica each, e.g. cpu,cpu or cuda:0-4")
    add("--drafter-devices", metavar="LIST", help="one replica each, e.g. cuda:5-7")
    add(
        "--launch",
        choices=LAUNCHES,
        default="auto",
        help="one process, or one a drafter; auto: many on several GPUs",
    )
    add("--watch", action=argparse.BooleanOptionalAction, default=True, help="watchdog beside it")
    add("--version", action=_Version, nargs=0, help="print the version and end")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and turn every ending into an exit code."""
    code = _ended(list(sys.argv[1:] if arguments is None else arguments))
    finish()
    return code


def _ended(words: list[str]) -> int:
    try:
        if words[:1] and words[0] in COMMANDS:
            return _run_command(words)
        code, stuck = _run(build_parser().parse_intermixed_args(words), words)
    except DflashError as error:
        sys.stderr.write(f"dflash-train: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001  (the edge of the program)
        traceback.print_exc(file=sys.stderr)
        sys.stderr.write(f"dflash-train: {type(error).__name__}: {error}\n")
        return EXIT_FAILED
    if stuck:
        sys.stderr.write(f"dflash-train: left without waiting for {', '.join(stuck)}\n")
        finish()
        sys.stderr.flush()
        os._exit(code)
    return code


def _run_command(words: list[str]) -> int:
    """A command of its own module.

    Raises:
        DflashError: it failed, or was not understood.
    """
    command = importlib.import_module(COMMANDS[words[0]])
    given = command.build_parser().parse_intermixed_args(words[1:])
    _refuse_without_packages()
    return int(command.run(given))


def _run(given: argparse.Namespace, words: list[str]) -> tuple[int, tuple[str, ...]]:
    from dflash_train import launch  # noqa: PLC0415  (keeps --help fast)
    from dflash_train.place import Place, check_place, place_of  # noqa: PLC0415
    from dflash_train.run import RunRequest, execute, prepare_directory  # noqa: PLC0415

    is_resume, overrides = _split_words(given.words)
    _refuse_without_packages()
    if given.run_dir is None:
        raise UsageError("--run-dir: missing", hint="e.g. --run-dir runs/demo")
    place = place_of(os.environ)
    is_ours = launch.LAUNCHED in os.environ
    config = _resolved(
        given, overrides, is_resume=is_resume, may_prepare=place.size == 1 or is_ours
    )
    if place.size == 1 and launch.wants_processes(given.launch, config, os.environ):
        check_place(config, Place(size=config.num_drafters))
        run_dir = prepare_directory(given.run_dir, resume=is_resume)
        return launch.launch(words, config, run_dir), ()
    check_place(config, place)
    request = RunRequest(
        config=config,
        run_dir=given.run_dir,
        command=("dflash-train", *words),
        watch=given.watch,
        resume=is_resume,
        place=place,
    )
    result = execute(request)
    if place.size > 1 and result.code not in (EXIT_DONE, EXIT_STOPPED):
        finish()
        sys.stderr.flush()
        os._exit(result.code)  # an orderly end would wait for processes that have gone
    # to its launcher an exit other than 0 is a failure; launch.py reads how the run ended
    was_stopped = result.code == EXIT_STOPPED and is_ours and place.size > 1
    return EXIT_DONE if was_stopped else result.code, result.stuck


def _resolved(
    given: argparse.Namespace, overrides: list[str], *, is_resume: bool, may_prepare: bool
) -> Config:
    """Settings from all places, with what target and data decide of them."""
    from dflash_train.settings import resolve  # noqa: PLC0415  (see _run)
    from dflash_train.tracking import check_installed  # noqa: PLC0415

    overrides = [*settings_of_options(given), *overrides]
    if is_resume:
        config = _resumed_config(given, overrides)
    elif given.preset is None and given.config is None and given.target is None:
        raise UsageError("nothing to train", hint="give --target, --preset tiny or --config FILE")
    else:
        preset = given.preset or ("dflash" if given.target else "tiny")
        config = resolve(preset, given.config, overrides, _shapes_of(given.init))
    if config.target.path is not None:
        from dflash_train.target_facts import settle  # noqa: PLC0415  (loads torch)

        config = settle(config)
    if config.data.path is not None:
        config = _with_data(config, given.run_dir, is_resume=is_resume, may_prepare=may_prepare)
    check_installed(config)
    if config.drafter.init is not None and not is_resume:
        from dflash_train.warm_start import check_warm_start  # noqa: PLC0415  (loads torch)

        check_warm_start(config)
    return config


def _shapes_of(init: str | None) -> dict[str, dict[str, object]]:
    """What a published drafter decides of the settings."""
    if init is None:
        return {}
    from dflash_train.warm_start import settings_of  # noqa: PLC0415  (loads torch)

    return settings_of(Path(init))


def requested_config(given: argparse.Namespace) -> Config:
    """The settled configuration of a run that is not started yet.

    Raises:
        UsageError: what was asked for cannot be trained.
    """
    is_resume, overrides = _split_words(given.words)
    if is_resume:
        raise UsageError("resume: that run was looked at when it began")
    return _resolved(given, overrides, is_resume=False, may_prepare=given.run_dir is not None)


def _with_data(
    config: Config, run_dir: Path | None, *, is_resume: bool, may_prepare: bool
) -> Config:
    """`config` with what its data decide; a file is prepared into the run directory first."""
    from dflash_train.corpus.settle import is_file, prepare_first, settle_data  # noqa: PLC0415
    from dflash_train.run import prepare_directory  # noqa: PLC0415  (see _run)

    if is_file(config.data):
        if run_dir is None:
            raise UsageError(
                "--data: a file is prepared into the run directory, and none is given",
                hint="give --run-dir DIR, or a folder that `dflash-train prepare` made",
            )
        if not may_prepare:
            raise UsageError(
                "--data: a file, and several processes would prepare it at once",
                hint="dflash-train prepare first, or --launch processes instead of torchrun",
            )
        config = prepare_first(config, prepare_directory(run_dir, resume=is_resume))
    return settle_data(config).check()


def _resumed_config(given: argparse.Namespace, overrides: list[str]) -> Config:
    """The configuration of the newest checkpoint, with what was said now over it."""
    from dflash_train.settings import merge, parse_overrides, read_toml  # noqa: PLC0415  (see _run)
    from dflash_train.stored import check_resumable, newest_stored  # noqa: PLC0415

    stored = newest_stored(given.run_dir)
    config = stored.config
    if given.config is not None:
        config = merge(config, read_toml(given.config), str(given.config))
    config = parse_overrides(config, overrides).check()
    check_resumable(stored, config)
    return config


def _split_words(words: list[str]) -> tuple[bool, list[str]]:
    """Command and settings.

    Raises:
        UsageError: neither the one nor the other.
    """
    from dflash_train.settings import suggest  # noqa: PLC0415  (keeps --help fast)

    is_resume = bool(words) and words[0] == "resume"
    rest = words[1:] if is_resume else words
    for word in rest:
        if "=" not in word:
            known = suggest(word, ("resume", *COMMANDS))
            raise UsageError(f"{word}: expected section.key=value or a command{known}")
    return is_resume, rest


def _refuse_without_packages() -> None:
    """The base install is the watchdog: training needs more."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"not installed: {', '.join(missing)}",
            hint="pip install 'dflash-toolkit[train]' (which torch: see README, Install)",
        )


def settings_of_options(given: argparse.Namespace) -> list[str]:
    """What --target, --data and the devices set, as settings.

    Raises:
        UsageError: a list of devices that cannot be read.
    """
    from dflash_train.device_names import expand  # noqa: PLC0415  (keeps --help fast)

    init = None if given.init is None else Path(given.init).absolute()
    pairs = (("target.path", given.target), ("data.path", given.data), ("drafter.init", init))
    found = [f"{key}={value}" for key, value in pairs if value is not None]
    for section in ("target", "drafter"):
        text = getattr(given, f"{section}_devices")
        if text is not None:
            names = expand(text, f"--{section}-devices")
            found.append(f"{section}.devices={','.join(names)}")
    return found


if __name__ == "__main__":
    sys.exit(main())
