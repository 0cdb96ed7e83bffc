"""The keys of a test cluster: one authority, what it signs, and the key of service-account tokens.

Elliptic keys throughout, since they are made in no time. Everything is good for a week: a cluster that a
developer left running over the weekend still answers, and nothing here outlives its folder for long.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from tenure.kube.signing import authority_of, name_of, new_key, private_pem, signed

LIFE = dt.timedelta(days=7)


class Pair(NamedTuple):
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write both; answers where they are."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        write_secret(key, self.key)
        return certificate, key


class Authority:
    """Signs the certificates of one cluster."""

    def __init__(self) -> None:
        self._key = new_key()
        self._own = authority_of(name_of("tenure-test-ca"), self._key, now=dt.datetime.now(dt.UTC), life=LIFE)
        self.certificate = self._own.public_bytes(serialization.Encoding.PEM)

    def server(self, hosts: Iterable[str]) -> Pair:
        """For a server that is reached by these names and addresses."""
        return self._signed(name_of("server"), ExtendedKeyUsageOID.SERVER_AUTH, hosts)

    def client(self, user: str, groups: Iterable[str] = ()) -> Pair:
        """For a person or program that the API server shall know as this user."""
        return self._signed(name_of(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH)

    def _signed(self, subject: x509.Name, use: x509.ObjectIdentifier, hosts: Iterable[str] = ()) -> Pair:
        key, now = new_key(), dt.datetime.now(dt.UTC)
        made = signed(subject, key.public_key(), use, by=self._own, signer=self._key, hosts=hosts, now=now, life=LIFE)
        return Pair(made.public_bytes(serialization.Encoding.PEM), private_pem(key))


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(content)
