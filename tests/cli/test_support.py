"""What the other tests stand on does what it says."""

import subprocess

import pytest

from tests.cli import support
from tests.cli.support import finish, still


def test_who_does_not_end_is_ended_before_the_test_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "SECONDS", 0.01)
    process = subprocess.Popen(["sleep", "3600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        finish(process)
    assert process.returncode == -9
    assert process.stdout is not None
    assert process.stdout.closed


@pytest.mark.parametrize("age", ["7ms", "59s", "1m4s", "1h2m", "23h", "1d3h", "400d"])
def test_ages_are_taken_out_however_old_a_fleet_is(age: str) -> None:
    assert still(f"a-train {age} ago, of {'12345678' * 8}") == "a-train AGE ago, of HASH"
