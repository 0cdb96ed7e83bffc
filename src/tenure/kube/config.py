"""How to reach an API server: from a kubeconfig, or from inside a pod.

    access = discover()                                  # inside a pod: its service account; else the kubeconfig
    access = from_kubeconfig(Path("k.yaml"), context="lab")

An ``Access`` is plain data: an address, whom to trust, and who we are. Client certificates and tokens are understood;
helpers that print credentials (``exec``, ``auth-provider``) are refused by name, since running programs that a file
names is not this client's business. A token that is kept in a file is read again as it is replaced.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

POD_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_AGE_SECONDS = 60.0
"""A token file is read again when what we have is older than this: the kubelet replaces it well before it expires."""


Helper = Callable[[dict[str, Any], Path, dict[str, Any]], dict[str, str]]
"""What a user's ``exec`` says, in which file, for which cluster: ``token``, ``certificate`` and ``key``."""


class NoAccess(Exception):
    """There is no way to an API server in what was given; the message says what is missing."""


class Access(Struct, frozen=True, kw_only=True):
    """Where an API server is, whom to trust, and who we are."""

    server: str
    ca: str = ""
    """Certificates to trust, as PEM; empty for the system's own."""
    server_name: str = ""
    """The name to expect in the server's certificate, where it is not the host of ``server``."""
    insecure: bool = False
    certificate: str = ""
    key: str = ""
    token: str = ""
    token_file: str = ""
    namespace: str = "default"
    context: str = ""

    def tls(self) -> ssl.SSLContext | None:
        """What to encrypt with; None for plain HTTP."""
        if not self.server.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cadata=self.ca or None)
            if self.insecure:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if self.certificate:
                _load_pair(context, self.certificate, self.key)
        except (ssl.SSLError, ValueError) as error:
            raise NoAccess(f"The certificates for {self.server} cannot be used: {error}.") from error
        return context

    def bearer(self, clock: Callable[[], float] = time.monotonic) -> Bearer:
        """The token to send, kept fresh."""
        return Bearer(self, clock)


class Bearer:
    """A token, read again from its file now and then, and at once after the server has refused it."""

    def __init__(self, access: Access, clock: Callable[[], float]) -> None:
        self._file = Path(access.token_file) if access.token_file else None
        self._clock = clock
        self._token = access.token
        self._read: float | None = None

    def headers(self) -> dict[str, str]:
        """What to add to a request."""
        if self._file is not None and (self._read is None or self._clock() - self._read > TOKEN_AGE_SECONDS):
            self.refresh()
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def refresh(self) -> bool:
        """Read the file again; True if it holds another token than before."""
        if self._file is None:
            return False
        before = self._token
        try:
            self._token = self._file.read_text().strip()
        except OSError as error:
            if not before:
                raise NoAccess(f"The token {self._file} cannot be read: {error.strerror}.") from error
        self._read = self._clock()
        return self._token != before


def discover(environment: Mapping[str, str] | None = None) -> Access:
    """The API server that this process is meant to talk to: ``KUBECONFIG``, the pod it is in, or ``~/.kube/config``."""
    environment = os.environ if environment is None else environment
    return in_cluster(environment) if in_a_pod(environment) else from_kubeconfig(environment=environment)


def in_a_pod(environment: Mapping[str, str] | None = None) -> bool:
    """Whether this process is in a pod and was told of no other cluster."""
    environment = os.environ if environment is None else environment
    inside = environment.get("KUBERNETES_SERVICE_HOST") and (POD_FOLDER / "token").exists()
    return not environment.get("KUBECONFIG") and bool(inside)


def in_cluster(environment: Mapping[str, str] | None = None, folder: Path = POD_FOLDER) -> Access:
    """From inside a pod: its service account."""
    environment = os.environ if environment is None else environment
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise NoAccess("This is no pod: KUBERNETES_SERVICE_HOST is not set.")
    name = f"[{host}]" if ":" in host else host
    namespace = folder / "namespace"
    return Access(
        server=f"https://{name}:{port}",
        ca=_text(folder / "ca.crt"),
        token_file=str(folder / "token"),
        namespace=_text(namespace).strip() if namespace.exists() else "default",
        context="in-cluster",
    )


def from_kubeconfig(
    path: Path | None = None,
    *,
    context: str | None = None,
    environment: Mapping[str, str] | None = None,
    helper: Helper | None = None,
) -> Access:
    """One context of a kubeconfig; without a path of ``KUBECONFIG`` (the first file wins) or of the home folder.

    ``helper`` runs a program that the file names for credentials; without one such users are refused.
    """
    environment = os.environ if environment is None else environment
    paths = [path] if path is not None else _kubeconfigs(environment)
    files = [(file, _parsed(file)) for file in paths if file.exists()]
    if not files:
        raise NoAccess(f"There is no kubeconfig at {', '.join(str(file) for file in paths)}.")
    chosen = context or next((str(data["current-context"]) for _, data in files if data.get("current-context")), "")
    if not chosen:
        raise NoAccess(f"{files[0][0]} has no current context: choose one.")
    entry, _ = _find(files, "contexts", "context", chosen)
    cluster, cluster_file = _find(files, "clusters", "cluster", str(entry.get("cluster", "")))
    user, user_file = ({}, files[0][0]) if not entry.get("user") else _find(files, "users", "user", str(entry["user"]))
    helped: dict[str, str] = {}
    for name in ("exec", "auth-provider"):
        if name == "exec" and name in user and helper is not None:
            helped = helper(user[name], user_file, cluster)
        elif name in user:
            raise NoAccess(
                f"User {entry['user']} of {user_file} gets its credentials from a helper program ({name}), which "
                "Tenure does not run. Use a client certificate, a token or a token file."
            )
    return Access(
        server=str(cluster.get("server", "")).rstrip("/"),
        ca=_material(cluster, "certificate-authority", cluster_file),
        server_name=str(cluster.get("tls-server-name") or ""),
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        certificate=helped.get("certificate") or _material(user, "client-certificate", user_file),
        key=helped.get("key") or _material(user, "client-key", user_file),
        token=helped.get("token") or str(user.get("token") or ""),
        token_file="" if user.get("token") or not user.get("tokenFile") else str(_beside(user_file, user["tokenFile"])),
        namespace=str(entry.get("namespace") or "default"),
        context=chosen,
    )


def _kubeconfigs(environment: Mapping[str, str]) -> list[Path]:
    named = [Path(one) for one in environment.get("KUBECONFIG", "").split(os.pathsep) if one]
    return named or [Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"]


def _parsed(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        raise NoAccess(f"{path} is no kubeconfig: it is not YAML.") from error
    if not isinstance(data, dict):
        raise NoAccess(f"{path} is no kubeconfig.")
    return data


def _find(files: list[tuple[Path, dict[str, Any]]], many: str, one: str, name: str) -> tuple[dict[str, Any], Path]:
    for path, data in files:
        for item in data.get(many) or []:
            if isinstance(item, dict) and item.get("name") == name and isinstance(item.get(one), dict):
                return item[one], path
    raise NoAccess(f"{files[0][0]} has no {one} {name!r}.")


def _material(entry: dict[str, Any], field: str, config: Path) -> str:
    """A certificate or key: in the file as base64, or in a file of its own."""
    if data := entry.get(f"{field}-data"):
        try:
            return base64.b64decode(data, validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError, TypeError) as error:
            raise NoAccess(f"{field}-data in {config} is not base64 of a PEM.") from error
    return _text(_beside(config, entry[field])) if entry.get(field) else ""


def _beside(config: Path, name: str) -> Path:
    return config.parent / name


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise NoAccess(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise NoAccess(f"{path} cannot be read: it is not text.") from error


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """OpenSSL takes a pair from files only: they exist for this call, for our eyes."""
    with tempfile.TemporaryDirectory(prefix="tenure-") as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_text(f"{certificate}\n{key}\n")
        context.load_cert_chain(pair)
