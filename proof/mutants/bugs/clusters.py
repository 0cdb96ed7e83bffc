"""Bugs in what stands between the engine and an API server: lost answers, stale copies, and leaders who are late."""

from __future__ import annotations

from proof.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    # --- the head, and the entries before it ------------------------------------------------------------------------
    Mutant(
        name="lost-answer-is-a-refusal",
        kind="trust",
        bug="A write without an answer counts as one that was refused: nobody looks whether it was applied.",
        file="kube/errors.py",
        old="return self.code >= 500 or self.reason == ANSWER_LOST",
        new="return False",
    ),
    Mutant(
        name="lost-swap-believed-done",
        kind="trust",
        bug="A swap of the LedgerHead without an answer is believed to have succeeded.",
        file="kube/heads.py",
        old="            why = str(error)\n",
        new="            why = str(error)\n"
        "            if error.in_doubt:\n"
        "                return Fence(spec, fence.version)\n",
    ),
    Mutant(
        name="lost-swap-believed-failed",
        kind="trust",
        bug="A swap of the LedgerHead without an answer is believed to have failed: nobody reads the head again.",
        file="kube/heads.py",
        old="            if not error.conflict and not error.in_doubt:\n",
        new="            if not error.conflict:\n",
    ),
    Mutant(
        name="loser-swaps-again",
        kind="guard",
        bug="Who was outrun swaps once more, on top of what the winner wrote.",
        file="kube/heads.py",
        old="            raise refused(Code.Outrun)\n        if seen.version",
        new="            fence = seen\n        if seen.version",
    ),
    Mutant(
        name="head-before-its-entries",
        kind="durable",
        bug="The LedgerHead is swapped first, and the entries that it names are written afterwards.",
        file="kube/store.py",
        old="        await asyncio.gather(*(put_entry(self.client, item) for item in objects_of(batch)))\n"
        "        last = batch.last\n"
        "        spec = msgspec.structs.replace(fence.spec, seq=last.entry.seq, hash=last.hash, at=last.entry.at)\n"
        "        return await swap(self.client, fence, spec)\n",
        new="        last = batch.last\n"
        "        spec = msgspec.structs.replace(fence.spec, seq=last.entry.seq, hash=last.hash, at=last.entry.at)\n"
        "        after = await swap(self.client, fence, spec)\n"
        "        await asyncio.gather(*(put_entry(self.client, item) for item in objects_of(batch)))\n"
        "        return after\n",
    ),
    Mutant(
        name="refused-entry-counts",
        kind="durable",
        bug="An entry that the API server would not take counts as written, and the head is swapped to it.",
        file="kube/store.py",
        old="                raise unwritten(error) from error\n        await asyncio.sleep(0.05",
        new="                return\n        await asyncio.sleep(0.05",
    ),
    # --- copies -----------------------------------------------------------------------------------------------------
    Mutant(
        name="stale-list-believed",
        kind="guard",
        bug="A list of a server that lags behind replaces a newer copy.",
        file="kube/informer.py",
        old="if older(listing.resource_version, self._newest) and self._stale_lists < STALE_LISTS_MAX:",
        new="if older(listing.resource_version, self._newest) and self._stale_lists > STALE_LISTS_MAX:",
    ),
    Mutant(
        name="deletions-untold",
        kind="fold",
        bug="What is missing in a new list leaves the copy, and nobody is told.",
        file="kube/informer.py",
        old="changed + [key for key in before if key not in after])",
        new="changed)",
    ),
    Mutant(
        name="deletions-kept",
        kind="fold",
        bug="A new list is laid over the old copy: what is missing in it stays for ever.",
        file="kube/informer.py",
        old="        self._objects = after\n",
        new="        self._objects = {**before, **after}\n",
    ),
    # --- who leads --------------------------------------------------------------------------------------------------
    Mutant(
        name="leads-past-its-time",
        kind="guard",
        bug="A leader that cannot renew its record leads on for ever, also when its time is over.",
        file="kube/elect.py",
        old="won = self.leading.is_set() and self._clock() - self._renewed < self._duration * 2 / 3",
        new="won = self.leading.is_set()",
    ),
    Mutant(
        name="holder-pushed-out",
        kind="boundary",
        bug="A candidate counts from when it first saw the holder, however often that renews: it pushes it out.",
        file="kube/elect.py",
        old="        if self._seen[0] != version:\n",
        new="        if self._seen[1] != self.holder:\n",
    ),
    # --- pods -------------------------------------------------------------------------------------------------------
    Mutant(
        name="pod-made-again",
        kind="name",
        bug="A pod of the same name that is there already is taken for a leftover: it is deleted and made again.",
        file="kube/pods.py",
        old="            if error.code == 401:\n",
        new="            if error.exists:\n"
        "                await self._client.delete(PODS, pod.name, pod.namespace, grace_seconds=0)\n"
        "                return await self._client.create(PODS, body)\n"
        "            if error.code == 401:\n",
    ),
    # --- what is shown ----------------------------------------------------------------------------------------------
    Mutant(
        name="refused-status-counts",
        kind="durable",
        bug="A status that the API server would not take counts as written: nobody writes it again.",
        file="kube/materialise.py",
        old="        if not error.not_found:\n            raise\n        return None\n",
        new="        if error.transient:\n            raise\n        return None\n",
    ),
    # --- what leaves ------------------------------------------------------------------------------------------------
    Mutant(
        name="deletes-before-the-archive",
        kind="order",
        bug="Old entries are deleted before they are in the archive and the LedgerHead says so.",
        file="kube/retention.py",
        old="    segments: list[Segment] = []\n"
        "    for segment in _archive_more(store, store.archive, _boundary(store, items, before), before - worth):\n"
        "        segments.append(segment)\n"
        "        yield None\n"
        "    reached = store.spec.archived\n"
        "    if reached is None:\n"
        "        return Retired()\n"
        "    gone = yield from _deleting(store, LEDGER_ENTRIES, "
        "[item for item in items if _seq(item) <= reached.seq])\n",
        new="    segments: list[Segment] = []\n"
        "    until = _boundary(store, items, before)\n"
        "    gone = yield from _deleting(store, LEDGER_ENTRIES, [item for item in items if _seq(item) <= until])\n"
        "    for segment in _archive_more(store, store.archive, until, before - worth):\n"
        "        segments.append(segment)\n"
        "        yield None\n"
        "    reached = store.spec.archived\n"
        "    if reached is None:\n"
        "        return Retired()\n",
    ),
)
