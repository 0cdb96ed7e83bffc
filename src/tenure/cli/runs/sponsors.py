"""`sponsors`: who may be asked to lend to a run, in which order, and what each would answer.

``add`` and ``remove`` change ``funding.sponsors`` and nothing else, as ``grow`` and ``shrink`` change a width: of a run
that waits or runs, by handing it in again. What a sponsor pays for already stays paid by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from tenure.cli import payers
from tenure.cli.explaining import reason_record
from tenure.cli.lookup import find, run_argument
from tenure.cli.manifests import dry_run
from tenure.cli.output import Cell, Format, Table, columns, show
from tenure.cli.port import Fleet, RunLine, SponsorLine, View
from tenure.cli.session import Function, Session, output, verb
from tenure.cli.terminal import hint, say
from tenure.cli.trouble import Trouble, invalid
from tenure.cli.words import gpu_hours, plural, safe, some
from tenure.engine.reasons import sentence
from tenure.units import HOUR, GpuMicros

if TYPE_CHECKING:
    from tenure.api.run import Funding, Run

_TRIED = " (server dry run)"
_FAMILY = ("owner", "sibling", "parent")


@click.group("sponsors", short_help="Show and choose who lends to a run.")
def command() -> None:
    """Show and choose who lends to a run.

    Sponsors are owners outside the family. They are asked in order, after the owner's and the family's money, if the
    run says allowBorrow and the sponsor's budget lends to the run's owner.
    """


def owner_argument(function: Function) -> Function:
    return click.argument("owner", metavar="OWNER")(function)


# --- list -----------------------------------------------------------------------------------------------------------


@verb("list", "List a run's sponsors, and what they could give now.", namespaced=True)
@run_argument
@output()
def list_sponsors(session: Session, output: Format, run: str) -> None:
    """List a run's sponsors in the order in which they are asked: whether each lends to the run's owner, how many GPUs
    it could give now if it were the only one, and what it pays.

    Behind them stand the ancestors and cousins who are asked when the sponsors cannot pay for all, and those who still
    pay but are asked no more.

    JSON: {"run", "owner", "allowBorrow", "maxBorrowGPUs", "borrowedGPUs", "sponsors": [{"place", "owner", "relation",
    "budget", "envelope", "lends", "couldGive", "limit", "gpus", "gpuMicroseconds", "gpuHours"}]}. Names: the sponsors
    that are listed.
    """
    with session.fleet() as fleet:
        view = fleet.view()
        line = find(session, view, run)
        told = _Told(fleet, view, line)
        show(
            output,
            tables=told.parts,
            data=told.record,
            names=lambda: told.funding.sponsors,
            hint=told.next_step(session),
        )


class _Told:
    """What is known about the sponsors of one run."""

    def __init__(self, fleet: Fleet, view: View, line: RunLine) -> None:
        self.line = line
        run = view.run(line.namespace, line.name)
        self.funding: Funding = run.spec.funding
        self.borrowed = run.status.funding.borrowed_gpus if run.status.funding else 0
        self.lines = view.sponsors(line.namespace, line.name)
        rows = fleet.find_leases(namespace=line.namespace, run=line.name)
        mine = payers.split((row for row in rows if row.lease.uid == run.metadata.uid), now=view.now)
        self.shares = _by_envelope(one for one in mine if one.funding != "owned")
        known = {(one.budget, one.envelope) for one in self.lines}
        self.gone = [one for one in mine if one.funding == "borrowed" and (one.budget, one.envelope) not in known]

    def next_step(self, session: Session) -> str:
        line = self.line
        if self.funding.allow_borrow and not self.funding.sponsors and not line.over:
            return f"{_next(session, 'add', line)} OWNER"
        waits = line.phase == "Pending"
        return session.about("explain" if waits else "who-pays", line.namespace, line.name)

    def parts(self) -> Iterator[Table | str]:
        yield self._title()
        heads = columns(
            ">#", "SPONSOR", "RELATION", "ENVELOPE", "LENDS", ">COULD-GIVE", ">PAYS", ">GPU-HOURS", "WHY NOT MORE"
        )
        rows = [self._row(one) for one in self.lines] + [self._former(one) for one in self.gone]
        if rows:
            yield Table(heads, rows)

    def _title(self) -> str:
        name, most = f"Run/{safe(self.line.key)} of {safe(self.line.owner)}", self.funding.max_borrow_gpus
        if self.line.over:
            return f"{name} is {self.line.phase}: nobody is asked any more"
        if not self.funding.allow_borrow:
            return f"{name} may not borrow (spec.funding.allowBorrow is false): nobody outside the family is asked."
        bound = "any number of GPUs" if most is None else f"at most {plural(most, 'GPU')}"
        if not self.funding.sponsors:
            return f"{name} may borrow {bound} but lists no sponsor: nobody outside the family is asked."
        return f"{name} may borrow {bound} and borrows {self.borrowed}; asked in this order:"

    def _row(self, one: SponsorLine) -> list[Cell]:
        gpus, used = self._pays(one)
        return [
            str(one.place or "-"), one.owner, one.relation, f"{one.budget}/{one.envelope}" if one.budget else "-",
            ("yes", "good") if one.lends else ("no", "bad"), str(self._could(one)), str(gpus), gpu_hours(used),
            "" if self.line.over else why(one, self.line.flavor),
        ]  # fmt: skip

    def _pays(self, one: SponsorLine) -> tuple[int, GpuMicros]:
        return self.shares.get((one.budget, one.envelope), (0, 0))

    def _could(self, one: SponsorLine) -> int:
        """GPUs that the run could have from it, if it could have any."""
        return one.gpus if self.funding.allow_borrow and not self.line.over else 0

    @staticmethod
    def _former(share: payers.Share) -> list[Cell]:
        return [
            "-", share.payer, "former", f"{share.budget}/{share.envelope}", ("no", "dim"), "0", str(share.gpus),
            gpu_hours(share.used), "it is asked no more; what it pays for goes on",
        ]  # fmt: skip

    def record(self) -> dict[str, Any]:
        return {
            "run": self.line.key,
            "owner": self.line.owner,
            "allowBorrow": self.funding.allow_borrow,
            "maxBorrowGPUs": self.funding.max_borrow_gpus,
            "borrowedGPUs": self.borrowed,
            "sponsors": [*map(self._line_record, self.lines), *map(self._former_record, self.gone)],
        }

    def _line_record(self, one: SponsorLine) -> dict[str, Any]:
        return {
            "place": one.place, "owner": one.owner, "relation": one.relation, "budget": one.budget or None,
            "envelope": one.envelope or None, "lends": one.lends,
            "couldGive": self._could(one), "limit": reason_record(one.limit),
            **_paid(*self._pays(one)),
        }  # fmt: skip

    @staticmethod
    def _former_record(share: payers.Share) -> dict[str, Any]:
        return {
            "place": None, "owner": share.payer, "relation": "former", "budget": share.budget,
            "envelope": share.envelope, "lends": False, "couldGive": 0, "limit": None,
            **_paid(share.gpus, share.used),
        }  # fmt: skip


def _by_envelope(shares: Iterable[payers.Share]) -> dict[tuple[str, str], tuple[int, GpuMicros]]:
    """GPUs and GPU-time of each envelope: it may have paid as family, and as a sponsor since."""
    sums: dict[tuple[str, str], tuple[int, GpuMicros]] = {}
    for one in shares:
        gpus, used = sums.get((one.budget, one.envelope), (0, 0))
        sums[one.budget, one.envelope] = (gpus + one.gpus, used + one.used)
    return sums


def _paid(gpus: int, used: GpuMicros) -> dict[str, Any]:
    return {"gpus": gpus, "gpuMicroseconds": used, "gpuHours": used / HOUR}


def why(one: SponsorLine, flavor: str) -> str:
    """Why an envelope would not give all that is wanted, in words."""
    if not one.budget:
        return f"it has no envelope of {flavor}"
    if one.limit is not None and one.limit.code == "NoEnvelope":
        return "its selector matches no machine where this run may go"
    if one.relation in _FAMILY:
        return "it pays as family, before any sponsor is asked"
    return sentence(one.limit) if one.limit else ""


# --- add and remove -------------------------------------------------------------------------------------------------


@verb("add", "Have one more owner be asked to lend.", namespaced=True)
@run_argument
@owner_argument
@click.option("--first", is_flag=True, help="Asked before all others; moves a sponsor that is listed already.")
@dry_run
def add(session: Session, run: str, owner: str, first: bool, dry_run: bool) -> None:
    """Have one more owner be asked to lend to a run, after those that are listed, or before them with --first.

    It changes funding.sponsors of a run that waits or runs. A run that waits for money is looked at again at once; an
    elastic one grows on the new money. Whether the sponsor lends is the sponsor's decision (lending, in its budget).

    \b
    kubectl runs sponsors add rai/train org:ai:vision
    """
    with session.fleet(write=True) as fleet:
        view = fleet.view()
        line = find(session, view, run)
        sponsors = view.run(line.namespace, line.name).spec.funding.sponsors
        _check_borrows(view, line)
        if owner == line.owner:
            problem = f"{owner} owns Run/{line.key}: it pays before any sponsor is asked"
            raise Trouble(problem, next_step="name an owner outside the family")
        others = tuple(one for one in sponsors if one != owner)
        wanted = (owner, *others) if first else sponsors if owner in sponsors else (*sponsors, owner)
        if wanted == sponsors:
            print(f"Run/{safe(line.key)}: {_place(owner, sponsors)} already")
        else:
            _submit(fleet, view.run(line.namespace, line.name), wanted, dry_run=dry_run)
            print(f"Run/{safe(line.key)}: {_place(owner, wanted)}{_TRIED if dry_run else ''}")
        if dry_run:
            return
        with suppress(Trouble):  # who may not read the ledger has written all the same
            _say_what_it_gives(fleet.view(), line, owner)
        _say_if_it_starts(fleet.view(), line)
        _say_if_idle(fleet)
    hint(_next(session, "list", line))


@verb("remove", "Have an owner be asked no more.", namespaced=True)
@run_argument
@owner_argument
@dry_run
def remove(session: Session, run: str, owner: str, dry_run: bool) -> None:
    """Have an owner be asked no more to lend to a run.

    It changes funding.sponsors of a run that waits or runs. Leases that the owner pays for already go on until they
    end; to give those GPUs back, shrink the run (borrowed groups go first) or cancel it.

    \b
    kubectl runs sponsors remove rai/train org:ai:vision
    """
    with session.fleet(write=True) as fleet:
        view = fleet.view()
        line = find(session, view, run)
        sponsors = view.run(line.namespace, line.name).spec.funding.sponsors
        _check_alive(line)
        if owner not in sponsors:
            listed = f"they are {some(sponsors)}" if sponsors else "it has none"
            raise Trouble(
                f"{owner} is no sponsor of Run/{line.key}: {listed}",
                next_step=_next(session, "list", line),
            )
        wanted = tuple(one for one in sponsors if one != owner)
        _submit(fleet, view.run(line.namespace, line.name), wanted, dry_run=dry_run)
        left = (
            f"{plural(len(wanted), 'sponsor')} left"
            if wanted
            else "none is left, so nobody outside the family is asked"
        )
        print(f"Run/{safe(line.key)}: {safe(owner)} is a sponsor no more; {left}{_TRIED if dry_run else ''}")
        if dry_run:
            return
        _say_what_goes_on(fleet.view(), line, owner)
        _say_if_idle(fleet)
    hint(_next(session, "list", line))


def _next(session: Session, verb: str, line: RunLine) -> str:
    return session.command("sponsors", verb, line.name if line.namespace == session.place else line.key)


def _check_alive(line: RunLine) -> None:
    if line.over:
        problem = f"Run/{line.key} is {line.phase}: nobody is asked to pay for it any more"
        raise Trouble(problem, next_step="submit it again with other sponsors")


def _check_borrows(view: View, line: RunLine) -> None:
    _check_alive(line)
    if not view.run(line.namespace, line.name).spec.funding.allow_borrow:
        step = "set funding.allowBorrow: true and submit it again; if it was admitted already, cancel it first"
        raise Trouble(f"Run/{line.key} may not borrow: spec.funding.allowBorrow is false", next_step=step)


def _submit(fleet: Fleet, run: Run, sponsors: tuple[str, ...], *, dry_run: bool) -> None:
    from msgspec.structs import replace

    from tenure.api.validate import validate

    wanted = replace(run, spec=replace(run.spec, funding=replace(run.spec.funding, sponsors=sponsors)))
    refused = validate(wanted, simulated=True) or fleet.amend(run, wanted, dry_run=dry_run).refused
    if refused:
        raise invalid(refused, next_step="mend what is listed above and try again; nothing was changed")


def _place(owner: str, sponsors: tuple[str, ...]) -> str:
    return f"{safe(owner)} is sponsor {sponsors.index(owner) + 1} of {len(sponsors)}"


def _say_what_it_gives(view: View, line: RunLine, owner: str) -> None:
    """What the new sponsor would answer, envelope by envelope."""
    for one in view.sponsors(line.namespace, line.name):
        if one.owner == owner:
            name, limit = f"{one.budget}/{one.envelope}" if one.budget else owner, why(one, line.flavor)
            if not one.gpus:
                say(f"{name} gives nothing now: {limit}")
            else:
                family = f"; {limit}" if one.relation in _FAMILY else ""
                say(f"{name} could give {plural(one.gpus, 'GPU')} now{family}")


def _say_if_it_starts(view: View, before: RunLine) -> None:
    after = view.line(before.namespace, before.name)
    if after is not None and after.held and not before.held:
        say(f"Run/{after.key} starts: {after.message}")


def _say_what_goes_on(view: View, line: RunLine, owner: str) -> None:
    held = [one for one in view.leases(line.namespace, line.name) if one.payer == owner]
    if held:
        gpus, leases = plural(sum(len(one.gpus) for one in held), "GPU"), plural(len(held), "lease")
        say(f"{owner} goes on paying for the {gpus} that it pays for now, in {leases}, until they end")


def _say_if_idle(fleet: Fleet) -> None:
    if not fleet.driven:
        say(f"nothing drives this fleet, so nothing changes yet: {fleet.drive_command}")


for _verb in (list_sponsors, add, remove):
    command.add_command(_verb)
