"""A cluster without machines: etcd, kube-apiserver and the controllers of its own objects, on loopback.

What is real: the API server with RBAC, admission (ValidatingAdmissionPolicy too), certificates, service accounts
and their tokens; garbage collection, the end of namespaces, default service accounts. What is not: no scheduler and
no kubelets (``kwok`` plays those), and etcd does not wait for the disk unless ``durable``: it may forget
what it promised when the machine loses power, which no test survives anyway.

    with ControlPlane.started(folder, programs) as plane:
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}).must()
        plane.kubectl("get", "namespaces")

Clusters share nothing but the loopback interface: start as many as memory holds. ``folder`` keeps the logs.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tenure.kube.signing import new_key, private_pem
from tenure.testing.kube.api import Api, Object
from tenure.testing.kube.certs import Authority, Pair, public_pem, write_secret
from tenure.testing.kube.process import NotStarted, Program, free_ports
from tenure.testing.kube.waiting import PATIENCE

READY_SECONDS = 2 * PATIENCE
ATTEMPTS = 3
ISSUER = "https://kubernetes.default.svc"
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SERVICE_ADDRESSES = "10.0.0.0/16"
CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "validatingadmissionpolicy-status-controller",  # checks the types in policies
)


class ControlPlane:
    """A running cluster. ``started`` is the way to get one; ``start`` is for clusters that outlive the caller."""

    def __init__(self, folder: Path, programs: Mapping[str, Path], *, durable: bool = False, outlive: bool = False):
        self.folder, self.programs, self.durable, self.outlive = folder.resolve(), programs, durable, outlive
        self._pki = self.folder / "pki"
        self._pki.mkdir(parents=True)
        self._authority = Authority()
        self.authority = self._pki / "ca.crt"
        self.authority.write_bytes(self._authority.certificate)
        tokens = new_key()
        write_secret(self._pki / "tokens.key", private_pem(tokens))
        (self._pki / "tokens.pub").write_bytes(public_pem(tokens))
        self._authority.server((*SERVER_NAMES, "127.0.0.1", "10.0.0.1")).write(self._pki, "server")
        self._admin = self._authority.client("admin", ("system:masters",))
        self._admin.write(self._pki, "admin")

    @classmethod
    @contextmanager
    def started(cls, folder: Path, programs: Mapping[str, Path], *, durable: bool = False) -> Iterator[ControlPlane]:
        """A cluster for the length of a block; its data goes afterwards, its logs stay in the folder."""
        plane = cls(folder, programs, durable=durable)
        try:
            plane.start()
            yield plane
        finally:
            plane.stop()
            shutil.rmtree(plane.folder / "etcd", ignore_errors=True)

    # ---- starting and stopping ----

    def start(self) -> None:
        """Start everything and return when it answers. On failure nothing runs, and the logs' ends are shown."""
        for attempt in range(1, ATTEMPTS + 1):
            self._plan(*free_ports(3))
            try:
                self._bring_up()
                return
            except BaseException as error:
                self.stop()
                # Between looking for a free port and listening on it, somebody else may take it.
                if attempt == ATTEMPTS or not (isinstance(error, NotStarted) and _port_taken(str(error))):
                    raise

    def _plan(self, store_port: int, peer_port: int, server_port: int) -> None:
        """What will run, on which ports."""
        self.server = f"https://127.0.0.1:{server_port}"
        store = f"http://127.0.0.1:{store_port}"
        self._callers: list[Api] = []
        self.api = self._caller(certificate=(self._pki / "admin.crt", self._pki / "admin.key"))
        self.admin = self._kubeconfig("admin", _by_certificate(self._admin))
        self.etcd = self._program("etcd", self._etcd_flags(store, f"http://127.0.0.1:{peer_port}"))
        self.apiserver = self._program("kube-apiserver", self._server_flags(store, server_port))
        self.controllers = self._program("kube-controller-manager", self._controller_flags())

    def _bring_up(self) -> None:
        self.etcd.start()
        self.apiserver.start()  # it waits for etcd by itself
        self.apiserver.wait(lambda: self.answers or not self.etcd.running, READY_SECONDS)
        self.etcd.wait(lambda: self.etcd.running, READY_SECONDS)
        self.controllers.start()
        self.namespace("default")

    def stop(self) -> None:
        """Stop everything, the store last."""
        for caller in self._callers:
            caller.close()
        for program in (self.controllers, self.apiserver, self.etcd):
            program.stop()

    def restart_server(self) -> None:
        """Start the API server again after it was killed; address and data are the same."""
        self.apiserver.start()
        self.apiserver.wait(lambda: self.answers, READY_SECONDS)

    @property
    def answers(self) -> bool:
        """Whether the API server says that it is ready."""
        try:
            return self.api.get("/readyz").ok
        except OSError:
            return False

    @property
    def pids(self) -> dict[str, int]:
        """The processes, by the names of their programs."""
        return {each.name: each.pid for each in (self.etcd, self.apiserver, self.controllers)}

    def _program(self, name: str, flags: Mapping[str, Any]) -> Program:
        arguments = [f"--{flag}={value}" for flag, value in flags.items()]
        command = [str(self.programs[name]), *arguments]
        return Program(name, command, self.folder / f"{name}.log", outlive=self.outlive)

    def _etcd_flags(self, store: str, peer: str) -> dict[str, Any]:
        return {
            "data-dir": self.folder / "etcd",
            "listen-client-urls": store,
            "advertise-client-urls": store,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "log-level": "warn",
            **({} if self.durable else {"unsafe-no-fsync": "true"}),
        }

    def _server_flags(self, store: str, port: int) -> dict[str, Any]:
        return {
            "etcd-servers": store,
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "tls-cert-file": self._pki / "server.crt",
            "tls-private-key-file": self._pki / "server.key",
            "client-ca-file": self.authority,
            "authorization-mode": "RBAC",
            "anonymous-auth": "true",  # as in most clusters: RBAC is what refuses it
            "service-account-issuer": ISSUER,
            "service-account-key-file": self._pki / "tokens.pub",
            "service-account-signing-key-file": self._pki / "tokens.key",
            "service-cluster-ip-range": SERVICE_ADDRESSES,
            "endpoint-reconciler-type": "none",  # a loopback address is no endpoint of a Service
            "enable-aggregator-routing": "true",  # webhooks named by Service: no kube-proxy here, so by endpoints
            "allow-privileged": "true",
            "shutdown-delay-duration": "0s",
        }

    def _controller_flags(self) -> dict[str, Any]:
        return {
            "kubeconfig": self.admin,
            "controllers": ",".join(CONTROLLERS),
            "service-account-private-key-file": self._pki / "tokens.key",
            "root-ca-file": self.authority,
            "leader-elect": "false",
            "secure-port": 0,
        }

    # ---- who may call ----

    def user(self, name: str, *groups: str) -> Path:
        """The kubeconfig of a person, known to the API server by certificate."""
        return self._kubeconfig(f"user-{name}", _by_certificate(self._authority.client(name, groups)))

    def service_account(self, namespace: str, name: str) -> Path:
        """The kubeconfig of a service account, with a token that the API server issued. It is made if not there."""
        return self._kubeconfig(f"{namespace}-{name}", {"token": self.token(namespace, name)})

    def token(self, namespace: str, name: str, *, seconds: int = 86_400) -> str:
        """A token of a service account, which is made if it is not there."""
        self.ensure(_service_account(namespace, name))
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        token: str = self.api.call("POST", path, asked).must()["status"]["token"]
        return token

    def anonymous(self) -> Api:
        """A caller that says nothing about itself."""
        return self._caller()

    def bearer(self, token: str) -> Api:
        """A caller with a token."""
        return self._caller(token=token)

    def _caller(self, **credentials: Any) -> Api:
        self._callers.append(caller := Api(self.server, self.authority, **credentials))
        return caller

    def _kubeconfig(self, name: str, credentials: Object) -> Path:
        cluster = {"server": self.server, "certificate-authority-data": _base64(self._authority.certificate)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tenure", "cluster": cluster}],
            "users": [{"name": name, "user": credentials}],
            "contexts": [{"name": "tenure", "context": {"cluster": "tenure", "user": name}}],
            "current-context": "tenure",
        }
        path = self.folder / f"{re.sub(r'[^a-z0-9.-]+', '-', name.lower())}.kubeconfig"
        write_secret(path, yaml.safe_dump(content, sort_keys=False).encode())
        return path

    # ---- what tests do most ----

    def ensure(self, obj: Object) -> None:
        """Create an object unless it is there."""
        answer = self.api.create(obj)
        if answer.status != 409:
            answer.must()

    def namespace(self, name: str, **annotations: str) -> str:
        """Make a namespace that takes pods at once: its default service account is there on return."""
        metadata = {"name": name, "annotations": annotations}
        self.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self.ensure(_service_account(name, "default"))
        return name

    def kubectl(
        self, *arguments: str, config: Path | None = None, given: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run the real kubectl, as the administrator unless another kubeconfig is given."""
        command = [str(self.programs["kubectl"]), f"--kubeconfig={config or self.admin}", *arguments]
        environment = {**os.environ, "HOME": str(self.folder), "KUBECONFIG": ""}
        done = subprocess.run(command, env=environment, input=given, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done


def _service_account(namespace: str, name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def _by_certificate(pair: Pair) -> Object:
    return {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _port_taken(text: str) -> bool:
    return "address already in use" in text
