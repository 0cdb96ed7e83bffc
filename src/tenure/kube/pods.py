"""Pods of a cluster as an executor: what the engine wants of each, and what the API server shows of it.

A pod starts at most once because its name is made once, by the engine, and an API server has no two objects of one
name: a create that was sent twice, by us or by another operator, meets itself. What we created is remembered until the
informer shows it or has passed it, so that a slow watch never looks like a pod that vanished, and one that came and
went while nothing was watched never like one that is still there. A pod is ``Bound`` when its kubelet took
it, and ``Gone`` when its object is: only then are its GPUs free. One that another operator made, and that our informer
never showed, is looked for by a read that is not served from a copy: its watch may be late. Pods of ours that the
engine keeps no longer are taken away; on a fenced node by force, for nobody is left there to confirm it. A pod that is
newer than what we know of the ledger is another operator's, and is left alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from tenure.api.errors import escape
from tenure.engine import State
from tenure.engine.rows import RunRow
from tenure.engine.topology import is_fenced
from tenure.facts import Pod
from tenure.kube.client import Client
from tenure.kube.desk import POD, Desk
from tenure.kube.errors import UNREACHABLE, ApiError, NotTaken
from tenure.kube.manifests import binding_manifest, pod_manifest, service_manifest
from tenure.kube.marks import ENTRY, FLEET
from tenure.kube.resources import PODS, SERVICES
from tenure.kube.seen import MESSAGE_MAX, PodSeen, look, news
from tenure.shell.executor import PodReport, PodWork
from tenure.units import MINUTE, SECOND, Instant, Micros

START_TIMEOUT: Micros = 10 * MINUTE
"""How long a pod may take until its kubelet runs it: an image that cannot be pulled holds GPUs no longer than this. And
how long the API server may fail to make it: a webhook of others that is down holds them no longer either."""
ASK_AGAIN: Micros = MINUTE
"""After which a pod that should go, and of which nothing was heard since, is deleted once more."""
_NO_ANSWER = (401, 403)
"""Who is not known or not allowed just now is told nothing about a pod: it is asked again."""

Object = dict[str, Any]


class _NotMade(ApiError):
    """The API server answers, and fails to make this very pod."""


class _Failing(Struct):
    """That it does so again and again: what it said last, and when the engine's thread first heard of it."""

    said: str
    since: Instant | None = None


class PodCache(Protocol):
    def get(self, key: str) -> Object | None: ...
    def keys(self) -> Iterable[str]: ...
    def passed(self, version: str) -> bool: ...


class KubeExecutor:
    """Attentive: it keeps the work in mind, and looks at what the engine or the informer says has changed."""

    def __init__(
        self,
        client: Client,
        desk: Desk,
        cache: PodCache,
        *,
        fleet: str,
        state: Callable[[], State],
        seq: Callable[[], int],
        bind: bool = False,
        start_timeout: Micros = START_TIMEOUT,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._client, self._desk, self._cache = client, desk, cache
        self._fleet, self._state, self._seq = fleet, state, seq
        self._bind, self._start_timeout, self._changed = bind, start_timeout, changed
        self._work: dict[str, PodWork] = {}
        self._due: set[str] = set()
        """Pods to look at: something changed, or what was reported is not recorded yet."""
        self._born: dict[str, Object] = {}
        """Pods that we created, or looked for and found, and that the informer has not shown yet."""
        self._met: set[str] = set()
        """Pods that the informer has shown, or that were looked for in vain: if one is not there, it is gone."""
        self._refused: dict[str, str] = {}
        """Pods that could not be made, and why."""
        self._making: set[str] = set()
        """Pods that we have to make: they have time to start once they are there."""
        self._failing: dict[str, _Failing] = {}
        """Of these, the ones that the API server fails to make though it answers."""
        self._starting: dict[str, Instant] = {}
        """Pods that do not run yet, and by when they must."""
        self._orphans: set[str] = set()
        """Pods of ours that the engine does not keep, until they are gone."""
        self._asked: dict[str, tuple[str, bool, Instant]] = {}
        """Those that were asked to go: which object, whether by force, and when. A watch that lags shows them as they
        were, and is no reason to ask without end."""
        self._served: dict[str, tuple[str, int, int]] = {}
        """Runs that have their Service: which run it is, in which attempt, and of how many pods."""
        self._inbox: deque[str] = deque()
        """Pods of which a write has come to something, told by the loop's thread."""

    # -- the port --

    def reconcile(self, work: Sequence[PodWork], *, now: Instant) -> list[PodReport]:
        """Everything: at the beginning, and after the state was built anew. What is in it no longer is let go of, like
        what is dropped: a deadline that stayed would be due for ever, and the operator would never rest."""
        wanted = {item.pod.key: item for item in work}
        for key in self._work.keys() - wanted.keys():
            self._forget(key)
        self._work = wanted
        self._due = set(self._work)
        self._orphans |= {key for key in list(self._cache.keys()) if key not in self._work and self._is_ours(key)}
        return self._report(now)

    def revise(self, changed: Sequence[PodWork], *, dropped: Sequence[str], now: Instant) -> list[PodReport]:
        for item in changed:
            self._work[item.pod.key] = item
            self._due.add(item.pod.key)
        for key in dropped:
            self._forget(key)
        return self._report(now)

    def next_wake(self) -> Instant | None:
        return min(self._starting.values(), default=None)

    def saw(self, keys: Iterable[str]) -> None:
        """The informer has news of these pods. On the engine's thread."""
        for key in keys:
            if self._cache.get(key) is None and self._born.pop(key, None) is not None:
                self._met.add(key)  # it came and went between two looks
            if key in self._work:
                self._due.add(key)
            elif self._is_ours(key):
                self._orphans.add(key)

    @property
    def curious(self) -> bool:
        """Whether there is something to look at."""
        return bool(self._due or self._orphans or self._inbox)

    # -- looking --

    def _report(self, now: Instant) -> list[PodReport]:
        while self._inbox:
            self._due.add(self._inbox.popleft())
        due, self._due = self._due, set()
        due |= {key for key, deadline in self._starting.items() if deadline <= now} | self._overtaken()
        reports: list[PodReport] = []
        for item in (self._work[key] for key in sorted(due & self._work.keys())):
            found = self._look_at(item, now)
            reports += found
            if found:
                self._due.add(item.pod.key)  # until it is recorded
        for key in sorted(self._orphans):
            self._tidy(key, now)
        return reports

    def _overtaken(self) -> set[str]:
        """Pods that we created and whose time the informer has passed: it has shown them, or they came and went."""
        born = [(key, made["metadata"]["resourceVersion"]) for key, made in list(self._born.items())]
        passed = {key for key, version in born if self._cache.passed(version)}
        for key in passed:
            self._born.pop(key, None)
        self._met |= passed
        return passed

    def _look_at(self, item: PodWork, now: Instant) -> list[PodReport]:
        """What is news of one pod; and see to it that it becomes what it should be."""
        key, seen = item.pod.key, self._seen(item.pod.key)
        if seen is not None and seen.fleet != self._fleet:
            self._refused.setdefault(key, "a pod of this name is there already, and is not Tenure's")
            seen = None
        waits = item.known == "Placed" and not item.stop and (seen is None or seen.phase == "Pending")
        if waits and key not in self._refused:
            self._await(item, seen, now)
        if not waits or key in self._refused:
            self._starting.pop(key, None)
        if waits and key in self._refused:
            return [PodReport(key=key, phase="Failed", message=self._refused[key], at=now)]
        if seen is None and not self._is_gone(item):
            if waits:
                self._create(item)
            else:
                self._due.add(key)  # a write or a look is under way: when it has ended, there is more to know
            return []
        found = list(news(item, seen, now=now))
        self._act(item, seen)
        return found

    def _await(self, item: PodWork, seen: PodSeen | None, now: Instant) -> None:
        """Give a pod up whose time is over. It begins when the pod is there, or when it is first heard that the API
        server fails to make it: while that cannot be reached, nobody is late."""
        key, failing = item.pod.key, self._failing.get(item.pod.key)
        if seen is not None and key in self._making:
            self._making.discard(key)
            self._starting[key] = now + self._start_timeout
        elif seen is not None:
            self._starting.setdefault(key, item.since + self._start_timeout)
        elif failing is not None:
            failing.since = now if failing.since is None else failing.since
            self._starting[key] = failing.since + self._start_timeout
        else:
            self._starting.pop(key, None)
        if self._starting.get(key, now + 1) <= now:
            self._give_up(key, seen, now)

    def _give_up(self, key: str, seen: PodSeen | None, now: Instant) -> None:
        limit = f"within {self._start_timeout // MINUTE} minutes"
        if seen is not None:
            detail = f": {seen.message}" if seen.message else ""
            self._refused[key] = f"it did not start {limit}{detail}"
        elif not self._desk.drop(_write(key)):
            self._starting[key] = now + SECOND  # it is being tried just now: perhaps that helps
        elif (failing := self._failing.pop(key, None)) is not None:  # else it helped
            self._refused[key] = f"it could not be made {limit}: {failing.said}"

    def _seen(self, key: str) -> PodSeen | None:
        found = self._cache.get(key)
        if found is not None:
            self._met.add(key)
            self._born.pop(key, None)
        else:
            found = self._born.get(key)
        return None if found is None else look(found, fleet_key=FLEET, entry_key=ENTRY)

    def _is_gone(self, item: PodWork) -> bool:
        """Whether a pod that is not there was there, or will never be."""
        key = item.pod.key
        if item.stop and (not self._desk.drop(_write(key)) or self._desk.holds(_write(key))):
            return False
        if key in self._met or (not item.stop and item.known not in ("Placed", "Bound")):
            return True
        if (item.stop or item.known == "Bound") and not self._desk.holds(_look(key)):
            self._desk.put(_look(key), lambda: self._looked_for(item.pod), rank=POD)
        return False

    # -- acting --

    def _act(self, item: PodWork, seen: PodSeen | None) -> None:
        if seen is None:
            return
        if item.stop and not seen.leaving:
            self._delete(item.pod.key, seen, force=False)
        elif self._bind and not seen.node and not item.stop and item.known == "Placed":
            self._desk.put(_write(item.pod.key), lambda: self._bound(item.pod), rank=POD)

    def _create(self, item: PodWork) -> None:
        if self._desk.holds(_write(item.pod.key)):
            return
        row = self._state().runs[item.pod.run_key]
        resource = self._state().policy.gpu_resource
        body = pod_manifest(item.manifest, item.pod, row, fleet=self._fleet, seq=self._seq(), resource=resource,
                            bind=self._bind)  # fmt: skip
        if len(row.pods) > 1:
            self._serve(row, item.pod.attempt)
        self._making.add(item.pod.key)
        self._desk.put(_write(item.pod.key), lambda: self._created(item.pod, body), rank=POD)

    async def _created(self, pod: Pod, body: Object) -> None:
        key = pod.key
        try:
            made = await self._made(pod, body)
        except _NotMade as error:
            said, failing = escape(error.message)[:MESSAGE_MAX], self._failing.get(key)
            if failing is not None:
                failing.said = said
            else:
                self._failing[key] = _Failing(said)
                self._news(key)  # its time begins
            raise
        except ApiError as error:
            if error.code >= 500 or error.reason == UNREACHABLE:
                self._failing.pop(key, None)  # nobody answers, which is not about this pod
            raise
        self._failing.pop(key, None)
        if made is not None:
            self._born[key] = made
            if self._bind and not made["spec"].get("nodeName"):
                await self._bound(pod)
        self._news(key)

    async def _made(self, pod: Pod, body: Object) -> Object | None:
        """A pod, made now or before, by us or by another operator; None if it is refused."""
        try:
            return await self._client.create(PODS, body)
        except ApiError as error:
            if error.code == 401:
                raise NotTaken(error) from error  # who we are could not be told: nothing was said about the pod
            passes = error.transient or error.conflict  # a conflict is about something else: a quota that was changing
            if passes and not error.in_doubt:
                raise
            found = await self._found(pod.name, pod.namespace)
            if found is not None:
                return found
            if error.exists:
                raise NotTaken(error) from error  # it was there, and is gone again
            if error.code >= 500:
                raise _NotMade(error.code, error.reason, error.message, retry_after=error.retry_after) from error
            if passes:
                raise
            self._refused[pod.key] = escape(error.message)[:MESSAGE_MAX]
            return None

    async def _looked_for(self, pod: Pod) -> None:
        """Somebody may have made a pod of which our informer knows nothing yet."""
        found = await self._found(pod.name, pod.namespace)
        if found is None or (found["metadata"].get("annotations") or {}).get(FLEET) != self._fleet:
            self._met.add(pod.key)
        else:
            self._born[pod.key] = found
        self._news(pod.key)

    async def _found(self, name: str, namespace: str) -> Object | None:
        try:
            return await self._client.get(PODS, name, namespace)
        except ApiError as error:
            if error.not_found:
                return None
            if error.code in _NO_ANSWER:
                raise NotTaken(error) from error
            raise

    async def _bound(self, pod: Pod) -> None:
        """Bind a pod to its node; one that has a node already is bound."""
        body = binding_manifest(pod)
        try:
            await self._client.create(PODS, body, name=pod.name, subresource="binding")
        except ApiError as error:
            if error.code in _NO_ANSWER:
                raise NotTaken(error) from error
            if not error.conflict and not error.not_found:
                raise

    def _serve(self, row: RunRow, attempt: int) -> None:
        """The run's headless Service: seen to once for an attempt, and once more if that grows, for somebody may have
        deleted it meanwhile."""
        mark = (row.run.metadata.uid, attempt, len(row.pods))
        if self._served.get(row.key) != mark:
            body = service_manifest(row.namespace, row, fleet=self._fleet)
            name = f"Service/{row.namespace}/{body['metadata']['name']}"
            self._desk.put(name, lambda: self._serviced(row.key, body, mark), rank=POD)

    async def _serviced(self, key: str, body: Object, mark: tuple[str, int, int]) -> None:
        row = self._state().runs.get(key)
        if row is None or row.run.metadata.uid != mark[0] or not row.pods or self._served.get(key) == mark:
            return  # nobody is left to look for it, or it was asked for once for each pod
        try:
            await self._service(body, uid=mark[0])
        except ApiError as error:
            if error.code in _NO_ANSWER or error.not_found or error.exists:
                raise NotTaken(error) from error  # without it the run's pods never find one another
            raise
        self._served[key] = mark

    async def _service(self, body: Object, *, uid: str) -> None:
        """Make a Service, unless it is there."""
        meta = body["metadata"]
        try:
            await self._client.create(SERVICES, body)
        except ApiError as error:
            if not error.exists:
                raise
            found = await self._client.get(SERVICES, meta["name"], meta["namespace"])
            owners = [one.get("uid") for one in found["metadata"].get("ownerReferences") or ()]
            if uid not in owners and (found["metadata"].get("annotations") or {}).get(FLEET) == self._fleet:
                # It is of an earlier run of this name, and would be collected with it.
                await self._client.delete(SERVICES, meta["name"], meta["namespace"], uid=found["metadata"]["uid"])
                await self._client.create(SERVICES, body)

    def _delete(self, key: str, seen: PodSeen, *, force: bool) -> None:
        namespace, _, name = key.partition("/")

        async def write() -> None:
            try:
                await self._client.delete(PODS, name, namespace, uid=seen.uid, grace_seconds=0 if force else None)
            except ApiError as error:
                if error.code in _NO_ANSWER:
                    raise NotTaken(error) from error  # until it is gone somebody works on GPUs that are not his
                if not error.not_found and not (error.conflict and await self._is_another(name, namespace, seen.uid)):
                    raise
                if self._born.pop(key, None) is not None:
                    self._met.add(key)
                    self._news(key)

        self._desk.put(_write(key), write, rank=POD)

    async def _is_another(self, name: str, namespace: str, uid: str) -> bool:
        """Whether a pod is gone, though perhaps another has its name."""
        found = await self._found(name, namespace)
        return found is None or bool(found["metadata"]["uid"] != uid)

    # -- what is no longer wanted --

    def _forget(self, key: str) -> None:
        """The engine keeps a pod no longer: whatever is left of it goes."""
        item = self._work.pop(key, None)
        if item is not None and ((row := self._state().runs.get(item.pod.run_key)) is None or not row.pods):
            self._served.pop(item.pod.run_key, None)  # it was the last of its run
        self._due.discard(key)
        self._refused.pop(key, None)
        self._starting.pop(key, None)
        self._making.discard(key)
        self._failing.pop(key, None)
        self._desk.drop(_write(key))
        self._orphans.add(key)

    def _tidy(self, key: str, now: Instant) -> None:
        """Take away a pod that the engine does not keep, if it is ours and not newer than what we know."""
        seen = self._seen(key)
        if seen is None and (not self._desk.drop(_write(key)) or self._desk.holds(_look(key))):
            return  # a create or a look is under way; it is looked at again when that has ended, and not tried again
        if seen is None or seen.fleet != self._fleet or key in self._state().pods:
            self._orphans.discard(key)
            self._asked.pop(key, None)
            self._failing.pop(key, None)
            self._born.pop(key, None)
            self._met.discard(key)
            return
        node = self._state().topology.rows.get(seen.node)
        dead = node is None or is_fenced(node.node)
        if seen.seq > self._seq() or (seen.leaving and not dead):
            return
        uid, forced, at = self._asked.get(key, ("", False, 0))
        if (uid, forced) != (seen.uid, dead) or now - at >= ASK_AGAIN:
            self._asked[key] = (seen.uid, dead, now)
            self._delete(key, seen, force=dead)

    def _is_ours(self, key: str) -> bool:
        found = self._cache.get(key)
        return found is not None and (found["metadata"].get("annotations") or {}).get(FLEET) == self._fleet

    def _news(self, key: str) -> None:
        """Something became of a write, on the loop's thread."""
        self._inbox.append(key)
        self._changed()


def _write(key: str) -> str:
    return f"Pod/{key}"


def _look(key: str) -> str:
    return f"Pod/{key}?"
