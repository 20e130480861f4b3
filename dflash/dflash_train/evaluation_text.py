"""An evaluation as a table for people and as a record for programs."""

from __future__ import annotations

from dflash_train.evaluation import Evaluation


def record(found: Evaluation) -> dict[str, object]:
    """Stable keys; what is not known is null."""
    acceptance = found.acceptance
    return {
        "acceptance_length": acceptance.length,
        "estimate": found.estimate,
        "estimate_own": found.estimate_own,
        "by_position": list(acceptance.by_position),
        "histogram": list(acceptance.histogram),
        "tokens_per_pass": acceptance.tokens_per_pass,
        "verify_steps": acceptance.steps,
        "target_passes": acceptance.passes,
        "tokens": acceptance.tokens,
        "prompts": found.prompts,
        "seconds": found.seconds,
        "gap": found.cause if found.has_gap else None,
    }


def table(found: Evaluation) -> list[str]:
    """Lines; acceptance first."""
    acceptance = found.acceptance
    size = len(acceptance.histogram)
    decoded = (
        f"{found.prompts} prompts, {acceptance.tokens} tokens in {acceptance.steps} verify steps,"
        f" {found.seconds:.1f} s"
    )
    rows = [
        ("acceptance", f"{number(acceptance.length)} tokens a verify step, {size} at most"),
        ("estimate", f"{number(found.estimate)} by training's computation on the held-out text"),
        ("", f"{number(found.estimate_own)} by the same on what the target generated here"),
        ("target passes", f"{number(acceptance.tokens_per_pass)} tokens each, repeats included"),
        ("decoded", decoded),
        ("position", "".join(f"{place:>6}" for place in range(1, size))),
        ("accepted", "".join(f"{share:>6.2f}" for share in acceptance.by_position)),
        ("drafts taken", "".join(f"{count:>6}" for count in range(size))),
        ("steps", "".join(f"{steps:>6}" for steps in acceptance.histogram)),
    ]
    if found.has_gap:
        rows.append(("gap", found.cause))
    return [f"{name:<14}{text}" for name, text in rows]


def number(value: float | None) -> str:
    """Two digits, or that it is not known."""
    return "unknown" if value is None else f"{value:.2f}"
