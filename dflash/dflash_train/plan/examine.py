"""All checks in their order: each alone, none hides another, nothing lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from dflash_train.errors import DflashError, UsageError
from dflash_train.fate import describe
from dflash_train.plan import data_checks, drafter_checks, room, target_checks
from dflash_train.plan.bench import Bench
from dflash_train.plan.check import CHECKS, Check, State, judged, override, unknown

logger = logging.getLogger(__name__)

BY_NAME: Mapping[str, Callable[[Bench], Check]] = {
    "devices": data_checks.devices,
    "disk": data_checks.disk,
    "tokenizer": data_checks.tokenizer,
    "template": data_checks.template,
    "mask-token": data_checks.mask_token,
    "positions": data_checks.positions,
    "rope": data_checks.rope,
    "documents": data_checks.documents,
    "kernels": target_checks.kernels,
    "causal": target_checks.causal,
    "feature-index": target_checks.feature_index,
    "features": target_checks.features,
    "padding": target_checks.padding,
    "embedding": target_checks.embedding,
    "head": target_checks.head,
    "agreement": target_checks.agreement,
    "memory": room.memory,
    "time": room.duration,
    "leak": drafter_checks.leak,
    "cached-inference": drafter_checks.cached_inference,
}
NEED_ROOM = ("time", "leak", "cached-inference")
"""Not made where the largest bucket does not fit: the kernel would end the process."""


def examine(bench: Bench, on_check: Callable[[str], None] = lambda _: None) -> tuple[Check, ...]:
    """Every check, with those overridden that the configuration names.

    Args:
        bench: of the run.
        on_check: called with the name of each before it; may raise to stop.
    """
    return override(tuple(_each(bench, on_check)), bench.config.plan.override)


def refuse(checks: tuple[Check, ...]) -> None:
    """Say what is not well; nothing where all is.

    Raises:
        UsageError: a check failed and was not overridden.
    """
    for check in checks:
        if check.overridden:
            logger.warning("check overridden: %s", check.line())
        elif check.state in (State.WARNING, State.UNKNOWN):
            logger.warning("check %s: %s", check.state, check.line())
    failed = [check for check in checks if check.refuses]
    if not failed:
        return
    names = ",".join(check.name for check in failed)
    raise UsageError(
        "; ".join(f"check failed: {check.line()}" for check in failed),
        hint=f"to train in spite of it: plan.override={names}",
    )


def _each(bench: Bench, on_check: Callable[[str], None]) -> Iterator[Check]:
    fits = True
    for name in CHECKS:
        on_check(name)
        if name in NEED_ROOM and not fits:
            yield unknown(name, "not looked at: the memory does not suffice", "a run that fits")
            continue
        check = _one(name, bench)
        fits = fits and not (name == "memory" and check.state is State.FAILED)
        yield check


def _one(name: str, bench: Bench) -> Check:
    try:
        return BY_NAME[name](bench)
    except DflashError as error:
        seen, advice = error.message, error.hint or ""
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        logger.debug("check %s", name, exc_info=True)
        seen, advice = describe(error), "the target or its data does not do what all others do"
    return judged(name, ok=False, observed=seen, expected="a check that ends", advice=advice)
