"""Places that any test may ask for: real sshd, real container, a `pct` in front, fake GPU driver."""

pytest_plugins = ["e2e.places.fixtures", "fake_nvml.fixtures"]
