"""Places any test may ask for: real sshd, real container, a `pct` in front, a fake GPU driver."""

import signal

pytest_plugins = ["e2e.places.fixtures", "fake_nvml.fixtures"]


def pytest_configure() -> None:
    """Who started the tests may ignore signals (nohup, a background); what they start must not."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
