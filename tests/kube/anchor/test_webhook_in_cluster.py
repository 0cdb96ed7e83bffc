"""The webhook behind a real API server: people read its sentences, its certificates change, and it may be away."""

import base64
import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from proof.hostile.classes import CLASSES, variant
from proof.hostile.surfaces import made
from tenure.api.decode import read_tree
from tenure.engine.state import State
from tenure.facts import PutBudget, PutNamespace
from tenure.kube.certs import Keeper, Lives
from tenure.kube.client import Client
from tenure.kube.config import from_kubeconfig
from tenure.kube.loop import IO
from tenure.kube.system import System
from tenure.kube.translate import read_object
from tenure.kube.webhook import Webhook, keep_published, publish, serving
from tenure.testing import budget as budget_of
from tenure.testing import envelope, namespace
from tenure.testing.kube import ControlPlane, until
from tenure.testing.kube.process import free_ports
from tests.kube.anchor.conftest import installed
from tests.kube.anchor.world import OURS, World, budget, run

Tree = dict[str, Any]
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/tenure"
DAY = timedelta(days=1)


class Desk:
    """A webhook that runs on a thread of its own, as in the operator, and the clock of its certificates."""

    def __init__(self, plane: ControlPlane) -> None:
        self.io = IO("webhook")
        # Made so long ago that certificate and authority are still good and both due to be renewed.
        lives = Lives(authority=7.5 * DAY, serving=7 * DAY, settle=timedelta(0))
        self.keeper = Keeper(["127.0.0.1"], now=datetime.now(UTC) - 5 * DAY, lives=lives)
        self.state = State("test")
        self.state.fold(PutNamespace(object=namespace("team-a", owner="org:a")), 0)
        self.state.fold(PutBudget(object=budget_of("top", envelope("w", 8), owner="org", parents=("org:b",))), 0)
        self.webhook = self.io.run(self._webhook())
        (self.port,) = free_ports(1)
        self.open()
        self.system = System(webhook_url=f"https://127.0.0.1:{self.port}")
        token = plane.service_account(self.system.namespace, self.system.account)
        self.client = self.io.run(self._client(token))

    async def _webhook(self) -> Webhook:
        return Webhook(self.keeper, known=lambda: self.state)

    async def _client(self, config: Path) -> Client:
        return Client(from_kubeconfig(config))

    def open(self) -> None:
        self.io.run(self.webhook.start("127.0.0.1", self.port))

    def publish(self) -> None:
        """As the operator's account does it."""
        assert self.io.run(publish(self.client, self.keeper, now=datetime.now(UTC)))

    def close(self) -> None:
        self.io.run(self.webhook.stop())

    def leave(self) -> None:
        self.close()
        self.io.run(self.client.close())
        self.io.close()


@pytest.fixture(scope="module")
def called(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Desk]]:
    """A cluster of our own whose webhook is up."""
    with ControlPlane.started(tmp_path_factory.mktemp("called"), programs) as plane:
        plane.namespace("tenure-system")
        desk = Desk(plane)
        installed(plane, desk.system)
        world = World.made(plane, desk.system)
        desk.publish()
        try:
            until(lambda: "denied the request" in submitted(world, bad("first")).message)
            yield world, desk
        finally:
            desk.leave()


def bad(name: str) -> Tree:
    tree = run(name)
    tree["spec"]["resources"] = {"gpuType": "H100-80GB", "totalGPUs": "8"}
    return tree


def submitted(world: World, tree: Tree, who: str = "tenant") -> Any:
    return world.cast[who].create(tree, dry_run=True)


def asks_webhook(world: World, name: str) -> bool:
    """Whether the API server heard the webhook: only it writes such sentences."""
    return "a string where a whole number belongs" in submitted(world, bad(name)).message


def bundle_of(world: World) -> list[x509.Certificate]:
    found = world.plane.api.get(HOOKS).must()["webhooks"][0]["clientConfig"]["caBundle"]
    return x509.load_pem_x509_certificates(base64.b64decode(found))


def test_people_read_our_sentences_and_not_the_schemas(called: tuple[World, Desk]) -> None:
    world, _ = called
    answer = submitted(world, bad("x"))
    assert answer.status == 422
    assert 'Run/team-a/x: spec.resources.totalGPUs is "8": a string where a whole number belongs' in answer.message
    (cause,) = answer.body["details"]["causes"]
    assert cause["field"] == "spec.resources.totalGPUs"


def test_all_errors_come_at_once(called: tuple[World, Desk]) -> None:
    world, _ = called
    tree = bad("x")
    tree["spec"]["sparesPerGroup"] = -1
    message = submitted(world, tree).message
    assert "spec.resources.totalGPUs" in message
    assert "spec.sparesPerGroup" in message


def test_defaults_are_stored(called: tuple[World, Desk]) -> None:
    world, _ = called
    tree = run("x", owner="")
    tree["spec"]["malleable"] = {"minTotalGPUs": 8, "maxTotalGPUs": 32, "stepGPUs": 8}
    stored = submitted(world, tree).must()
    assert stored["spec"]["owner"] == "org:a"
    assert stored["spec"]["malleable"]["desiredTotalGPUs"] == 32
    assert stored["spec"]["locality"]["groupGPUs"] == 8


def test_rules_between_objects_are_judged_with_the_engines_state(called: tuple[World, Desk]) -> None:
    world, _ = called
    spoofed = submitted(world, run("x", owner="org:b"))
    assert spoofed.status == 422
    assert "not org:a, to which the namespace is bound, nor below it; write org:a" in spoofed.message
    cycle = submitted(world, budget("x", "org:b", ("org",)), "administrator")
    assert cycle.status == 422
    assert "a cycle of parents" in cycle.message


def test_an_update_is_judged_when_the_spec_changes_and_only_then(called: tuple[World, Desk]) -> None:
    world, _ = called
    tenant, path = world.cast["tenant"], f"{OURS}/namespaces/team-a/runs/train"
    refused = tenant.patch(f"{path}?dryRun=All", {"spec": {"resources": {"totalGPUs": 0}}})
    assert (refused.status, "denied the request" in refused.message) == (422, True)
    assert tenant.patch(f"{path}?dryRun=All", {"metadata": {"labels": {"a": "b"}}}).ok


def test_certificate_and_authority_are_renewed_without_a_restart(called: tuple[World, Desk]) -> None:
    """Both are due: first the certificate, then, when it has been published, the authority. Nobody notices."""
    world, desk = called
    keeper, now = desk.keeper, datetime.now(UTC)
    first, (old,) = keeper.serving, bundle_of(world)
    keeper.turn(now, published=True)
    assert keeper.serving != first
    assert keeper.serving.issuer == old.subject
    desk.publish()
    assert len(bundle_of(world)) == 2
    until(lambda: asks_webhook(world, "renewed"))
    keeper.turn(now, published=True)
    assert keeper.serving.issuer == bundle_of(world)[1].subject != old.subject
    # Connections that the API server holds open go on; a new one meets the new certificate.
    desk.close()
    desk.open()
    until(lambda: asks_webhook(world, "followed"))


def test_a_second_operator_adds_itself_and_takes_nothing_away(called: tuple[World, Desk]) -> None:
    world, desk = called
    desk.publish()
    before = bundle_of(world)
    other = Keeper(["127.0.0.1"], now=datetime.now(UTC))

    publishing = desk.io.start(keep_published(desk.client, other, every=60.0))
    until(lambda: len(bundle_of(world)) > len(before))
    publishing.cancel()
    assert bundle_of(world) == [*before, x509.load_pem_x509_certificate(other.authorities[0])]
    until(lambda: asks_webhook(world, "second"))


def test_an_operator_serves_and_publishes_by_itself(called: tuple[World, Desk]) -> None:
    """The caBundle comes from the operator's own account, and the API server calls the name in the certificate."""
    world, desk = called
    desk.close()
    with serving(desk.io, desk.client, "127.0.0.1", desk.port, names=["127.0.0.1"]) as webhook:
        until(lambda: asks_webhook(world, "operator"))
        assert webhook.keeper.serving.issuer in [each.subject for each in bundle_of(world)]
    desk.open()
    until(lambda: asks_webhook(world, "desk"))


def test_it_is_reached_through_its_service(called: tuple[World, Desk]) -> None:
    """As it is installed: by the name of the service, which is the name in the certificate."""
    world, desk = called
    system = System()
    address = own_address()
    with serving(desk.io, desk.client, address, 0, names=[system.webhook_host]) as webhook:
        world.plane.ensure(slice_of(system, address, webhook.port))
        installed(world.plane, system)
        try:
            until(lambda: asks_webhook(world, "service"))
        finally:
            installed(world.plane, desk.system)
    until(lambda: asks_webhook(world, "desk"))


def own_address() -> str:
    """An address of this machine that is not loopback: the API server wants no endpoint there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no address but loopback, and no Service can lead there")
        return str(probe.getsockname()[0])


def slice_of(system: System, address: str, port: int) -> Tree:
    """What the cluster's controllers make of a pod behind the service."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{system.service}-1",
            "namespace": system.namespace,
            "labels": {"kubernetes.io/service-name": system.service},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "webhook", "port": port, "protocol": "TCP"}],
    }


def test_with_the_webhook_away_good_runs_go_in_and_bad_ones_do_not(called: tuple[World, Desk]) -> None:
    world, desk = called
    desk.close()
    try:
        assert submitted(world, run("x")).ok
        schema = submitted(world, bad("x"))
        assert schema.status == 422
        assert "denied the request" not in schema.message
        spoofed = submitted(world, run("x", owner="org:b"))
        assert spoofed.status == 403
        assert "ValidatingAdmissionPolicy 'tenure-runs'" in spoofed.message
        untouched = submitted(world, run("x", owner="")).must()
        assert "owner" not in untouched["spec"], "the operator fills it in when it takes the run in"
    finally:
        desk.open()
    until(lambda: asks_webhook(world, "back"))


HOSTILE_EACH = 4
"""Of each class of ``python -m proof hostile``: one object is one call here."""


@pytest.mark.parametrize("name", CLASSES)
def test_hostile_objects_end_at_the_api_server(called: tuple[World, Desk], name: str) -> None:
    """What the fleet refuses does not get past API server and webhook; what gets past is read by the operator."""
    world, _ = called
    answers = []
    for number in range(HOSTILE_EACH):
        text = re.sub(rb"\brai\b", b"team-a", variant(name, number).text.replace(b"org:ai:rai", b"org:a"))
        for tree in islice((each for each in made(text) if each.get("kind") in ("Run", "Budget")), 2):
            place = "namespaces/team-a/runs" if tree["kind"] == "Run" else "budgets"
            try:
                answer = world.cast["admin"].call(
                    "POST", f"{OURS}/{place}?dryRun=All&fieldValidation=Strict", {"apiVersion": "x", **tree}
                )
            except (TypeError, ValueError):
                continue  # no client can send it
            wrong = [each.sentence() for each in read_tree(tree).errors if each.path.startswith("spec")]
            assert not (answer.ok and wrong), (number, wrong)
            assert answer.status < 500, (number, answer.status, answer.message)
            if "strict decoding error: " not in answer.message:  # the API server's own words, before it asks anybody
                assert all(line.isprintable() for line in answer.message.split("\n")), (number, answer.message)
            if answer.ok:
                assert read_object(answer.body).errors == ()
            answers.append(answer.status)
    assert answers or name in ("deep", "encodings", "kinds", "tags", "oversize", "aliases", "controls"), (
        "objects were sent"
    )
    assert submitted(world, run("honest")).ok, "and it goes on"
