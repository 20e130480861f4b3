"""Places that any test may ask for: a real sshd, a real container, a `pct` in front of it."""

pytest_plugins = ["e2e.places.fixtures"]
