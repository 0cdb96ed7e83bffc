"""The keys of a test cluster: one authority, what it signs, and the key of service-account tokens.

Elliptic keys throughout, since they are made in no time. Everything is good for a week: a cluster that a
developer left running over the weekend still answers, and nothing here outlives its folder for long.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = dt.timedelta(days=7)
BACKDATED = dt.timedelta(minutes=5)


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
        self._name = _name("tenure-test-ca")
        public = self._key.public_key()
        certificate = (
            _blank(self._name, self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, names: Iterable[str], addresses: Iterable[str]) -> Pair:
        """For a server that is reached by these names and addresses."""
        known: list[x509.GeneralName] = [x509.DNSName(each) for each in names]
        known += [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
        return self._signed(_name("server"), ExtendedKeyUsageOID.SERVER_AUTH, known)

    def client(self, user: str, groups: Iterable[str] = ()) -> Pair:
        """For a person or program that the API server shall know as this user."""
        return self._signed(_name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _signed(self, subject: x509.Name, use: x509.ObjectIdentifier, names: list[x509.GeneralName]) -> Pair:
        key = new_key()
        builder = (
            _blank(subject, self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(self._identifier, critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Pair(signed.public_bytes(serialization.Encoding.PEM), private_pem(key))


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    traditional = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, traditional, serialization.NoEncryption())


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def _name(common: str, organisations: Iterable[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organisations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _blank(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFE)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
