"""Where a run goes and who pays, by looking at everything: the written rules (SPEC 4 and 5) without an index.

    answer = plan(nodes, open_leases, budgets, usage_leases, run, now, policy)

``nodes`` are all Node objects, ``open_leases`` the open leases (``tenure.facts.Lease``), ``budgets`` the Budgets in
force, ``usage_leases`` pairs (lease, end) of every lease that counts in the window in force, open ones with end None
(every open lease must be among them), ``run`` a defaulted Run that holds nothing yet, ``now`` an instant and
``policy`` the Policy. The answer is a ``Placement`` or a ``Refusal``. Nothing is kept between calls, nothing is
shared with the engine, and every question is answered by sorting a whole list.

The reading of the rules, in the order in which they decide:

1.  Widths from the widest; for each the circle of payers grows: the owner, the family, everybody.
2.  An *offer* is the nodes of one location that a set of payers may pay for: the location narrowed by a consistent
    combination of its payers' selectors. An offer that can pay all is tried: fewest borrowed GPUs, then most owned; of
    equals that fit the fewest domains, the least residue, the name.
3.  If no offer carries it with as few borrowed GPUs, and groups may be spread, the offers of one cluster are combined,
    those with the most payable first, family money everywhere before borrowed money: once with payers in the order of
    the walk and, if that borrows or fails, once with those first whose money is of no use in a later offer; the fewest
    borrowed GPUs win. The smaller last group waits until all others are placed.
4.  Domains: one that holds all that is left, the tightest; else one that holds the most groups, the tightest of those.
    Tightness is counted in GPUs usable for pods of the run's width. Ties by name.
5.  Nodes: one that holds all that is left, the tightest; else one that gives the most, the tightest of those. Ties by
    rack and name. All groups' active parts first, then spares, beside their own group's nodes while that is possible.
6.  Payers pay in the order of the walk, groups in order, active before spare; ordinals from the lowest.
7.  A refusal is ``never`` if money or machines could not suffice even if nobody else used them, else ``wait``. Its
    code names machines if money was there, else the most decisive limit of any envelope visited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from tenure.api.budget import Budget, Envelope
from tenure.api.core import Node
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.facts import Lease
from tenure.units import FOREVER, HOUR, Instant, parse_duration, parse_time

PRECEDENCE = (
    "InvalidRequest", "BorrowLimit", "AggregateCapExceeded", "IntegralCapExceeded", "LendingCapExceeded",
    "ConcurrencyCapExceeded", "ACLDenied", "SharingOptOut", "WindowClosed", "NoEnvelope",
    "NoNodes", "TooLarge", "PayersApart", "NoCapacity", "Fragmented", "SpreadForbidden",
)  # fmt: skip
KEYS = {
    "region": ("region", "topology.kubernetes.io/region"),
    "cluster": ("cluster", "topology.kubernetes.io/zone"),
    "domain": ("fabric.domain",),
    "rack": ("rack", "topology.kubernetes.io/rack"),
    "flavor": ("gpu.flavor", "nvidia.com/gpu.product"),
}
ENDLESS = 2**53
FINE_MAX = 4
"""Finer selectors whose every combination is an offer; of more, each alone and all together."""


@dataclass(frozen=True)
class Leased:
    """GPUs of one node, one role, one payer, in one group."""

    group: int
    domain: str
    node: str
    ordinals: tuple[int, ...]
    role: str
    budget: str
    envelope: str
    funding: str


@dataclass(frozen=True)
class Placed:
    """One pod."""

    rank: int
    group: int
    node: str
    ordinals: tuple[int, ...]


@dataclass(frozen=True)
class Placement:
    width: int
    leases: tuple[Leased, ...]
    pods: tuple[Placed, ...]


@dataclass(frozen=True)
class Refusal:
    outcome: str
    code: str


@dataclass
class Machine:
    name: str
    labels: dict[str, str]
    region: str
    cluster: str
    fabric: str
    rack: str
    gpus: int
    free: list[int]

    @property
    def location(self) -> tuple[str, str]:
        return self.region, self.cluster


@dataclass
class Account:
    """One envelope: its terms, and what was found to be charged to it."""

    budget: str
    owner: str
    terms: Envelope
    held: int = 0
    lent: int = 0
    used: int = 0
    ahead: int = 0
    lent_used: int = 0
    lent_ahead: int = 0
    caps: list[tuple[str, int | None, int | None, tuple[str, ...]]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        return self.budget, self.terms.name

    @property
    def start(self) -> Instant:
        return parse_time(self.terms.start) if self.terms.start else 0

    @property
    def end(self) -> Instant:
        return parse_time(self.terms.end) if self.terms.end else FOREVER

    def lends_to(self, owner: str) -> bool:
        lending = self.terms.lending
        return lending is not None and lending.allow and any(acl(one, owner) for one in lending.to)


@dataclass(frozen=True)
class Candidate:
    account: Account = field(hash=False, compare=False)
    funding: str
    bar: str


@dataclass(frozen=True)
class Offer:
    location: tuple[str, str]
    selector: tuple[tuple[str, str], ...]
    payers: tuple[Candidate, ...] = field(hash=False, compare=False)

    @property
    def where(self) -> str:
        fine = ",".join(f"{key}={value}" for key, value in self.selector)
        return "/".join(self.location) + (f" [{fine}]" if fine else "")


@dataclass(frozen=True)
class Cut:
    """Groups still to be placed: full ones, and perhaps a smaller last one."""

    full: int
    tail: bool


@dataclass
class Group:
    fabric: str
    active: list[tuple[Machine, int]]
    spares: list[tuple[Machine, int]] = field(default_factory=list)

    @property
    def width(self) -> int:
        return sum(gpus for _, gpus in self.active)

    @property
    def gpus(self) -> int:
        return self.width + sum(gpus for _, gpus in self.spares)


Payment = tuple[Candidate, int]


@dataclass
class Part:
    groups: list[Group]
    money: list[Payment]


@dataclass
class Found:
    parts: list[Part]
    domains: int
    residue: int
    where: str

    @property
    def borrowed(self) -> int:
        return sum(owed(part.money, "borrowed") for part in self.parts)


def plan(
    nodes: Iterable[Node],
    open_leases: Iterable[Lease],
    budgets: Iterable[Budget],
    usage_leases: Iterable[tuple[Lease, Instant | None]],
    run: Run,
    now: Instant,
    policy: Policy,
) -> Placement | Refusal:
    """The answer for one run; see the module for what is given and what comes back."""
    world = World(list(nodes), list(open_leases), list(budgets), list(usage_leases), run, now, policy)
    for width in world.widths():
        for circle in ("owner", "family", "everybody"):
            found = world.search(width, circle)
            if found is not None:
                return world.bind(width, found)
    return world.refuse(world.widths()[-1])


class World:
    """Everything that was given, read once."""

    def __init__(
        self,
        nodes: list[Node],
        open_leases: list[Lease],
        budgets: list[Budget],
        usage: list[tuple[Lease, Instant | None]],
        run: Run,
        now: Instant,
        policy: Policy,
    ) -> None:
        self.run, self.now, self.policy, self.budgets = run, now, policy, budgets
        spec = run.spec
        self.group = spec.locality.group_gpus or (spec.malleable.step_gpus if spec.malleable else 0)
        self.pod = spec.resources.gpus_per_pod or 1
        self.unit = self.group or self.pod
        self.spares = spec.spares_per_group
        self.spread = spec.locality.allow_cross_group_spread
        self.flavor = spec.resources.gpu_type
        expected = spec.runtime.expected_duration
        self.duration = parse_duration(expected) if expected else None
        self.period = self.duration or max(1, parse_duration(policy.lookahead))
        self.machines = [one for node in nodes if (one := self.machine(node, open_leases, idle=False))]
        self.idle = [one for node in nodes if (one := self.machine(node, [], idle=True))]
        self.accounts = self.count(usage)
        self.faults: list[str] = []

    def widths(self) -> list[int]:
        total, elastic = self.run.spec.resources.total_gpus, self.run.spec.malleable
        if elastic is None:
            return [total]
        top = min(total, elastic.desired_total_gpus or elastic.max_total_gpus)
        return list(range(top, elastic.min_total_gpus - 1, -elastic.step_gpus))

    def cut(self, width: int) -> Cut:
        return Cut(width // self.unit, bool(width % self.unit))

    def need(self, cut: Cut, width: int) -> int:
        """GPUs that are charged: active and spare."""
        return cut.full * self.unit + (width % self.unit if cut.tail else 0) + self.spares * (cut.full + cut.tail)

    # -- machines --

    def machine(self, node: Node, leases: list[Lease], *, idle: bool) -> Machine | None:
        """A node of the right flavor that understands its labels; if not ``idle``, one that takes work."""
        count = node.status.allocatable.get(self.policy.gpu_resource, "0")
        labels, told = dict(node.metadata.labels), {}
        for what, keys in KEYS.items():
            configured = self.policy.topology_labels.get(what)
            told[what] = next((labels[key] for key in (configured, *keys) if key and labels.get(key)), "")
            if told[what]:
                labels.setdefault(keys[0], told[what])
        complete = all(told[what] for what in ("region", "cluster", "domain", "flavor"))
        if not (count.isascii() and count.isdigit() and 0 < int(count) <= 1024 and complete):
            return None
        if told["flavor"] != self.flavor or not (idle or takes_work(node)):
            return None
        held = {
            ordinal
            for lease in leases
            if lease.node == node.metadata.name and lease.role != "Borrowed"
            for ordinal in lease.gpus
        }
        free = [ordinal for ordinal in range(int(count)) if ordinal not in held]
        return Machine(node.metadata.name, labels, told["region"], told["cluster"], told["domain"], told["rack"],
                       int(count), free)  # fmt: skip

    def nodes_of(self, offer: Offer, machines: list[Machine], taken: dict[str, int]) -> dict[str, dict[str, int]]:
        """Free GPUs of an offer's nodes, by domain and node, less what this plan has taken already."""
        domains: dict[str, dict[str, int]] = {}
        for one in machines:
            if one.location == offer.location and all(one.labels.get(key) == value for key, value in offer.selector):
                left = len(one.free) - taken.get(one.name, 0)
                if left > 0:
                    domains.setdefault(one.fabric, {})[one.name] = left
        return domains

    # -- money --

    def count(self, usage: list[tuple[Lease, Instant | None]]) -> list[Account]:
        accounts = []
        for budget in self.budgets:
            for envelope in budget.spec.envelopes:
                account = Account(budget.metadata.name, budget.spec.owner, envelope)
                account.caps = [
                    (cap.name, cap.max_concurrency, cap.max_gpu_hours, cap.envelopes)
                    for cap in budget.spec.aggregate_caps
                    if envelope.name in cap.envelopes
                ]
                for lease, end in usage:
                    if (lease.budget, lease.envelope) == account.key:
                        self.charge(account, lease, end)
                accounts.append(account)
        return accounts

    def charge(self, account: Account, lease: Lease, end: Instant | None) -> None:
        gpus, lent = len(lease.gpus), lease.funding == "borrowed"
        used = gpus * ((self.now if end is None else end) - lease.start)
        ahead = gpus * max(0, (lease.until or 0) - self.now) if end is None else 0
        account.used += used
        account.ahead += ahead
        account.held += gpus if end is None else 0
        if lent:
            account.lent_used += used
            account.lent_ahead += ahead
            account.lent += gpus if end is None else 0

    def account(self, budget: str, envelope: str) -> Account:
        return next(one for one in self.accounts if one.key == (budget, envelope))

    def limits(self, candidate: Candidate, taken: list[Payment], *, rested: bool) -> Iterator[tuple[str, int]]:
        """Each limit, and the GPUs it leaves after ``taken``; ``rested``: as if nobody held or planned anything."""
        account, terms, busy = candidate.account, candidate.account.terms, not rested
        if candidate.funding == "borrowed":
            lent = sum(gpus for one, gpus in taken if one.account is account and one.funding == "borrowed")
            most = self.run.spec.funding.max_borrow_gpus
            if most is not None:
                yield "BorrowLimit", most - owed(taken, "borrowed")
            assert terms.lending is not None
            if terms.lending.max_concurrency is not None:
                yield "LendingCapExceeded", terms.lending.max_concurrency - busy * account.lent - lent
            if terms.lending.max_gpu_hours is not None:
                spent = account.lent_used + busy * account.lent_ahead
                yield "LendingCapExceeded", (terms.lending.max_gpu_hours * HOUR - spent) // self.period - lent
        for _, concurrency, hours, names in account.caps:
            members = [self.account(account.budget, name) for name in names]
            mine = sum(gpus for one, gpus in taken if one.account in members)
            if concurrency is not None:
                yield "AggregateCapExceeded", concurrency - busy * sum(one.held for one in members) - mine
            if hours is not None:
                spent = self.used_together(members) + busy * sum(one.ahead for one in members)
                yield "AggregateCapExceeded", (hours * HOUR - spent) // self.period - mine
        mine = sum(gpus for one, gpus in taken if one.account is account)
        if terms.max_gpu_hours is not None:
            spent = account.used + busy * account.ahead
            yield "IntegralCapExceeded", (terms.max_gpu_hours * HOUR - spent) // self.period - mine
        yield "ConcurrencyCapExceeded", terms.concurrency - busy * account.held - mine

    def used_together(self, members: list[Account]) -> int:
        return sum(one.used for one in members)

    def pay(
        self, payers: Iterable[Candidate], gpus: int, taken: list[Payment], *, rested: bool = False
    ) -> tuple[list[Payment], int]:
        """Take from each in turn; what was taken comes back, and the GPUs that nobody pays for."""
        paid: list[Payment] = []
        for one in payers:
            room = min(room for _, room in self.limits(one, [*taken, *paid], rested=rested))
            take = min(gpus, max(0, room))
            if take:
                paid.append((one, take))
                gpus -= take
        return paid, gpus

    # -- the walk --

    def walk(self, circle: str) -> list[Candidate]:
        out: list[Candidate] = []
        for funding, owners in self.relations(circle):
            here = [one for one in self.accounts if one.owner in owners and one.terms.flavor == self.flavor]
            for account in sorted(here, key=lambda one: (one.end, one.key)):
                seen = [one.bar for one in out if one.account is account]
                if all(bar == "SharingOptOut" for bar in seen):
                    out.append(Candidate(account, funding, self.bar(account, funding)))
        return out

    def relations(self, circle: str) -> Iterator[tuple[str, set[str]]]:
        owner, funding = self.run.spec.owner, self.run.spec.funding
        parents = self.parents(owner)
        siblings = {child for parent in parents for child in self.children(parent)} - {owner}
        yield "owned", {owner}
        if circle == "owner":
            return
        yield "shared", siblings
        yield "shared", parents
        if circle == "family" or not funding.allow_borrow or not funding.sponsors:
            return
        for sponsor in dict.fromkeys(funding.sponsors):
            yield "borrowed", {sponsor}
        seen, level = {owner} | parents, parents
        while level:
            level = {above for one in level for above in self.parents(one)} - seen
            seen |= level
            yield "borrowed", level
        aunts = {child for parent in parents for above in self.parents(parent) for child in self.children(above)}
        cousins = {child for aunt in aunts - parents for child in self.children(aunt)}
        yield "borrowed", cousins - {owner} - parents - siblings

    def parents(self, owner: str) -> set[str]:
        return {parent for budget in self.budgets if budget.spec.owner == owner for parent in budget.spec.parents}

    def children(self, owner: str) -> set[str]:
        return {budget.spec.owner for budget in self.budgets if owner in budget.spec.parents}

    def bar(self, account: Account, funding: str) -> str:
        if funding == "borrowed" and not account.lends_to(self.run.spec.owner):
            return "ACLDenied"
        if funding == "shared" and account.terms.sharing != "Family":
            return "SharingOptOut"
        is_open = account.start <= self.now or account.terms.pre_activation.allow_admission
        lasts = self.now + (self.duration or 0)
        return "" if is_open and self.now < account.end and lasts <= account.end else "WindowClosed"

    # -- offers --

    def offers(self, payers: list[Candidate]) -> list[Offer]:
        region, cluster, wanted = coarse(dict(self.run.spec.locality.selector), self.policy)
        out = []
        for location in sorted({one.location for one in self.idle_or_not()}):
            if region not in (None, location[0]) or cluster not in (None, location[1]):
                continue
            here = []
            for one in payers:
                at_region, at_cluster, fine = coarse(dict(one.account.terms.selector), self.policy)
                if at_region in (None, location[0]) and at_cluster in (None, location[1]):
                    here.append((one, fine))
            for selector in narrowings(wanted, sorted({fine for _, fine in here if fine})):
                able = tuple(one for one, fine in here if set(fine) <= set(selector))
                if able:
                    out.append(Offer(location, selector, able))
        return out

    def idle_or_not(self) -> list[Machine]:
        """A location is there as long as it has a node, whatever that node's state."""
        return self.idle

    # -- the search --

    def search(self, width: int, circle: str) -> Found | None:
        self.faults = []
        offers = self.offers([one for one in self.walk(circle) if not one.bar])
        found = self.single(width, offers)
        if circle != "owner" and self.spread and len(offers) > 1 and (found is None or found.borrowed):
            combined = self.combined(width, offers)
            if combined is not None and (found is None or combined.borrowed < found.borrowed):
                return combined
        return found

    def single(self, width: int, offers: list[Offer]) -> Found | None:
        cut = self.cut(width)
        need = self.need(cut, width)
        fits: list[tuple[tuple[int, int, int, int, str], Found]] = []
        for offer in offers:
            money, unpaid = self.pay(offer.payers, need, [])
            if unpaid:
                continue
            domains = self.nodes_of(offer, self.machines, {})
            groups, left = self.fill(domains, cut, width)
            if left is not None:
                self.faults.append(self.fault(domains, need))
                continue
            used = {group.fabric for group in groups}
            residue = sum(sum(domains[fabric].values()) for fabric in used) - need
            found = Found([Part(groups, money)], len(used), residue, offer.where)
            key = (owed(money, "borrowed"), -owed(money, "owned"), len(used), residue, offer.where)
            fits.append((key, found))
        return min(fits, key=lambda one: one[0])[1] if fits else None

    def combined(self, width: int, offers: list[Offer]) -> Found | None:
        found = []
        for cluster in sorted({offer.location[1] for offer in offers}):
            here = [offer for offer in offers if offer.location[1] == cluster]
            if len(here) > 1:
                both = [self.combine(width, cluster, here, thrifty=thrifty) for thrifty in (False, True)]
                found += sorted((one for one in both if one), key=lambda one: one.borrowed)[:1]
                if not any(both):
                    self.note_combined(here, width)
        return min(found, key=lambda one: (one.borrowed, one.domains, one.residue, one.where), default=None)

    def combine(self, width: int, cluster: str, offers: list[Offer], *, thrifty: bool) -> Found | None:
        left: Cut | None = self.cut(width)
        assert left is not None
        whole = self.need(left, width)

        def preference(offer: Offer) -> tuple[int, int, int, str]:
            money, _ = self.pay(offer.payers, whole, [])
            return -owed(money, "owned"), -owed(money, "shared"), -owed(money, "borrowed"), offer.where

        parts: list[Part] = []
        spent: list[Payment] = []
        taken: dict[str, int] = {}
        used: set[tuple[tuple[str, str], str]] = set()
        residue = 0
        for borrowing in (False, True):
            ordered = sorted((one for one in offers if self.nodes_of(one, self.machines, {})), key=preference)
            for index, offer in enumerate(ordered):
                if left is None:
                    break
                payers = [one for one in offer.payers if borrowing or one.funding != "borrowed"]
                _, unpaid = self.pay(payers, self.need(left, width), spent)
                part = self.affordable(left, width, self.need(left, width) - unpaid)
                domains = self.nodes_of(offer, self.machines, taken)
                groups, rest = self.fill(domains, part, width)
                if rest is not None and rest.full and part.tail:
                    groups, _ = self.fill(domains, Cut(part.full, tail=False), width)
                if not groups:
                    continue
                for group in groups:
                    for one, gpus in (*group.active, *group.spares):
                        taken[one.name] = taken.get(one.name, 0) + gpus
                cost = sum(group.gpus for group in groups)
                money, unpaid = self.pay(payers, cost, spent)
                rest_of_them = ordered[index + 1 :] if thrifty else []
                if rest_of_them:
                    later = [one for o in rest_of_them if self.nodes_of(o, self.machines, taken) for one in o.payers]
                    frugal = sorted(
                        payers, key=lambda one: (one.funding == "borrowed", any(same(one, o) for o in later))
                    )
                    if not self.pay(frugal, cost, spent)[1]:
                        money, unpaid = self.pay(frugal, cost, spent)
                assert not unpaid
                parts.append(Part(groups, money))
                spent += money
                mine = {group.fabric for group in groups}
                residue += sum(sum(domains[one].values()) for one in mine) - sum(group.gpus for group in groups)
                used |= {(offer.location, fabric) for fabric in mine}
                left = self.minus(left, width, groups)
        if left is not None:
            return None
        return Found(parts, len(used), residue, f"{cluster} (combined)")

    def note_combined(self, offers: list[Offer], width: int) -> None:
        """If the money of all offers together would have sufficed, machines were short."""
        payers = [one for one in self.walk("everybody") if any(same(one, other) for o in offers for other in o.payers)]
        if not self.pay(payers, self.need(self.cut(width), width), [])[1]:
            widest = [
                one for one in offers
                if not any(o.location == one.location and set(o.selector) < set(one.selector) for o in offers)
            ]  # fmt: skip
            free = sum(
                sum(nodes.values()) for one in widest for nodes in self.nodes_of(one, self.machines, {}).values()
            )
            short = free < self.need(self.cut(width), width)
            self.faults.append("NoCapacity" if short else "Fragmented")

    def affordable(self, left: Cut, width: int, money: int) -> Cut:
        """Whole groups that so much pays for; the smaller last one only once all others are in."""
        each = self.unit + self.spares
        full = min(left.full, money // each)
        tail = left.tail and full == left.full and money - full * each >= width % self.unit + self.spares
        return Cut(full, tail)

    def minus(self, left: Cut, width: int, groups: list[Group]) -> Cut | None:
        full, tail = left.full, left.tail
        for group in groups:
            if tail and group.width == width % self.unit:
                tail = False
            else:
                full -= group.width // self.unit
        return Cut(full, tail) if full or tail else None

    # -- domains --

    def fill(self, domains: dict[str, dict[str, int]], cut: Cut, width: int) -> tuple[list[Group], Cut | None]:
        picks, left = self.picks(domains, cut, width)
        groups = [group for fabric, take in picks for group in self.groups(domains[fabric], fabric, take, width)]
        groups.sort(key=lambda group: -group.width)
        return groups, left

    def picks(
        self, domains: dict[str, dict[str, int]], cut: Cut, width: int
    ) -> tuple[list[tuple[str, Cut]], Cut | None]:
        picks: list[tuple[str, Cut]] = []
        full, tail = cut.full, cut.tail
        while full or tail:
            open_ = {name: nodes for name, nodes in domains.items() if name not in [fabric for fabric, _ in picks]}
            pick = self.pick(open_, Cut(full, tail), width)
            if pick is None:
                return picks, Cut(full, tail)
            picks.append(pick)
            full, tail = full - pick[1].full, tail and not pick[1].tail
        return picks, None

    def pick(self, domains: dict[str, dict[str, int]], left: Cut, width: int) -> tuple[str, Cut] | None:
        def tightest(cut: Cut) -> str | None:
            able = [name for name, nodes in domains.items() if self.holds(nodes, cut, width)]
            return min(able, key=lambda name: (self.room(domains[name]), name), default=None)

        whole = tightest(left)
        if whole is not None:
            return whole, left
        if not self.spread:
            return None
        most = max((self.groups_in(nodes) for nodes in domains.values()), default=0)
        if left.full and most:
            most = min(most, left.full)
            fabric = tightest(Cut(most, False))
            assert fabric is not None
            return fabric, Cut(most, left.tail and self.holds(domains[fabric], Cut(most, True), width))
        last = tightest(Cut(0, True)) if left.full and left.tail else None
        return None if last is None else (last, Cut(0, True))

    def room(self, nodes: dict[str, int]) -> int:
        return sum(free // self.pod * self.pod for free in nodes.values())

    def groups_in(self, nodes: dict[str, int]) -> int:
        return min(self.room(nodes) // self.unit, sum(nodes.values()) // (self.unit + self.spares))

    def holds(self, nodes: dict[str, int], cut: Cut, width: int) -> bool:
        active = cut.full * self.unit + (width % self.unit if cut.tail else 0)
        return self.room(nodes) >= active and sum(nodes.values()) >= self.need(cut, width)

    # -- nodes --

    def groups(self, nodes: dict[str, int], fabric: str, cut: Cut, width: int) -> list[Group]:
        left = dict(nodes)
        if self.group:
            sizes = [self.unit] * cut.full + [width % self.unit] * cut.tail
        else:
            sizes = [cut.full * self.unit]
        groups = [Group(fabric, self.take(left, size, self.pod)) for size in sizes]
        for group in groups:
            mine = {one.name for one, _ in group.active}
            others = {name: free for name, free in left.items() if name not in mine}
            group.spares = self.take(others, self.spares, 1)
            left.update(others)
            short = self.spares - sum(gpus for _, gpus in group.spares)
            group.spares += self.take(left, short, 1)
        return groups

    def take(self, left: dict[str, int], need: int, pod: int) -> list[tuple[Machine, int]]:
        named = {one.name: one for one in self.machines}
        out = []
        while need:
            most = max(left.values(), default=0)
            take = need if most >= need else most // pod * pod
            if not take:
                break
            able = [named[name] for name, free in left.items() if free >= take]
            one = min(able, key=lambda one: (left[one.name], one.rack, one.name))
            left[one.name] -= take
            need -= take
            out.append((one, take))
        return out

    # -- the answer --

    def bind(self, width: int, found: Found) -> Placement:
        leases: list[Leased] = []
        pods: list[Placed] = []
        index = 0
        for part in found.parts:
            purse = [(one, gpus) for one, gpus in part.money]
            for group in part.groups:
                for role, shares in (("Active", group.active), ("Spare", group.spares)):
                    for one, gpus in shares:
                        ordinals = tuple(one.free[:gpus])
                        del one.free[:gpus]
                        leases += self.lease(purse, ordinals, index, group.fabric, one.name, role)
                        if role == "Active":
                            step = self.run.spec.resources.gpus_per_pod or gpus
                            for first in range(0, gpus, step):
                                pods.append(Placed(len(pods), index, one.name, ordinals[first : first + step]))
                index += 1
        return Placement(width, tuple(leases), tuple(pods))

    @staticmethod
    def lease(
        purse: list[Payment], ordinals: tuple[int, ...], group: int, fabric: str, node: str, role: str
    ) -> Iterator[Leased]:
        while ordinals:
            one, gpus = purse[0]
            mine, ordinals = ordinals[:gpus], ordinals[gpus:]
            purse[0:1] = [(one, gpus - len(mine))] if gpus > len(mine) else []
            yield Leased(group, fabric, node, mine, role, *one.account.key, one.funding)

    def refuse(self, width: int) -> Refusal:
        never = self.never(width)
        if never is not None:
            return Refusal("never", never)
        return Refusal("wait", first(self.faults) or first(self.denials(width)) or "NoEnvelope")

    def denials(self, width: int) -> list[str]:
        """What is wrong with each envelope visited; those who could pay together are asked for what is left."""
        asked = left = self.need(self.cut(width), width)
        walk = self.walk("everybody")
        payable = [one for one in walk if not one.bar]
        offers = self.offers(payable)
        reachable = [one for offer in offers for one in offer.payers]
        names = sorted({offer.location[1] if self.spread else offer.where for offer in offers})
        circles = []
        for name in names:
            here = [offer for offer in offers if (offer.location[1] if self.spread else offer.where) == name]
            circles.append([one for one in payable if any(same(one, other) for o in here for other in o.payers)])
        best: list[Candidate] = max(circles, key=lambda payers: asked - self.pay(payers, asked, [])[1], default=[])
        out: list[str] = []
        spent: list[Payment] = []
        for one in walk:
            mine = any(same(one, other) for other in best)
            if mine and not left:
                continue
            if one.bar:
                out.append(one.bar)
            elif not any(same(one, other) for other in reachable):
                out.append("NoEnvelope")
            else:
                short = [code for code, room in self.limits(one, spent if mine else [], rested=False)
                         if room < (left if mine else asked)]  # fmt: skip
                out += short
            if mine:
                money, left = self.pay([one], left, spent)
                spent += money
        return out

    def never(self, width: int) -> str | None:
        cut = self.cut(width)
        need = self.need(cut, width)
        hopeful = [one for one in self.walk("everybody") if self.is_hopeful(one)]
        offers = self.offers(hopeful)
        if not any(not self.pay(payers, need, [], rested=True)[1] for payers in self.circles(offers, hopeful)):
            if not self.offered_locations() and any(self.pay([one], 1, [], rested=True)[0] for one in hopeful):
                return "NoNodes"
            return first(self.denials(width)) or "NoEnvelope"
        for offer in offers:
            if self.picks(self.nodes_of(offer, self.idle, {}), cut, width)[1] is None:
                return None
        for cluster in sorted({offer.location[1] for offer in offers}) if self.spread else ():
            left: Cut | None = cut
            for offer in [one for one in offers if one.location[1] == cluster]:
                same_place = [one for one in offers if one.location == offer.location]
                widest = not any(set(one.selector) < set(offer.selector) for one in same_place)
                if left is not None and widest:
                    left = self.picks(self.nodes_of(offer, self.idle, {}), left, width)[1]
            if left is None:
                return None
        _, _, wanted = coarse(dict(self.run.spec.locality.selector), self.policy)
        for location in self.offered_locations():
            place = Offer(location, wanted, ())
            if self.picks(self.nodes_of(place, self.idle, {}), cut, width)[1] is None:
                return "PayersApart"
        return "TooLarge"

    def offered_locations(self) -> list[tuple[str, str]]:
        region, cluster, _ = coarse(dict(self.run.spec.locality.selector), self.policy)
        locations = {one.location for one in self.idle}
        return [one for one in locations if region in (None, one[0]) and cluster in (None, one[1])]

    def circles(self, offers: list[Offer], walk: list[Candidate]) -> Iterator[list[Candidate]]:
        """Payers that could pay together: those of a cluster if groups may be spread, else those of an offer."""
        if not self.spread:
            yield from (list(offer.payers) for offer in offers)
            return
        for cluster in sorted({offer.location[1] for offer in offers}):
            here = [one for offer in offers if offer.location[1] == cluster for one in offer.payers]
            yield [one for one in walk if any(same(one, other) for other in here)]

    def is_hopeful(self, one: Candidate) -> bool:
        """Could it ever pay? A window that is over, or too short, never will; one that has not opened yet may."""
        account = one.account
        early = account.terms.pre_activation.allow_admission
        lasts = (self.now if early else max(self.now, account.start)) + (self.duration or 0)
        return one.bar in ("", "WindowClosed") and self.now < account.end and lasts <= account.end

    def fault(self, domains: dict[str, dict[str, int]], need: int) -> str:
        if sum(sum(nodes.values()) for nodes in domains.values()) < need:
            return "NoCapacity"
        return "Fragmented" if self.spread else "SpreadForbidden"


def acl(pattern: str, owner: str) -> bool:
    """``*`` in the middle is one segment, a final ``*`` one or more."""
    want, have = pattern.split(":"), owner.split(":")
    if want[-1] == "*" and len(have) >= len(want):
        want, have = want[:-1], have[: len(want) - 1]
    return len(want) == len(have) and all(one in ("*", other) for one, other in zip(want, have, strict=True))


def takes_work(node: Node) -> bool:
    ready = all(one.status == "True" for one in node.status.conditions if one.type == "Ready")
    tainted = any(
        taint.effect != "PreferNoSchedule" and taint.key != "rq.davidlangworthy.io/managed"
        for taint in node.spec.taints
    )
    return ready and not tainted and not node.spec.unschedulable


def coarse(selector: dict[str, str], policy: Policy) -> tuple[str | None, str | None, tuple[tuple[str, str], ...]]:
    """A selector as (region, cluster, the finer rest)."""
    place = {}
    for what in ("region", "cluster"):
        configured = policy.topology_labels.get(what)
        place[what] = selector.get(configured) if configured else selector.pop(what, None)
    return place["region"], place["cluster"], tuple(sorted(selector.items()))


def narrowings(
    wanted: tuple[tuple[str, str], ...], fine: list[tuple[tuple[str, str], ...]]
) -> list[tuple[tuple[str, str], ...]]:
    """What the run wants, narrowed by every combination of finer selectors that do not contradict one another."""
    sizes = range(len(fine) + 1) if len(fine) <= FINE_MAX else (0, 1, len(fine))
    out = []
    for size in sizes:
        for chosen in combinations(fine, size):
            pairs = set(wanted).union(*chosen)
            merged = tuple(sorted(pairs))
            if len({key for key, _ in pairs}) == len(pairs) and merged not in out:
                out.append(merged)
    return out


def same(one: Candidate, other: Candidate) -> bool:
    return one.account is other.account and one.funding == other.funding


def owed(money: Iterable[Payment], funding: str) -> int:
    return sum(gpus for one, gpus in money if one.funding == funding)


def first(codes: Iterable[str]) -> str | None:
    """The most decisive code."""
    return min(codes, key=PRECEDENCE.index, default=None)
