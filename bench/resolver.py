"""Promise: what the resolver costs grows no faster than linearly in the leases of its scope (exponent at most 1.15 from
100 to 10,000 conflicting groups), and not with the fleet around it.

The scope is one domain, full of groups of 2 GPUs: three tenths belong to elastic runs, most of them above the minimum,
one tenth have a spare beside them, the rest are runs of four that only a lottery can end. A run was promised more than
two thirds of the domain, and nothing but cuts can free that. Measured are the dry run that finds the cuts, and a whole
activation: its start has come, so plan, dry run, odds of all who are in the pool, freeze, and (once the custodian has
revealed) the cuts themselves. The state is put back each time from its image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import log
from pathlib import Path

from bench.crowd import NAMESPACE, Crowd, Size, ask, domain_name
from bench.measure import Stopwatch, Took, in_turns
from bench.result import Row, Scale
from tenure.api.policy import Policy
from tenure.api.run import Malleable, Run
from tenure.engine import Publish, Reveal, Tick, dump, load, step
from tenure.engine.activation import Target, parse_domains
from tenure.engine.cuts import resolve
from tenure.facts import Closed, Ending, Froze
from tenure.shell.custodian import SimulatedCustodian
from tenure.units import HOUR, parse_duration

NAME = "resolver"
GOAL, FLEET_GOAL = 1.15, 1.5
_FEW = 100
_MANY = {"full": 10_000, "quick": 10_000, "tiny": 400}
_POLICY = Policy(patience="1h", activation_lead="15m")
_TARGET = "target"
Repeat = Callable[["Bed", int], Took]


class Bed:
    """A full domain with so many groups, and a run whose start on cuts is due."""

    def __init__(self, groups: int, *, domains: int = 1) -> None:
        size = Size(domains=domains, nodes=-(-22 * groups // 80), gpus=8)
        crowd = Crowd(size, _POLICY)
        self.custodian = SimulatedCustodian("bench")
        crowd.home.handle(Publish(self.custodian.beacon, self.custodian.root), now=crowd.now)
        for domain in range(domains):
            crowd.start(list(_groups(groups, domain)))
        crowd.now += HOUR
        gpus = 3 * groups // 2
        crowd.promise([ask(_TARGET, gpus, spread=False, domain=domain_name(0))])
        one = crowd.state.reservations[f"{NAMESPACE}/{_TARGET}"]
        assert one.confidence == "conservative", one.message
        assert one.plan.start is not None
        self.now, self.due, self.state = crowd.now, one.plan.start, crowd.state
        self.domains = parse_domains(one.plan.domains)
        self.image = dump(crowd.state)

    def dry_run(self, number: int) -> Took:
        row = self.state.runs[f"{NAMESPACE}/{_TARGET}"]
        self.state.timeline.remove_claim(row.key)  # what a run was promised does not stand in its own way
        target = Target(self.state, row, self.domains, now=self.now, at=self.due)
        lead = parse_duration(_POLICY.activation_lead)
        with Stopwatch() as watch:
            found = resolve(self.state, target.scope, target.enough, now=self.due, lead=lead, today=self.now)
        self.state.claim(self.state.reservations[row.key])
        assert found is not None, "enough can be cut"
        assert found.tokens, "a lottery is needed"
        return watch.took

    def activation(self, number: int) -> Took:
        state = load(self.image)
        state.look_ahead(self.now)
        with Stopwatch() as watch:
            facts = step(state, Tick(), now=self.due).facts
            froze = next(fact for fact in facts if isinstance(fact, Froze))
            reveal = self.custodian.answer(froze.intent)
            assert reveal is not None
            facts = step(state, Reveal(froze.subject, {self.custodian.beacon: reveal}), now=self.due).facts
        assert any(isinstance(fact, Closed | Ending) for fact in facts), "somebody gives way"
        return watch.took


def run(scale: Scale, folder: Path) -> list[Row]:
    many = _MANY[scale.name]
    rounds = 1 if scale.name == "tiny" else 3
    beds = {_FEW: Bed(_FEW), many: Bed(many)}
    rows = [_growth("dry run", Bed.dry_run, beds, rounds), _growth("whole activation", Bed.activation, beds, rounds)]
    alone, among = Bed(_FEW), Bed(_FEW, domains=10)
    rows += [_fleet("dry run", Bed.dry_run, alone, among, rounds),
             _fleet("whole activation", Bed.activation, alone, among, rounds)]  # fmt: skip
    return rows


def _growth(what: str, repeat: Repeat, beds: dict[int, Bed], rounds: int) -> Row:
    few, many = sorted(beds)
    times = in_turns({str(count): partial(repeat, bed) for count, bed in beds.items()}, rounds=rounds)
    exponent = log(times.ratio(str(many), str(few), "cpu")) / log(many / few)
    millis = {f"ms_at_{count}": round(times.median(str(count), "cpu") * 1e3, 2) for count in (few, many)}
    return Row(bench=NAME, what=f"{what}, {many:,} groups against {few}: exponent", measured=exponent, unit="",
               goal=GOAL, detail=millis)  # fmt: skip


def _fleet(what: str, repeat: Repeat, alone: Bed, among: Bed, rounds: int) -> Row:
    times = in_turns({"alone": partial(repeat, alone), "among": partial(repeat, among)}, rounds=rounds)
    millis = {f"ms_{side}": round(times.median(side, "cpu") * 1e3, 2) for side in ("alone", "among")}
    return Row(bench=NAME, what=f"{what} of {_FEW} groups, in a fleet ten times as large",
               measured=times.ratio("among", "alone", "cpu"), goal=FLEET_GOAL, detail=millis)  # fmt: skip


def _groups(count: int, domain: int) -> Iterator[Run]:
    """What fills a domain: so many groups of 2 GPUs, some with a spare."""
    name = domain_name(domain)
    for index in range(count * 3 // 10 // 8):
        yield ask(f"wide-{domain}-{index:05d}", 16, group=2, domain=name,
                  elastic=Malleable(min_total_gpus=4, max_total_gpus=16, step_gpus=2))  # fmt: skip
    for index in range(count // 10 // 4):
        yield ask(f"spare-{domain}-{index:05d}", 8, group=2, spares=1, domain=name)
    for index in range(count * 6 // 10 // 4):
        yield ask(f"gang-{domain}-{index:05d}", 8, group=2, domain=name)
