"""Bugs outside the engine: the home, the ledger and its anchor, custodians, notices, the API's rules, Kubernetes, and
processes."""

from __future__ import annotations

from proof.mutants.mutant import Mutant

MUTANTS = (
    # --- the home ---------------------------------------------------------------------------------------------------
    Mutant(
        name="names-of-an-earlier-run",
        kind="name",
        bug="A new run of an old name begins with attempt 1 again, and so with the old lease names.",
        file="shell/home.py",
        old='past = {key: self.store.attempts(*key.split("/")) for key in _new_runs(self.state, event)}',
        new="past = {}",
    ),
    Mutant(
        name="failed-commit-believed",
        kind="durable",
        bug="When a commit fails, the home goes on with the state that had decided it.",
        file="shell/home.py",
        old="        except BaseException:\n            self._stale = True\n            raise\n",
        new="        except BaseException:\n            raise\n",
    ),
    Mutant(
        name="others-entries-not-folded",
        kind="fold",
        bug="What another process wrote is not taken in before the next decision.",
        file="shell/home.py",
        old="for entry in tx.since(self.seq):",
        new="for entry in list(tx.since(self.seq))[:0]:",
    ),
    # --- the ledger -------------------------------------------------------------------------------------------------
    Mutant(
        name="anchor-not-compared",
        kind="trust",
        bug="A ledger that ends before what its anchor has seen is opened all the same.",
        file="ledger/store.py",
        old="        if mark.seq > head.seq:\n            raise refused(Code.BehindAnchor",
        new="        if False:\n            raise refused(Code.BehindAnchor",
    ),
    Mutant(
        name="anchor-stays",
        kind="durable",
        bug="A commit is acknowledged though the anchor was not moved: losing it again would go unnoticed.",
        file="ledger/store.py",
        old="            if tx.head.seq > tx.anchored:",
        new="            if tx.head.seq > tx.anchored + 1:",
    ),
    Mutant(
        name="anchor-overwrites-the-newer-slot",
        kind="order",
        bug="The anchor is written over its newer slot, so that a torn write loses both.",
        file="ledger/anchor.py",
        old="    return 0 if first.seq < second.seq else 1",
        new="    return 1 if first.seq < second.seq else 0",
    ),
    Mutant(
        name="hash-not-checked",
        kind="trust",
        bug="An entry's bytes are read without looking whether they still have their hash.",
        file="ledger/chain.py",
        old="faults = [] if entry_hash(body) == stored else "
        '["its bytes do not have the hash that is stored with them"]',
        new="faults: list[str] = []",
    ),
    Mutant(
        name="chain-not-followed",
        kind="trust",
        bug="An entry need not follow from the one before it.",
        file="ledger/chain.py",
        old="    if entry.prev != before.hash:",
        new="    if False:",
    ),
    Mutant(
        name="time-may-run-back",
        kind="guard",
        bug="An entry may be earlier than the one before it.",
        file="ledger/transaction.py",
        old="        if at < self.head.at:",
        new="        if False:",
    ),
    Mutant(
        name="lease-closes-twice",
        kind="close",
        bug="A lease that is closed can be closed again, with another end.",
        file="ledger/derive.py",
        old="            WHERE namespace = ? AND name = ? AND end IS NULL",
        new="            WHERE namespace = ? AND name = ?",
    ),
    Mutant(
        name="held-at-its-end",
        kind="boundary",
        bug="A lease is still held at the instant of its end: two holders of one GPU in a report.",
        file="ledger/queries.py",
        old='yield "start <= :at AND end > :at"',
        new='yield "start <= :at AND end >= :at"',
    ),
    # --- custodians, notices, rules ---------------------------------------------------------------------------------
    Mutant(
        name="custodian-answers-anybody",
        kind="guard",
        bug="A custodian reveals the same value for another commit: one could draw until it suits.",
        file="custodian/keeper.py",
        old="        if index <= position and (first := journal.line(index).commit) != commit:",
        new="        if index < position and (first := journal.line(index).commit) != commit:",
    ),
    Mutant(
        name="custodian-answers-first",
        kind="durable",
        bug="A custodian reveals a value before it has written down for what.",
        file="custodian/keeper.py",
        old="        journal.write(index, commit)\n",
        new="",
    ),
    Mutant(
        name="outbox-acknowledges-unsent",
        kind="durable",
        bug="A receiver that is away has its letter settled: it is never sent.",
        file="notify/progress.py",
        old="            if not pace.isolates or after.fails % ISOLATE_EVERY or after.is_full:\n"
        "                return after, None",
        new="            if not pace.isolates or after.fails % ISOLATE_EVERY or after.is_full:\n"
        "                return move(after, to), None",
    ),
    Mutant(
        name="last-letter-again",
        kind="boundary",
        bug="The outbox begins with the letter that was settled last, so that it is sent twice.",
        file="notify/outbox.py",
        old='sql = f"{_LETTER} WHERE (n.seq, n.idx) > (?, ?) ORDER BY',
        new='sql = f"{_LETTER} WHERE (n.seq, n.idx) >= (?, ?) ORDER BY',
    ),
    Mutant(
        name="owner-by-prefix",
        kind="trust",
        bug="org:aix counts as below org:ai, because its text begins with it.",
        file="api/owners.py",
        old='return owner.startswith(f"{ancestor}:")',
        new="return owner.startswith(ancestor)",
    ),
    Mutant(
        name="star-matches-nothing",
        kind="boundary",
        bug="A final * of an ACL pattern also stands for no segment: `org:ai:*` lets org:ai in.",
        file="api/owners.py",
        old="return len(given) > len(head) and _each_matches(head, given[: len(head)])",
        new="return len(given) >= len(head) and _each_matches(head, given[: len(head)])",
    ),
    # --- Kubernetes -------------------------------------------------------------------------------------------------
    Mutant(
        name="assigned-is-bound",
        kind="trust",
        bug="A pod counts as bound when it has a node, not when its kubelet runs it.",
        file="kube/seen.py",
        old='started=phase in ("Running", "Succeeded") or bool(ends) or any(_runs(one) for one in containers),',
        new='started=bool((pod.get("spec") or {}).get("nodeName")),',
    ),
    Mutant(
        name="deleted-is-gone",
        kind="close",
        bug="A pod that was asked to go counts as gone while its containers still run: its GPUs are given away.",
        file="kube/seen.py",
        old='if seen is None or (seen.leaving and seen.phase in ("Succeeded", "Failed")):',
        new="if seen is None or seen.leaving:",
    ),
    Mutant(
        name="other-run-of-the-same-name",
        kind="name",
        bug="A Run that was deleted and made again is taken for the one that it replaces.",
        file="kube/intake.py",
        old='if row is not None and (leaving or item is None or item["metadata"]["uid"] != row.run.metadata.uid):',
        new="if row is not None and (leaving or item is None):",
    ),
    Mutant(
        name="foreign-pods-not-counted",
        kind="count",
        bug="GPUs that pods of others hold are offered.",
        file="kube/translate.py",
        old="allocatable={resource: str(max(0, int(offered) - taken))",
        new="allocatable={resource: str(max(0, int(offered)))",
    ),
    Mutant(
        name="wish-granted-twice",
        kind="guard",
        bug="A wish to make room is granted at every look until it is taken away.",
        file="kube/wishes.py",
        old="elif key in state.runs and self._granted.get(key) != wish:",
        new="elif key in state.runs:",
    ),
    Mutant(
        name="older-write-wins",
        kind="order",
        bug="Of two wishes for one object that wait to be written the older one is kept.",
        file="kube/desk.py",
        old="        self._waiting[key] = (rank, order, write)\n",
        new="        self._waiting.setdefault(key, (rank, order, write))\n",
    ),
    # --- processes --------------------------------------------------------------------------------------------------
    Mutant(
        name="survivors-overlooked",
        kind="close",
        bug="A pod whose supervisor died is reported Failed while its processes still hold GPUs.",
        file="embedded/process.py",
        old='        if kill_survivors(folder.state(), token="" if spec is None else spec.token):',
        new="        if False:",
        tests=("embedded/test_process_crashes.py",),
    ),
    Mutant(
        name="stopped-is-gone",
        kind="close",
        bug="A pod is reported Gone when it was asked to stop.",
        file="embedded/process.py",
        old="            case None:\n                return []\n            case Waiting():",
        new='            case None:\n                return [_report(item, "Gone", at=now)]\n'
        "            case Waiting():",
    ),
)
