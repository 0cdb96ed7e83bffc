"""The three ways in, each in this process: the command line, an embedded fleet that is driven, and the webhook.

The command line and the fleet get the text. A webhook gets objects, so it gets what a lenient client would make of the
text: a key twice is once, an alias is what it stands for; what nobody can make an object of is sent as it is. The API
server has looked after the metadata by then.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from aiohttp import web
from msgspec import Struct

from tenure.api.budget import Budget
from tenure.api.decode import read, read_tree
from tenure.api.defaults import default
from tenure.api.errors import FieldError
from tenure.api.meta import to_wire
from tenure.api.run import Run
from tenure.engine import Apply, Delete, intake, render
from tenure.engine.state import State
from tenure.kube.manifests import pod_manifest
from tenure.kube.webhook import BODY_BYTES_MAX, Webhook
from tenure.ledger import Ledger
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.simulated import SimulatedExecutor
from tenure.units import MINUTE, Instant
from tests.cli.support import call, create

Tree = dict[str, Any]
Answer = TypeVar("Answer")
GPU = "nvidia.com/gpu"
SENT_MAX = 200_000
"""Values that a client makes of aliases before its own memory ends."""
SENT_OBJECTS_MAX = 40
"""Objects of one text that are sent: each is a call of its own, and they are alike."""


class Told(Struct, frozen=True):
    """What a surface answered: ``taken`` objects in their normal form by name, or lines of words why not."""

    taken: dict[str, Any] = {}
    why: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    fault: str = ""
    """What no answer may be: a traceback, raw control characters, something written after a no."""


class CommandLine:
    """``kubectl runs submit -f -`` on a fleet of its own, which nobody drives."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.fleet = create(folder)

    def ask(self, text: bytes) -> Told:
        before, files = self._stored()
        done = call("runs", "submit", "-f", "-", "-n", "rai", fleet=self.fleet, stdin=text)
        after, files_after = self._stored()
        fault = _unsafe(done.out + done.err)
        if "Traceback" in done.err or done.code not in (0, 2):
            fault = f"exit code {done.code}: {done.err[-300:]}"
        elif files != files_after:
            fault = f"files appeared: {sorted(files_after - files)}"
        elif done.code == 2 and before != after:
            fault = "refused, and written to the ledger"
        elif done.code == 2 and not ("error: " in done.err and "next: " in done.err):
            fault = f"refused without words: {done.err[:200]}"
        if done.code == 0:
            return Told(taken=self._taken(before), fault=fault)
        lines = done.err.splitlines()
        return Told(
            why=tuple(line.removeprefix("error: ") for line in lines if line.startswith("error: ")), fault=fault
        )

    def show(self, key: str) -> str:
        """What the other verbs print of a run; the fault in it, if any."""
        namespace, _, name = key.partition("/")
        for verb in ("describe", "explain", "list"):
            words = ["-n", namespace] if verb == "list" else [name, "-n", namespace]
            done = call("runs", verb, *words, fleet=self.fleet)
            if done.code not in (0, 3, 4):
                return f"{verb} ended with {done.code}: {done.err[-200:]}"
            if unsafe := _unsafe(done.out + done.err):
                return f"{verb}: {unsafe}"
        return ""

    def _stored(self) -> tuple[int, frozenset[str]]:
        with Ledger.open(self.fleet, readonly=True) as ledger:
            names = (each.name for each in self.fleet.parent.rglob("*"))
            return ledger.head.seq, frozenset(name for name in names if not name.endswith(("-wal", "-shm")))

    def _taken(self, after: int) -> dict[str, Any]:
        with Ledger.open(self.fleet, readonly=True) as ledger:
            facts = [fact for entry in ledger.entries(after) for fact in entry.facts]
        return dict(_normal(fact.object) for fact in facts if isinstance(getattr(fact, "object", None), Run | Budget))


class Driven:
    """An embedded fleet whose driver decides at once, with pods that are only pretended."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        path = create(folder)
        self._ledger = Ledger.open(path)
        self.home = Home(LedgerStore(self._ledger), SimulatedExecutor())
        self.now: Instant = self.home.state.now
        self.home.drive(now=self.now)

    def close(self) -> None:
        self._ledger.close()

    @property
    def state(self) -> State:
        return self.home.state

    def ask(self, text: bytes) -> Told:
        return self._answer(read(text, source="standard input"))

    def ask_tree(self, tree: Any) -> Told:
        """The same for what a client made of it; nothing is taken in."""
        try:
            reading = read(json.dumps(tree))
        except (ValueError, TypeError, RecursionError):  # what no client can send
            reading = read_tree(tree)
        errors = reading.errors or _checked(self.state, reading.objects)
        return Told(why=tuple(each.sentence() for each in errors), paths=tuple(each.path for each in errors))

    def serve(self) -> str:
        """Clear the field, then take an honest run: it must start."""
        self.now += MINUTE
        gone = [Delete(kind="Run", namespace=row.namespace, name=row.name) for row in self.state.runs.values()]
        self.home.handle(*gone, now=self.now)
        self._drive()
        from proof.hostile.parts import run

        honest = run("honest")
        told = self.ask(json.dumps(honest).encode())
        row = self.state.runs.get("rai/honest")
        if told.fault or row is None or not row.pods:
            return f"an honest run did not start afterwards: {told.why or (row and row.life.message)}"
        self.home.handle(Delete(kind="Run", namespace="rai", name="honest"), now=self.now)
        self._drive()
        return ""

    def forget(self, told: Told) -> None:
        """Take away what was taken in: one manifest is not to be judged by the company of another."""
        names = [key.removeprefix("Run/") for key in told.taken if key.startswith("Run/")]
        gone = [Delete(kind="Run", namespace=row.namespace, name=row.name)
                for row in self.state.runs.values() if row.name in names]  # fmt: skip
        if gone:
            self.home.handle(*gone, now=self.now)
            self.home.drive(now=self.now)

    def _drive(self) -> None:
        for _ in range(4):
            self.now += 2 * MINUTE
            self.home.drive(now=self.now)

    def _answer(self, reading: Any) -> Told:
        if reading.errors:
            return _refused(reading.errors)
        before = self._ledger.head.seq
        objects = tuple(_placed(each) for each in reading.objects)
        outcome = self.home.handle(Apply(objects), now=self.now)[0]
        if outcome.refused:
            told = _refused(outcome.refused)
            written = self._ledger.head.seq != before
            return msgspec.structs.replace(told, fault="refused, and written to the ledger") if written else told
        self.home.drive(now=self.now)
        names = [(each.kind, each.metadata.namespace, each.metadata.name) for each in objects]
        taken = [self._found(*name) for name in names if name[0] in ("Run", "Budget")]
        return Told(taken=dict(_normal(each) for each in taken), fault=self._pods(names))

    def _found(self, kind: str, namespace: str, name: str) -> Run | Budget:
        return self.state.runs[f"{namespace}/{name}"].run if kind == "Run" else self.state.budgets[name]

    def _pods(self, names: list[tuple[str, str, str]]) -> str:
        """Pods as a cluster would get them: what the scheduler gives is the scheduler's, whatever a template says."""
        for kind, namespace, name in names:
            row = self.state.runs.get(f"{namespace}/{name}") if kind == "Run" else None
            for item in row.pods.values() if row is not None else ():
                made = to_wire(render.pod(row, item, GPU))
                pod = pod_manifest(made, item.pod, row, fleet="f", seq=1, resource=GPU, bind=False)
                first, *others = pod["spec"]["containers"]
                ours = (
                    pod["spec"]["nodeName"] == item.pod.node
                    and pod["metadata"]["name"] == item.pod.name
                    and pod["metadata"]["labels"]["rq.davidlangworthy.io/run"] == name
                    and first["resources"]["limits"][GPU] == str(len(item.pod.gpus))
                    and not any(GPU in json.dumps(one) for one in (*others, *(pod["spec"].get("initContainers") or ())))
                    and not any(each["name"] == "CUDA_VISIBLE_DEVICES" for each in first["env"])
                )
                if not ours:
                    return f"a pod got what its template asked for: {json.dumps(pod)[:300]}"
        return ""


class Hook:
    """The webhook's own code, given whole bodies."""

    def __init__(self, known: Callable[[], State]) -> None:
        self._webhook = Webhook(None, known=known)  # type: ignore[arg-type]  # no certificate: nothing listens

    def ask(self, text: bytes, trees: list[Tree]) -> list[tuple[Any, Told]]:
        """For each object that a client made of the text: the object, and the answer; (None, answer) for the text.

        Of other kinds no webhook is asked."""
        asked = [tree for tree in trees if tree.get("kind") in ("Run", "Budget")]
        return [(tree, self._object(tree)) for tree in asked] if trees else [(None, self._body(text[:BODY_BYTES_MAX]))]

    def _body(self, body: bytes, *, patching: bool = True) -> Told:
        try:
            response = self._webhook._judged(body, patching=patching)
        except web.HTTPBadRequest as refusal:
            return Told(why=(str(refusal.text),))
        found: Tree = msgspec.json.decode(response.body)["response"]
        if found["allowed"]:
            return Told(taken={"patch": found.get("patch", "")})
        message = found["status"]["message"]
        fault = _unsafe(message) or (
            "" if found["status"]["code"] == 422 and len(message) < 20_000 else "an odd refusal"
        )
        causes = found["status"]["details"]["causes"]
        return Told(why=tuple(message.split("\n")), paths=tuple(each["field"] for each in causes), fault=fault)

    def _object(self, tree: Tree) -> Told:
        kind, meta = tree["kind"], tree["metadata"] if isinstance(tree.get("metadata"), dict) else {}
        request = {
            "uid": "u", "operation": "CREATE",
            "kind": {"group": "rq.davidlangworthy.io", "version": "v1", "kind": kind},
            "name": _word(meta.get("name")),
            "namespace": _word(meta.get("namespace")) or ("rai" if kind == "Run" else ""),
            "object": tree,
        }  # fmt: skip
        try:
            body = json.dumps(
                {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
            ).encode()
        except (TypeError, RecursionError, ValueError) as error:
            return Told(why=(f"no client can send it ({type(error).__name__})",))
        if len(body) > BODY_BYTES_MAX:
            return Told(why=("the API server reads no more than 3 MiB",))
        told, again = self._body(body), self._body(body, patching=False)
        if bool(told.why) != bool(again.why):
            return Told(fault="the two calls of the webhook disagree")
        if told.why:
            return told
        return Told(taken=self._stored(tree, told.taken["patch"], request["namespace"]))

    @staticmethod
    def _stored(tree: Tree, patch: str, namespace: str) -> dict[str, Any]:
        """What the API server would keep and the operator read: the object with the patch."""
        tree = json.loads(json.dumps(tree))
        for step in json.loads(base64.b64decode(patch)) if patch else ():
            *parents, last = step["path"].removeprefix("/").split("/")
            place = tree
            for each in parents:
                place = place[each]
            place[last] = step["value"]
        meta = tree.get("metadata") if isinstance(tree.get("metadata"), dict) else {}
        named = {"name": _word(meta.get("name")) or "unnamed", **({"namespace": namespace} if namespace else {})}
        reading = read_tree({**{key: tree[key] for key in ("kind", "spec")}, "metadata": named})
        return dict(_normal(each) for each in reading.objects)  # type: ignore[arg-type]


def _checked(state: State, objects: Any) -> list[FieldError]:
    return intake.check(state, tuple(_placed(each) for each in objects))


def _placed(item: Any) -> Any:
    """In the namespace that -n says, if it names none."""
    if item.kind != "Run" or item.metadata.namespace:
        return item
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, namespace="rai"))


def _normal(item: Run | Budget) -> tuple[str, Any]:
    return f"{item.kind}/{item.metadata.name}", to_wire(default(item, namespace=None).spec)


def _refused(errors: Any) -> Told:
    lines = tuple(each.sentence() for each in errors)
    fault = _unsafe("\n".join(lines))
    if any(not each.problem or not each.fix for each in errors):
        fault = "an error that does not say what would be right"
    return Told(why=lines, paths=tuple(each.path for each in errors), fault=fault)


def _unsafe(text: str) -> str:
    """Raw control characters, or a screen full of somebody's text."""
    bad = sorted({char for char in text if not char.isprintable() and char not in "\n\t"})
    if bad:
        return f"raw characters on the terminal: {bad!r}"
    return f"{len(text)} characters of answer" if len(text) > 80_000 else ""


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def made(text: bytes) -> Iterator[Tree]:
    """Objects as a lenient client reads them, as far as one can."""
    if len(text) > BODY_BYTES_MAX:
        return
    try:
        whole = json.loads(text)
        found = [whole]
    except (ValueError, RecursionError):
        found = _yaml(text)
    for tree in found[:SENT_OBJECTS_MAX]:
        items = tree.get("items") if isinstance(tree, dict) and tree.get("kind") == "List" else tree
        for item in items if isinstance(items, list) else [tree]:
            if isinstance(item, dict) and _values(item, SENT_MAX) > 0:
                yield item


def _yaml(text: bytes) -> list[Any]:
    if text.count(b"[") + text.count(b"{") > 2000 or text.count(b"- ") > 20_000 or text.count(b"? ") > 2000:
        return []  # the loader of this harness recurses; Kubernetes' own clients refuse such depths, too
    try:
        return [
            each
            for each in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            if each is not None
        ]
    except Exception:  # whatever that loader trips over, a client does not send
        return []


def _values(tree: Any, most: int) -> int:
    """What is left of ``most`` after counting the values in a tree with its aliases spelled out; 0: too many."""
    waiting = [tree]
    while waiting and most > 0:
        each = waiting.pop()
        most -= 1
        if isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
    return max(0, most)
