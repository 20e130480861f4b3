"""The fake driver of the drills, for tests: fixtures.py builds it once a session."""

from dflash_watch.drills.fake_nvml import FakeNvml

__all__ = ["FakeNvml"]
