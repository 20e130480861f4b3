"""Places any test may ask for: real sshd, real container, a `pct` in front, a fake GPU driver."""

pytest_plugins = ["e2e.places.fixtures", "fake_nvml.fixtures"]
