"""A world in which anything may happen, and what must hold after every step of it.

``World.act(kind, luck)`` does one random thing; ``World.check()`` then insists that

- the auditor finds nothing in the new entry, nor in all that is open (SPEC 13),
- the books the engine keeps incrementally equal a count from scratch, exactly,
- a state loaded from an image, and one folded from the entries, equal the live one byte for byte, and decide the next
  thing exactly as it does,
- the world, once settled, writes nothing on one more pass, nor does a state that was rebuilt; when everything is looked
  at anew, nothing but refusals.

A history is named by its seed; a seed that once failed is kept in ``test_machine.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import msgspec

from tenure.api.core import Node, Taint
from tenure.api.policy import Policy
from tenure.api.validate import validate
from tenure.audit import settled_pass_wrote
from tenure.engine import (
    Apply,
    Delete,
    Event,
    Publish,
    Report,
    Reveal,
    SetPolicy,
    Sighting,
    State,
    Tick,
    dump,
    load,
    next_wake,
    step,
)
from tenure.facts import Closed, Decided, Fact, Moved, Noted, Opened, Reserved
from tenure.shell.custodian import SimulatedCustodian
from tenure.shell.home import fold_entry
from tenure.testing import FENCE, FLAVOR, Fleet, namespace, node
from tenure.units import DAY, FOREVER, HOUR, MINUTE
from tests.engine.oracle import PRECEDENCE as CODES
from tests.engine.worlds import OTHER, OWNERS, random_budgets, random_nodes, random_run

KINDS = (
    "submit", "submit", "submit", "edit run", "delete run", "progress", "progress", "progress", "progress", "report",
    "node", "node", "budget", "budget", "drop budget", "policy", "namespace", "time", "time", "wake",
    "reveal", "reveal", "reveal", "reveal",
)  # fmt: skip
PHASES = ("Bound", "Succeeded", "Failed", "Gone", "Placed")


class World:
    """A fleet under attack."""

    def __init__(self, seed: int) -> None:
        luck = Random(seed)
        self.fleet = Fleet(*random_nodes(luck), *random_budgets(luck))
        self.custodian = SimulatedCustodian("soak")
        self.count = 0
        self.fleet.handle(Publish(self.custodian.beacon, self.custodian.root))
        self.settle()

    # -- what may happen --

    def act(self, kind: str, luck: Random) -> None:
        event = self._event(kind, luck)
        if event is None:
            self.settle()
            return
        twin = load(dump(self.fleet.state))
        folded = self._folded() if self.count % 4 == 0 else None
        self.count += 1
        decide = luck.random() < 0.8  # else somebody only records it, and it is decided on later
        outcome = self.fleet.handle(event, decide=decide)
        for other in (twin, folded):
            if other is not None:
                other.head = self.fleet.state.head
                same = step(other, event, now=self.fleet.now, decide=decide)
                assert same == outcome, f"{kind}: the rebuilt state decides otherwise\n{outcome}\n{same}"
                assert dump(other) == dump(self.fleet.state), f"{kind}: the rebuilt state is another one now"
        if decide:
            assert not self.fleet.state.agenda.pending, f"{kind}: something was not decided on"
        self.settled = False
        if decide or luck.random() < 0.5:
            self.settle()

    def _folded(self) -> State:
        """The state that the entries alone give."""
        state = State(self.fleet.state.fleet)
        for entry in self.fleet.entries:
            fold_entry(state, entry)
        return state

    def _event(self, kind: str, luck: Random) -> Event | None:
        fleet = self.fleet
        match kind:
            case "submit":
                wanted = random_run(luck, luck.choice("pqrstuvw"), flavor=FLAVOR if luck.random() < 0.95 else OTHER)
                return self._apply(wanted)
            case "edit run" if fleet.state.runs:
                row = fleet.state.runs[luck.choice(sorted(fleet.state.runs))]
                other = random_run(luck, row.name)
                funding = msgspec.structs.replace(
                    row.run.spec.funding, sponsors=other.spec.funding.sponsors, max_borrow_gpus=None
                )
                if not row.run.spec.funding.allow_borrow:
                    return self._apply(other)
                return self._apply(
                    msgspec.structs.replace(row.run, spec=msgspec.structs.replace(row.run.spec, funding=funding))
                )
            case "delete run" if fleet.state.runs:
                space, _, name = luck.choice(sorted(fleet.state.runs)).partition("/")
                return Delete("Run", name, space)
            case "progress" if fleet.state.pods:
                return self._progress(luck)
            case "report":
                return self._noise(luck)
            case "node":
                return self._node(luck)
            case "budget":
                return Apply((luck.choice(random_budgets(luck)),))
            case "drop budget" if fleet.state.budgets:
                return Delete("Budget", luck.choice(sorted(fleet.state.budgets)))
            case "policy":
                return SetPolicy(
                    Policy(
                        lookahead=luck.choice(("0s", "30m", "1h")),
                        unready_is_failure=luck.random() < 0.5,
                        unready_debounce=luck.choice(("1m", "5m")),
                        notices=luck.choice(((80, 90, 100), (50,), ())),
                        budget_grace=luck.choice(("0s", "15m", "2h")),
                        activation_lead=luck.choice(("0s", "15m", "15m", "3h")),
                        on_budget_shortage=luck.choice(("Resolve", "Resolve", "Resolve", "Coast")),
                        topology_labels=luck.choice(({}, {}, {}, {"domain": "rack"}, {"region": "cluster"})),
                    )
                )
            case "namespace":
                return Apply((namespace("lab", owner=luck.choice(("", "org", *OWNERS[:3]))),))
            case "reveal" if fleet.state.draws:
                subject, froze = luck.choice(sorted(fleet.state.draws.items()))
                value = self.custodian.answer(froze.intent) or ""
                return Reveal(subject, {self.custodian.beacon: value if luck.random() < 0.9 else "0" * 64})
            case "time":
                fleet.until(fleet.now + luck.choice((0, 1, 999_999, MINUTE, HOUR, DAY)))
                return Tick()
            case "wake":
                wake = next_wake(fleet.state)
                fleet.now = max(fleet.now, fleet.now if wake is None else wake)
                return Tick()
        return None

    def _apply(self, wanted: object) -> Event | None:
        assert not validate(wanted), wanted  # type: ignore[arg-type]  # a Run
        key = f"{wanted.metadata.namespace}/{wanted.metadata.name}"  # type: ignore[attr-defined]  # a Run
        return Apply((wanted,), {key: self.fleet.attempts(key)})  # type: ignore[arg-type]  # a Run

    def _progress(self, luck: Random) -> Event:
        """Some pods do what pods do next."""
        sightings = []
        for key in luck.sample(sorted(self.fleet.state.pods), luck.randint(1, len(self.fleet.state.pods))):
            row = self.fleet.state.pods[key]
            if row.stop:
                phase = "Gone"
            elif row.phase == "Placed":
                phase = "Bound" if luck.random() < 0.9 else "Failed"
            else:
                phase = "Succeeded" if luck.random() < 0.8 else "Failed"
            since = luck.choice((None, None, self.fleet.now, self.fleet.now - luck.randint(0, 10**10)))
            code = {"Succeeded": 0, "Failed": luck.randint(1, 3)}.get(phase)
            sightings.append(Sighting(key, phase, code, "", since))  # type: ignore[arg-type]  # a PodPhase
        return Report(tuple(sightings))

    def _noise(self, luck: Random) -> Event:
        """Reports about anything: stale, repeated, out of order, unknown."""
        known = [*sorted(self.fleet.state.pods), "lab/p-a1-0", "lab/q-a1-0", "lab/nobody", "x/y"]
        return Report(
            tuple(
                Sighting(luck.choice(known), luck.choice(PHASES))  # type: ignore[arg-type]  # a PodPhase
                for _ in range(luck.randint(1, 4))
            )
        )

    def _node(self, luck: Random) -> Event | None:
        rows = self.fleet.state.topology.rows
        if not rows or luck.random() < 0.15:
            return Apply((luck.choice(random_nodes(luck)),))
        item = rows[luck.choice(sorted(rows))].node
        match luck.choice(("fence", "delete", "mend", "mend", "mend", "cordon", "unready", "label", "resize", "taint")):
            case "delete":
                return Delete("Node", item.metadata.name)
            case "fence":
                return Apply((_with_spec(item, taints=(FENCE,)),))
            case "cordon":
                return Apply((_with_spec(item, unschedulable=not item.spec.unschedulable),))
            case "taint":
                return Apply((_with_spec(item, taints=(Taint(key="old", effect="NoSchedule"),)),))
            case "unready":
                status = msgspec.structs.replace(item.status, conditions=node("x", ready=False).status.conditions)
                return Apply((msgspec.structs.replace(item, status=status),))
            case "label":
                labels = {**item.metadata.labels, "fabric.domain": luck.choice(("A", "B", ""))}
                return Apply(
                    (msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, labels=labels)),)
                )
            case "resize":
                size = luck.choice(("0", "2", "8", "12", "many"))
                status = msgspec.structs.replace(item.status, allocatable={"nvidia.com/gpu": size})
                return Apply((msgspec.structs.replace(item, status=status),))
            case _:
                status = msgspec.structs.replace(item.status, conditions=())
                return Apply(
                    (msgspec.structs.replace(_with_spec(item, taints=(), unschedulable=False), status=status),)
                )

    # -- what must hold --

    def settle(self) -> None:
        """Let due timers fire; then nothing more happens by itself."""
        wrote: tuple[Fact, ...] = ()
        for _ in range(16):
            wake = next_wake(self.fleet.state)
            wrote = self.fleet.handle(Tick()).facts
            if not wrote and (wake is None or wake > self.fleet.now):
                self.settled = True
                return
        raise AssertionError(f"the world does not settle {settled_pass_wrote(wrote, at=self.fleet.now)}")

    def check(self) -> None:
        self.fleet.audit(settled=self.settled)
        fresh = load(dump(self.fleet.state))
        assert dump(fresh) == dump(self.fleet.state)
        if self.settled:
            again = step(fresh, Tick(), now=self.fleet.now)
            wrote = settled_pass_wrote(again.facts, at=self.fleet.now)
            assert not wrote, f"rebuilt, the world writes {wrote}"
            assert not again.looked, "rebuilt, the world looks at something again"
            fresh.mark_all()
            anew = _news(step(fresh, Tick(), now=self.fleet.now).facts)
            assert not anew, f"looked at anew, the world writes {anew}"
        self._count_money()
        self._count_slots()
        self._count_runs()

    def _count_money(self) -> None:
        """Every meter, from every lease there ever was."""
        now, books = self.fleet.state.now, self.fleet.state.books
        mine = {(*key, *fund.window): fund.total.used(now) for key, fund in books.funds.items()}
        mine |= {(*key, *window): line[0] for (key, window), line in books.accounts.items()}
        theirs = {
            (budget, name, start or 0, FOREVER if end is None else end): used
            for (budget, name, start, end), used in self.fleet.auditor.charges(now).items()
        }
        for key in mine.keys() | theirs.keys():
            assert mine.get(key, 0) == theirs.get(key, 0), (
                f"{key}: {mine.get(key, 0)} kept, {theirs.get(key, 0)} counted"
            )
        held, spare, lent, ahead, lent_ahead = (Counter[tuple[str, str]]() for _ in range(5))
        for lease in self.fleet.leases():
            key, gpus = (lease.budget, lease.envelope), len(lease.gpus)
            is_leaving = lease.key in self.fleet.state.ending
            left = 0 if is_leaving else gpus * max(0, (lease.until or 0) - now)
            held[key] += gpus
            ahead[key] += left
            spare[key] += gpus if lease.role == "Spare" else 0
            lent[key] += gpus if lease.funding == "borrowed" else 0
            lent_ahead[key] += left if lease.funding == "borrowed" else 0
        for key, fund in books.funds.items():
            kept = (fund.total.rate, fund.spare.rate, fund.lent.rate, fund.ahead.ahead(now), fund.lent_ahead.ahead(now))
            assert kept == (held[key], spare[key], lent[key], ahead[key], lent_ahead[key]), key

    def _count_slots(self) -> None:
        """Every ordinal, and every index over free GPUs."""
        topology = self.fleet.state.topology
        for name, row in topology.rows.items():
            held = {gpu for lease in self.fleet.leases() if lease.node == name for gpu in lease.gpus}
            assert row.held == sum(1 << gpu for gpu in held), name
            assert not row.tentative, name
        for flavor in topology.flavors():
            for location in topology.locations(flavor):
                pool = topology.pool(flavor, location, ())
                rows = [row for row in topology.rows.values()
                        if row.site and (row.site.flavor, row.site.location) == (flavor, location)]  # fmt: skip
                free = {(row.site.fabric, row.name): row.free() for row in rows if row.site and row.free()}
                kept = {
                    (fabric, name[1]): size for fabric, one in pool.domains.items() for name, size in one.seen.items()
                }
                assert kept == free
                assert pool.free == sum(free.values())

    def _count_runs(self) -> None:
        """What each run has used, by class and payer."""
        now = self.fleet.state.now
        used: Counter[tuple[str, str, str, str]] = Counter()
        leases = {}
        for fact in self.fleet.facts:
            if isinstance(fact, Opened):
                leases[fact.lease.key] = fact.lease
            elif isinstance(fact, Closed):
                for name in fact.leases:
                    lease = leases.pop(f"{fact.namespace}/{name}")
                    used[lease.run_key, lease.uid, lease.funding, lease.payer] += len(lease.gpus) * (
                        fact.end - lease.start
                    )
        for lease in leases.values():
            used[lease.run_key, lease.uid, lease.funding, lease.payer] += len(lease.gpus) * (now - lease.start)
        for key, row in self.fleet.state.runs.items():
            for (funding, payer), meter in row.meters.items():
                assert meter.used(now) == used[key, row.run.metadata.uid, funding, payer], key


def _news(facts: Iterable[Fact]) -> list[Fact]:
    """Facts without the renewal of refusals and of forecasts.

    When a run starts, others that wait on for another reason than before are not all looked at again (that would cost
    the length of the queue), so a state that is made to look at everything anew may word some refusals afresh, and see
    who would give way, or who overstays, with the eyes of now. It starts and stops nothing.
    """
    return [
        fact
        for fact in facts
        if not (isinstance(fact, Decided) and fact.verdict.outcome != "start")
        and not (isinstance(fact, Moved) and fact.life.phase == "Pending" and fact.life.reason in (*CODES, "Protected"))
        and not (isinstance(fact, Noted) and fact.kind in ("Waiting", "Blocked", "ReservationBlocked", "Reserved"))
        and not isinstance(fact, Reserved)
        and not (isinstance(fact, Noted) and fact.kind == "StartMoved")
    ]


def _with_spec(item: Node, **fields: object) -> Node:
    return msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, **fields))


def soak(seed: int, *, steps: int) -> World:
    """One history."""
    luck = Random(f"history {seed}")
    world = World(seed)
    for index in range(steps):
        kind = luck.choice(KINDS)
        world.act(kind, Random(f"{seed} {index}"))
        world.check()
    return world
