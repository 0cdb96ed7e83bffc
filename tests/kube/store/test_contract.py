"""The suite that every store passes (tests/contract), on the API server."""

from tests.contract.test_store import *  # noqa: F403 -- all of it, so that a test added there is run here, too
from tests.kube.store.conftest import store  # noqa: F401 -- instead of the suite's own, which makes the other stores
