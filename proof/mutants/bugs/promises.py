"""Bugs in reservations, in who gives way, and in the attested draw."""

from __future__ import annotations

from proof.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="backfill-past-promises",
        kind="guard",
        bug="What starts now is planned as if nothing were promised to anybody.",
        file="engine/forecast.py",
        old="    if not state.horizon.claimed.get(demand.flavor):\n",
        new="    if demand.flavor:\n",
    ),
    Mutant(
        name="released-promise-stays",
        kind="fold",
        bug="The reservation of a run that has started is kept, and its slice with it.",
        file="engine/state.py",
        old='        if one.state in ("Released", "Canceled"):',
        new='        if one.state == "Canceled":',
        tests=("engine/test_planted.py",),
    ),
    Mutant(
        name="claim-not-retracted",
        kind="fold",
        bug="A promise that is over leaves its claim on machines and money behind.",
        file="engine/state.py",
        old="            self.unplanned.discard(one.run_key)\n            self.horizon.retract(one.run_key)\n",
        new="            self.unplanned.discard(one.run_key)\n",
    ),
    Mutant(
        name="canceled-run-keeps-its-promise",
        kind="close",
        bug="A run that is deleted while it waits leaves its reservation standing.",
        file="engine/life.py",
        old='    promise.cancel(turn, row, Reason(code="Canceled"))\n    turn.note("Deleted"',
        new='    turn.note("Deleted"',
    ),
    Mutant(
        name="promise-loses-its-turn",
        kind="name",
        bug="A promise whose plan changes goes to the end of the queue of promises.",
        file="engine/promise.py",
        old="return turn.state.promised + 1 if old is None or old.plan.start is None else old.turn",
        new="return turn.state.promised + 1",
    ),
    Mutant(
        name="promise-rewritten",
        kind="trust",
        bug="When a plan changes, what was promised first is rewritten with it.",
        file="engine/promise.py",
        old="    _put(turn, msgspec.structs.replace(old, **changes))\n    if old.plan.start is None:",
        new="    _put(turn, msgspec.structs.replace(old, promise=slice_, **changes))\n    if old.plan.start is None:",
    ),
    Mutant(
        name="spares-before-overstayed",
        kind="order",
        bug="Spares are dropped before those go who overstayed.",
        file="engine/cuts.py",
        old="    yield from _overstayed(state, held, now=now)\n    dropped: set[str] = set()\n"
        "    yield from _spares(state, held, dropped)\n",
        new="    dropped: set[str] = set()\n    yield from _spares(state, held, dropped)\n"
        "    yield from _overstayed(state, held, now=now)\n",
    ),
    Mutant(
        name="one-cut-too-many",
        kind="boundary",
        bug="The search for the first point that is enough stops one cut after it.",
        file="engine/cuts.py",
        old="    while long - short > 1:",
        new="    while long - short > 2:",
    ),
    Mutant(
        name="drawn-too-young",
        kind="boundary",
        bug="A run may be drawn as soon as it runs, not after `activationLead`.",
        file="engine/cuts.py",
        old="return row.life.phase in phases and started is not None and started + lead <= now",
        new="return row.life.phase in phases and started is not None and started <= now",
    ),
    Mutant(
        name="tokens-count-spares",
        kind="count",
        bug="A token of the draw counts the spares of its run as well.",
        file="engine/cuts.py",
        old='for lease in leases if lease.role == "Active" and lease.key not in trial.gone)',
        new="for lease in leases if lease.key not in trial.gone)",
    ),
    Mutant(
        name="cut-runs-cut-others",
        kind="guard",
        bug="A run that was requeued after a cut cuts others in its turn.",
        file="engine/activation.py",
        old="return not row.life.cut and not row.run.spec.opportunistic",
        new="return not row.run.spec.opportunistic",
    ),
    Mutant(
        name="cut-without-checking-the-bind",
        kind="guard",
        bug="Cuts are made as soon as the groups find room, without looking whether the plan then binds and is paid.",
        file="engine/activation.py",
        old="        plan = self.plan(trial) if self.deficit(trial) == 0 else None\n"
        "        self._plan = plan or self._plan\n"
        "        return plan is not None",
        new="        enough = self.deficit(trial) == 0\n"
        "        self._plan = (self.plan(trial) if enough else None) or self._plan\n"
        "        return enough",
    ),
    Mutant(
        name="shortage-leaves-no-record",
        kind="guard",
        bug="Cuts for an envelope that ran short are made, but no record of the resolution is written.",
        file="engine/shortage.py",
        old='    record(turn, trigger="Shortage", subject=name, activation=_number(turn, one), cuts=cuts, '
        "deficit=deficit)\n",
        new="",
    ),
    Mutant(
        name="activation-number-again",
        kind="name",
        bug="Two resolutions for the same envelope have the same number.",
        file="engine/shortage.py",
        old="return turn.state.activations.get(subject(one), 0) + 1",
        new="return 1",
    ),
    Mutant(
        name="same-index-drawn-twice",
        kind="fold",
        bug="A custodian's value that was revealed is used for the next draw again.",
        file="engine/state.py",
        old="                self.beacons[beacon.id] = (beacon.index, fact.result.reveals[beacon.id])\n",
        new="                pass\n",
    ),
    Mutant(
        name="seed-without-reveals",
        kind="trust",
        bug="The seed is made of the commit alone, so everybody could compute it in advance.",
        file="engine/lottery.py",
        old="seed = H(committed, *(bytes.fromhex(reveals[beacon.id]) for beacon in intent.beacons))",
        new="seed = H(committed)",
    ),
    Mutant(
        name="owners-as-they-come",
        kind="order",
        bug="Owners are drawn from in the order in which their tokens come, not sorted.",
        file="engine/lottery.py",
        old="    for token in sorted(tokens, key=lambda token: (token.owner, token.id)):",
        new="    for token in sorted(tokens, key=lambda token: token.id):",
    ),
    Mutant(
        name="any-reveal-will-do",
        kind="trust",
        bug="A reveal is not checked against the chain it is said to be of.",
        file="engine/lottery.py",
        old="    elif (found := link(bytes.fromhex(reveal)).hex()) != beacon.previous:",
        new="    elif (found := link(bytes.fromhex(reveal)).hex()) == 0:",
    ),
    Mutant(
        name="spent-draw-unrecorded",
        kind="guard",
        bug="A draw that comes to nothing leaves no record, though its index was revealed.",
        file="engine/draws.py",
        old="    if subject in turn.state.draws:\n",
        new="    if False:\n",
    ),
    Mutant(
        name="two-draws-at-a-time",
        kind="guard",
        bug="A second draw is frozen on the same next value while the first waits for it.",
        file="engine/resolver.py",
        old="    if state.draws:\n        return Reason(",
        new="    if named in state.draws:\n        return Reason(",
    ),
)
