"""A wish on a Run is granted once, whatever is seen how often, and is taken away."""

from typing import Any

from tenure.engine import Resolve
from tenure.engine.state import State
from tenure.kube.marks import RESOLVE
from tenure.kube.translate import read_object
from tenure.kube.wishes import Wishes
from tests.kube.worlds import run


class Known(State):
    """A state that knows one run."""

    def __init__(self) -> None:
        super().__init__("test")
        self.runs: Any = {"rai/train": None}


def wished(value: str = "") -> dict[str, Any]:
    item = run("train", 8, namespace="rai")
    item["metadata"]["annotations"] = {RESOLVE: value} if value else {}
    return item


def test_each_wish_is_granted_once() -> None:
    caches = {"rai/train": wished("1")}
    wishes, keys = Wishes(caches.get), ["rai/train", "rai/other"]
    assert list(wishes.among(keys, Known())) == [Resolve("rai/train")]
    assert list(wishes.among(keys, Known())) == [Resolve("rai/train")]  # it could not be committed: asked again
    assert wishes.granted("rai/train") == "1"
    assert not list(wishes.among(keys, Known()))
    caches["rai/train"] = wished("2")
    assert list(wishes.among(keys, Known())) == [Resolve("rai/train")]


def test_the_same_wish_counts_again_after_it_was_taken_away() -> None:
    caches = {"rai/train": wished("1")}
    wishes = Wishes(caches.get)
    wishes.granted("rai/train")
    caches["rai/train"] = wished()
    assert not list(wishes.among(["rai/train"], Known()))
    caches["rai/train"] = wished("1")
    assert list(wishes.among(["rai/train"], Known())) == [Resolve("rai/train")]


def test_a_run_that_nobody_knows_yet_has_to_wait_for_its_wish() -> None:
    assert not list(Wishes({"rai/train": wished("1")}.get).among(["rai/train"], State("test")))


def test_a_wish_is_no_part_of_the_run() -> None:
    (with_it,), (without,) = read_object(wished("1")).objects, read_object(wished()).objects
    assert with_it == without
