"""Ends of a run that several scenarios begin from."""

from __future__ import annotations

from scenarios.timeline import Timeline


def failed_in_our_trainer() -> Timeline:
    """A worker raised, the trainer stopped by itself, and its process has been gone for 10 s."""
    run = Timeline.training()
    run.event("worker-failed", worker="target-1", role="target", exception="RuntimeError",
              message="boom", traceback="Traceback\nRuntimeError: boom")  # fmt: skip
    run.freeze()
    run.go(2)
    run.event("exit", code=1, reason="failed", message="target-1 failed")
    run.go(1)
    run.process = "gone"
    run.go(10)
    return run
