"""An installation in a cluster: what was installed, the machines, the clocks, the operator and the ledger.

Each look stands alone. A right that is missing makes one result unknown, and the rest is told all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tenure.api.meta import OWNER_ANNOTATION
from tenure.api.policy import Policy
from tenure.cli.cluster import ClusterFleet
from tenure.cli.copied import DRIVE
from tenure.cli.doctor import installed, world
from tenure.cli.doctor.installed import Object, Site
from tenure.cli.doctor.report import Check, from_trouble, ok, problem, unknown, warning
from tenure.cli.doctor.webhook import webhook
from tenure.cli.exits import Exit
from tenure.cli.reach import access_to
from tenure.cli.refused import trouble
from tenure.cli.trouble import Trouble
from tenure.cli.words import plural, some
from tenure.engine import State
from tenure.engine.topology import MANAGED_TAINT, label_keys
from tenure.kube.client import Client
from tenure.kube.errors import ApiError
from tenure.kube.loop import IO
from tenure.kube.rbac import ELECTION
from tenure.kube.resources import ELECTION_LEASES, NAMESPACES, NODES, RUNS

SKEW = 2.0
"""Seconds that a clock may be off: instants of a ledger are the operator's, deadlines are everybody's."""
MACHINE = ("region", "cluster", "domain", "flavor")
TAKEN_IN = 60.0
"""Seconds after which an operator has taken in a new Run."""
Look = Callable[[], Iterable[Check]]


def examined(kubeconfig: Path | None, context: str | None, archive: Path | None) -> Iterator[Check]:
    """Everything, the way to the API server first: without it there is nothing else to ask."""
    client = Client(access_to(kubeconfig, context))
    with IO() as io:
        site = Site(io, client)
        try:
            yield from installed.version(site)
        except ApiError as error:
            told = trouble(error)
            yield problem("server", told.problems[0], told.next_step)
        else:
            yield from _all(site, lambda: _opened(kubeconfig, context, archive))
        finally:
            io.run(client.close())


def _opened(kubeconfig: Path | None, context: str | None, archive: Path | None) -> ClusterFleet:
    return ClusterFleet.open(kubeconfig=kubeconfig, context=context, archive=archive)


def _all(site: Site, opened: Callable[[], ClusterFleet]) -> Iterator[Check]:
    """The ledger is opened first, since it knows the policy; what it says is told in its turn."""
    with ExitStack() as open_things:
        fleet: ClusterFleet | None = None
        refused: Trouble | None = None
        try:
            fleet = open_things.enter_context(opened())
        except Trouble as trouble:
            refused = trouble
        state = None if fleet is None else fleet.state_or_none
        found = list(_installation(site, Policy() if state is None else state.policy))
        yield from found
        if any(one.check == "kinds" and one.finding.endswith("missing") for one in found):
            return  # without its kinds there is nothing else to look at
        if refused is not None:
            yield from_trouble("ledger", refused)
        elif fleet is not None:
            yield from _tried("ledger", partial(ledger, fleet))
            yield from _tried("driver", partial(operator, site, fleet, state))
        yield from _world(site, state)


def _installation(site: Site, policy: Policy) -> Iterator[Check]:
    system = msgspec.structs.replace(site.system(), gpu_resource=policy.gpu_resource)
    looks: list[tuple[str, Look]] = [
        ("clock", lambda: skew(site)),
        ("kinds", lambda: installed.kinds(site)),
        ("policies", lambda: installed.policies(site, system)),
        ("enforcement", lambda: installed.enforcement(site, system)),
        ("roles", lambda: installed.roles(site, system)),
        ("webhook", lambda: webhook(site)),
    ]
    for name, look in looks:
        yield from _tried(name, look)


def _world(site: Site, state: State | None) -> Iterator[Check]:
    policy = Policy() if state is None else state.policy
    yield from _tried("machines", lambda: machines(site, policy))
    yield from _tried("namespaces", lambda: namespaces(site))
    yield from _tried("runs", lambda: taken_in(site))
    if state is not None:
        yield from world.money(state)
        yield from world.draws(state)


def _tried(name: str, look: Look) -> Iterator[Check]:
    """A look; a right that is missing, or a server that does not answer, is told in the words of every command."""
    try:
        yield from look()
    except ApiError as error:
        told = trouble(error)
        if error.code == 403:
            yield unknown(name, told.problems[0], "have a cluster administrator call the doctor")
        else:
            yield problem(name, told.problems[0], told.next_step)
    except Trouble as found:
        yield from_trouble(name, found)


def skew(site: Site) -> Iterator[Check]:
    """The clock of this computer against the API server's, by the date of an answer."""
    before = time.time()
    told = site.io.run(_date(site.client))
    middle = (before + time.time()) / 2
    if told is None:
        yield unknown("clock", "the API server's answers carry no date", "compare the clocks by hand: date -u")
        return
    off = middle - (told + 0.5)  # a date is cut to the second
    if abs(off) > SKEW:
        side = "ahead of" if off > 0 else "behind"
        fix = "set the clock of whichever is wrong (timedatectl set-ntp true), on the operator's machine too"
        yield problem("clock", f"this computer is {abs(off):.0f} s {side} the API server", fix)
    else:
        yield ok("clock", f"this computer and the API server agree to within {SKEW:.0f} s")


async def _date(client: Client) -> float | None:
    access = client.access
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
        session.get(
            f"{access.server.rstrip('/')}/version", ssl=access.tls() or True, headers=access.bearer().headers(),
            server_hostname=access.server_name or None,
        ) as answer,
    ):  # fmt: skip
        told = answer.headers.get("Date")
    return None if told is None else parsedate_to_datetime(told).timestamp()


def machines(site: Site, policy: Policy) -> Iterator[Check]:
    """Nodes with GPUs: do their labels say where they are, and does the taint keep others away?"""
    nodes = site.io.run(site.client.list(NODES)).items
    gpus = [one for one in nodes if _gpus(one, policy)]
    bad = 0
    for node in gpus:
        lacking = [keys[0] for keys in (label_keys(policy, what) for what in MACHINE) if not _labelled(node, keys)]
        if lacking:
            bad += 1
            name, each = node["metadata"]["name"], " ".join(f"{label}=VALUE" for label in lacking)
            if bad <= 10:
                finding = f"Node/{name} has GPUs and no label {' nor '.join(lacking)}: nothing is placed on it"
                yield problem("machines", finding, f"kubectl label node {name} {each}")
    if bad > 10:
        yield problem("machines", f"{bad - 10} more lack labels", "kubectl runs nodes lists them as Quarantined")
    bare = sorted(one["metadata"]["name"] for one in gpus if not _tainted(one))
    if not gpus:
        resource = policy.gpu_resource
        yield problem("machines", f"no node offers {resource}: nothing can start",
                      "see whether the device plugin of your GPUs runs on the nodes")  # fmt: skip
    elif not bad:
        yield ok("machines", f"{plural(len(gpus), 'node')} with {policy.gpu_resource}, all labelled")
    if bare:
        fix = f"kubectl taint nodes {' '.join(bare[:4])} {MANAGED_TAINT}=:NoSchedule"
        yield warning("taints", f"nothing keeps the pods of others off {some(bare)}", fix)


def _gpus(node: Object, policy: Policy) -> bool:
    count = str((node.get("status") or {}).get("allocatable", {}).get(policy.gpu_resource, "0"))
    return count not in ("", "0")


def _labelled(node: Object, keys: tuple[str, ...]) -> bool:
    labels = node["metadata"].get("labels") or {}
    return any(labels.get(key) for key in keys)


def _tainted(node: Object) -> bool:
    return any(one["key"] == MANAGED_TAINT for one in (node.get("spec") or {}).get("taints") or ())


def ledger(fleet: ClusterFleet) -> Iterator[Check]:
    """The LedgerHead against the copy on this computer, which is a witness of what was there before."""
    try:
        head = fleet.head
    except Trouble as told:
        say = unknown if told.exit is Exit.REFUSED else problem
        yield say("ledger", told.problems[0], told.next_step)
        return
    yield ok("ledger", f"the LedgerHead names entry {head.seq}, and the chain behind it is whole on this computer")


def operator(site: Site, fleet: ClusterFleet, state: State | None) -> Iterator[Check]:
    """Whether an operator leads, and acts in good time."""
    found = site.get(ELECTION_LEASES, ELECTION, site.system().namespace)
    holder = ((found or {}).get("spec") or {}).get("holderIdentity")
    if state is not None:
        now = time.time_ns() // 1000
        last = fleet.head.at if found is None else None
        pods = f"kubectl get pods -n {site.system().namespace}"
        yield from world.progress(state, driven=fleet.driven, now=now, drive=DRIVE, last=last, pods=pods)
    if found is None:
        yield ok("leader", "no election is held: one operator runs without --elect, or none")
    elif not holder:
        yield problem("leader", "nobody leads: the last leader has stepped down", f"{DRIVE} --elect")
    else:
        yield from _led(holder, found["spec"])


def _led(holder: str, spec: dict[str, Any]) -> Iterator[Check]:
    since = datetime.now(UTC) - datetime.fromisoformat(spec["renewTime"])
    seconds, limit = since.total_seconds(), 2 * int(spec.get("leaseDurationSeconds") or 15)
    if seconds > limit:
        fix = f"see why it stopped (its log), or run another: {DRIVE} --elect"
        yield problem("leader", f"{holder} led, and has not renewed for {seconds:.0f} s", fix)
    elif seconds < -SKEW:
        fix = f"set the clock of {holder}, or of this computer (timedatectl set-ntp true)"
        yield problem("leader", f"{holder} renewed {-seconds:.0f} s in this computer's future", fix)
    else:
        yield ok("leader", f"{holder} leads, and renewed {max(0, seconds):.0f} s ago")


def namespaces(site: Site) -> Iterator[Check]:
    """Namespaces with runs that no owner is bound to: only administrators can submit there, in anybody's name."""
    bound = {
        one["metadata"]["name"]
        for one in site.io.run(site.client.list(NAMESPACES)).items
        if (one["metadata"].get("annotations") or {}).get(OWNER_ANNOTATION)
    }
    used = {one["metadata"]["namespace"] for one in site.io.run(site.client.list(RUNS)).items}
    if loose := sorted(used - bound):
        fix = f"kubectl annotate namespace {loose[0]} {OWNER_ANNOTATION}=OWNER"
        yield warning("namespaces", f"runs are in {some(loose)}, and no owner is bound to it", fix)
    elif not bound:
        fix = f"kubectl annotate namespace NAME {OWNER_ANNOTATION}=OWNER"
        yield warning("namespaces", "no namespace is bound to an owner: tenants cannot submit anywhere", fix)
    else:
        yield ok("namespaces", f"{plural(len(bound), 'namespace')} bound to an owner, and no run anywhere else")


def taken_in(site: Site) -> Iterator[Check]:
    """Runs that nobody has looked at: an operator that does not see them, or none."""
    now = datetime.now(UTC)
    unseen = []
    for one in site.io.run(site.client.list(RUNS)).items:
        meta = one["metadata"]
        age = (now - datetime.fromisoformat(meta["creationTimestamp"])).total_seconds()
        if age > TAKEN_IN and not (one.get("status") or {}).get("phase"):
            unseen.append(f"{meta['namespace']}/{meta['name']}")
    if unseen:
        fix = f"run an operator ({DRIVE}), or look at the log of the one that runs"
        yield problem("runs", f"nobody has taken in {some(sorted(unseen))}", fix)
    else:
        yield ok("runs", "every run has been taken in")
