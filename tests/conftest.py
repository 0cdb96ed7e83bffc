"""What every test shares: hypothesis profiles and an environment without a person's own settings."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# No deadline anywhere: seconds swing threefold on a shared machine, so a slow example says nothing.
_ALWAYS = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", _ALWAYS, max_examples=60)
# CI is repeatable: the same code gives the same verdict. Luck belongs to `soak` and to your desk.
settings.register_profile("ci", _ALWAYS, max_examples=60, derandomize=True)
# pytest --hypothesis-profile soak
settings.register_profile("soak", _ALWAYS, max_examples=5_000)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A proxy is for the world outside: what tests start is on this machine.
for _name in ("no_proxy", "NO_PROXY"):
    os.environ[_name] = ",".join(filter(None, (os.environ.get(_name), "127.0.0.1", "localhost")))


@pytest.fixture(autouse=True)
def no_personal_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own TENURE_* variables, and clusters near by, must not decide what a test sees."""
    for name in sorted(os.environ):
        if name.startswith(("TENURE_", "KUBERNETES_SERVICE_")) or name == "KUBECONFIG":
            monkeypatch.delenv(name)
