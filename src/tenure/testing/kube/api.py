"""Calls to an API server in few words, for tests: who calls, what is asked, and the answer as plain data.

Synchronous, on the standard library, and knowing nothing of Tenure's own client. Threads may share a caller.
"""

from __future__ import annotations

import copy
import http.client
import json
import ssl
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tenure.testing.kube.waiting import PATIENCE

Object = dict[str, Any]
JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
FIELD_MANAGER = "tenure-testing"
SECONDS = PATIENCE


class Refused(Exception):
    """The API server said no, where yes was expected."""


class Answer(NamedTuple):
    """A status code and what came with it."""

    status: int
    body: Object

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    def must(self) -> Object:
        """The body; raises Refused when the server said no."""
        if not self.ok:
            raise Refused(f"{self.status}: {self.message or self.body}")
        return self.body


class Api:
    """One caller of one API server: by certificate, by token, by either in the name of another, or as nobody."""

    def __init__(
        self,
        server: str,
        authority: Path,
        *,
        certificate: tuple[Path, Path] | None = None,
        token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._host = urlsplit(server).netloc
        self._tls = ssl.create_default_context(cafile=str(authority))
        if certificate:
            self._tls.load_cert_chain(*certificate)
        self._headers = [*(headers or {}).items(), *([("Authorization", f"Bearer {token}")] if token else [])]
        self._idle: list[http.client.HTTPSConnection] = []

    def acting_as(self, user: str, *groups: str) -> Api:
        """The same caller, on the same connections, in the name of another user (it must be allowed to)."""
        other = copy.copy(self)
        other._headers = [*self._headers, ("Impersonate-User", user), *(("Impersonate-Group", each) for each in groups)]
        return other

    def call(self, method: str, path: str, body: Object | None = None, *, form: str = JSON) -> Answer:
        """Any request."""
        content = None if body is None else json.dumps(body).encode()
        while self._idle:
            try:
                return self._exchange(self._idle.pop(), method, path, content, form)
            except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError, IndexError):
                continue  # the server had closed an idle connection, or another thread took the last one
        fresh = http.client.HTTPSConnection(self._host, timeout=SECONDS, context=self._tls)
        return self._exchange(fresh, method, path, content, form)

    def _exchange(
        self, connection: http.client.HTTPSConnection, method: str, path: str, content: bytes | None, form: str
    ) -> Answer:
        try:
            connection.putrequest(method, path)
            for name, value in [("Accept", JSON), *self._headers]:
                connection.putheader(name, value)
            if content is not None:
                connection.putheader("Content-Type", form)
                connection.putheader("Content-Length", str(len(content)))
            connection.endheaders(content)
            response = connection.getresponse()
            text = response.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        if response.headers.get_content_type() == JSON:
            return Answer(response.status, json.loads(text))
        return Answer(response.status, {"message": text.decode(errors="replace")})

    def close(self) -> None:
        """Close all idle connections; a later call opens another."""
        while self._idle:
            self._idle.pop().close()

    # ---- the verbs ----

    def get(self, path: str) -> Answer:
        return self.call("GET", path)

    def create(self, obj: Object, *, dry_run: bool = False) -> Answer:
        """Create an object at the place that its kind and namespace say."""
        return self.call("POST", collection(obj) + ("?dryRun=All" if dry_run else ""), obj)

    def apply(self, obj: Object) -> Answer:
        """Create or change an object, by server-side apply."""
        query = f"?fieldManager={FIELD_MANAGER}&force=true"
        return self.call("PATCH", path_of(obj) + query, obj, form=APPLY)

    def patch(self, path: str, change: Object) -> Answer:
        """Change an object, by merge patch."""
        return self.call("PATCH", path, change, form=MERGE)

    def replace(self, obj: Object, subresource: str = "") -> Answer:
        return self.call("PUT", path_of(obj) + (f"/{subresource}" if subresource else ""), obj)

    def delete(self, path: str, *, grace: int | None = None) -> Answer:
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        return self.call("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    def create_all(self, objects: Iterable[Object], *, at_once: int = 8) -> None:
        """Create many objects fast; raises Refused when the server refuses one."""
        with ThreadPoolExecutor(at_once) as pool:
            for answer in pool.map(self.create, objects):
                answer.must()


# ---- where objects live ----

# What lower case and an "s" do not give. A scope is told from the object: it has a namespace or it has none.
_PLURALS = {
    "LedgerEntry": "ledgerentries",
    "NetworkPolicy": "networkpolicies",
    "PriorityClass": "priorityclasses",
    "RuntimeClass": "runtimeclasses",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}


def plural(kind: str) -> str:
    """The name of a kind in paths.

    >>> plural("Pod"), plural("ValidatingAdmissionPolicy")
    ('pods', 'validatingadmissionpolicies')
    """
    return _PLURALS.get(kind, kind.lower() + "s")


def collection(obj: Object) -> str:
    """The path under which an object is created.

    >>> collection({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "a"}})
    '/apis/apps/v1/namespaces/a/deployments'
    """
    version: str = obj["apiVersion"]
    namespace = obj["metadata"].get("namespace")
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{base}/namespaces/{namespace}/{plural(obj['kind'])}" if namespace else f"{base}/{plural(obj['kind'])}"


def path_of(obj: Object) -> str:
    """The path of an object.

    >>> path_of({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    '/api/v1/nodes/n'
    """
    return f"{collection(obj)}/{obj['metadata']['name']}"
