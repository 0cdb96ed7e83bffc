"""A namespace that goes: what is open keeps it until it is closed, then all goes, and the books stay."""

from tenure.api.meta import OWNER_ANNOTATION
from tenure.testing.kube import until
from tests.kube.anchor.world import CLOSED, OURS, World, lease, reservation

NAME = "leaving"


def failing(world: World) -> bool:
    """Whether the cluster's own controller has tried, and was refused."""
    found = world.plane.api.get(f"/api/v1/namespaces/{NAME}").must()["status"].get("conditions") or []
    said = [each for each in found if each["type"] == "NamespaceDeletionContentFailure" and each["status"] == "True"]
    return any("an open lease is never deleted" in each["message"] for each in said)


def test_a_namespace_leaves_when_its_leases_are_closed(world: World) -> None:
    plane, operator = world.plane, world.cast["operator"]
    plane.namespace(NAME, **{OWNER_ANNOTATION: "org:a"})
    promise = reservation("promise")
    promise["metadata"]["namespace"] = NAME
    for each in (lease("open", NAME), lease("over", NAME), promise):
        operator.create(each).must()
    leases, reservations = f"{OURS}/namespaces/{NAME}/leases", f"{OURS}/namespaces/{NAME}/reservations"
    operator.patch(f"{leases}/over/status", {"status": CLOSED}).must()

    plane.api.delete(f"/api/v1/namespaces/{NAME}").must()
    until(lambda: failing(world))
    stays = plane.api.delete(f"{leases}/open")
    assert (stays.status, "an open lease is never deleted" in stays.message) == (403, True)

    stands = plane.api.delete(f"{reservations}/promise")
    assert (stands.status, "a promise that stands is withdrawn by" in stands.message) == (403, True)

    operator.patch(f"{leases}/open/status", {"status": CLOSED}).must()
    operator.patch(f"{reservations}/promise/status", {"status": {"state": "Canceled"}}).must()
    until(lambda: plane.api.get(f"/api/v1/namespaces/{NAME}").status == 404)
    assert len(plane.api.get(f"{OURS}/ledgerentries").must()["items"]) == 1
