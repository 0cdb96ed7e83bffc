"""The best plan there is, by constraint solver (ortools CP-SAT): what SPEC 4 and 5 allow, and no procedure.

``best(world, width)`` takes the oracle's reading of a small world (nodes, accounts, limits) and asks the solver for a
plan of that width with the fewest borrowed GPUs and, among those, the fewest domains. A group stays in a domain and is
paid by envelopes whose selectors match its nodes; the run stays in a cluster, and in a domain if it may not spread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ortools.sat.python import cp_model

from tenure.units import HOUR
from tests.engine import oracle

Term = Any
"""A variable of the solver, or a sum of some."""


@dataclass(frozen=True)
class Best:
    borrowed: int
    domains: int


def best(world: oracle.World, width: int, *, payers: list[oracle.Candidate]) -> Best | None:
    """The optimum, or None if there is no plan at all."""
    clusters = sorted({one.cluster for one in world.machines})
    plans = [plan for cluster in clusters if (plan := _Model(world, width, cluster, payers).solve())]
    return min(plans, key=lambda plan: (plan.borrowed, plan.domains), default=None)


@dataclass
class _Model:
    """One run in one cluster."""

    world: oracle.World
    width: int
    cluster: str
    payers: list[oracle.Candidate]
    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)

    def __post_init__(self) -> None:
        wanted = self.world.run.spec.locality.selector.items()
        self.machines = [
            one
            for one in self.world.machines
            if one.cluster == self.cluster and all(one.labels.get(key) == value for key, value in wanted)
        ]
        self.domains = sorted({(one.location, one.fabric) for one in self.machines})
        self.used = {domain: self.model.new_bool_var("") for domain in self.domains}

    def solve(self) -> Best | None:
        if not self.machines or not self.payers:
            return None
        cut = self.world.cut(self.width)
        if self.world.group:
            sizes = [self.world.unit] * cut.full + [self.width % self.world.unit] * cut.tail
            takes = [self.group(size) for size in sizes]
        else:
            takes = [self.chunk(domain) for domain in self.domains]
            self.model.add(sum(sum(take.values()) for take in takes) == self.width)
        for one in self.machines:
            self.model.add(sum(take.get(one.name, 0) for take in takes) <= len(one.free))
        if not self.world.spread:
            self.model.add(sum(self.used.values()) <= 1)
        borrowed = self.money(takes)
        self.model.minimize(borrowed * 1000 + sum(self.used.values()))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        status = solver.solve(self.model)
        assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE), solver.status_name(status)
        if status == cp_model.INFEASIBLE:
            return None
        return Best(solver.value(borrowed), sum(solver.value(one) for one in self.used.values()))

    def group(self, size: int) -> dict[str, Term]:
        """A whole group and its spares in one domain: GPUs by node."""
        model, world = self.model, self.world
        home = {domain: model.new_bool_var("") for domain in self.domains}
        model.add(sum(home.values()) == 1)
        active, spare = {}, {}
        for one in self.machines:
            domain = (one.location, one.fabric)
            pods = model.new_int_var(0, len(one.free) // world.pod, "")
            spare[one.name] = model.new_int_var(0, min(len(one.free), world.spares), "")
            active[one.name] = pods * world.pod
            model.add(pods + spare[one.name] == 0).only_enforce_if(~home[domain])
            model.add_implication(home[domain], self.used[domain])
        model.add(sum(active.values()) == size)
        model.add(sum(spare.values()) == world.spares)
        return {one.name: active[one.name] + spare[one.name] for one in self.machines}

    def chunk(self, domain: tuple[tuple[str, str], str]) -> dict[str, Term]:
        """Without groups: any pods of one domain."""
        takes = {}
        for one in self.machines:
            if (one.location, one.fabric) == domain:
                pods = self.model.new_int_var(0, len(one.free) // self.world.pod, "")
                self.model.add(pods == 0).only_enforce_if(~self.used[domain])
                takes[one.name] = pods * self.world.pod
        return takes

    def money(self, takes: list[dict[str, Term]]) -> Term:
        """Every GPU has a payer whose selector matches its group's nodes, and every limit holds."""
        model = self.model
        given: list[list[Term]] = [[] for _ in self.payers]
        # Without groups several chunks may share a domain, so there a payer needs to match its own nodes only.
        if self.world.group:
            wholes = takes if self.world.spread else [_joined(takes)]
        else:
            wholes = [{name: gpus} for take in takes for name, gpus in take.items()]
            wholes = wholes if self.world.spread else [_joined(takes)]
        for take in wholes:
            paid = [model.new_int_var(0, 1000, "") for _ in self.payers]
            model.add(sum(paid) == sum(take.values()))
            for payer, amount, sums in zip(self.payers, paid, given, strict=True):
                sums.append(amount)
                pays = model.new_bool_var("")
                model.add(amount == 0).only_enforce_if(~pays)
                for one in self.machines:
                    if one.name in take and not _matches(payer, one):
                        model.add(take[one.name] == 0).only_enforce_if(pays)
        return self.limits([sum(sums) for sums in given])

    def limits(self, given: list[Term]) -> Term:
        model, world = self.model, self.world
        lent = [gpus for gpus, one in zip(given, self.payers, strict=True) if one.funding == "borrowed"]
        most = world.run.spec.funding.max_borrow_gpus
        if most is not None:
            model.add(sum(lent) <= most)
        for gpus, payer in zip(given, self.payers, strict=True):
            for code, room in world.limits(payer, [], rested=False):
                if code != "AggregateCapExceeded":
                    model.add(gpus <= max(0, room))
        for budget in world.budgets:
            for cap in budget.spec.aggregate_caps:
                members = [world.account(budget.metadata.name, name) for name in cap.envelopes]
                total = sum(gpus for gpus, one in zip(given, self.payers, strict=True) if one.account in members)
                if cap.max_concurrency is not None:
                    model.add(total <= max(0, cap.max_concurrency - sum(one.held for one in members)))
                if cap.max_gpu_hours is not None:
                    left = cap.max_gpu_hours * HOUR - sum(one.used + one.ahead for one in members)
                    model.add(total <= max(0, left // world.period))
        return sum(lent)


def _joined(takes: Iterable[dict[str, Term]]) -> dict[str, Term]:
    out: dict[str, Term] = {}
    for take in takes:
        for name, gpus in take.items():
            out[name] = out[name] + gpus if name in out else gpus
    return out


def _matches(payer: oracle.Candidate, machine: oracle.Machine) -> bool:
    return all(machine.labels.get(key) == value for key, value in payer.account.terms.selector.items())
