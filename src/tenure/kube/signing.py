"""What every certificate of ours has in common: an elliptic key, a name, a span of time, a use.

Who signs what, for whom and for how long is told by ``certs`` (the webhook's) and, in tests, by a cluster's authority.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SKEW: Final = timedelta(minutes=5)
"""Certificates count from a little earlier, for machines whose clocks are behind."""


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def name_of(common: str, organisations: Iterable[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organisations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def host_of(text: str) -> x509.GeneralName:
    """A name or an address that a server is reached by."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def authority_of(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, *, now: datetime, life: timedelta
) -> x509.Certificate:
    """The certificate of somebody who signs others, signed by itself."""
    return (
        _blank(name, name, key.public_key(), now=now, life=life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def signed(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    use: x509.ObjectIdentifier,
    *,
    by: x509.Certificate,
    signer: ec.EllipticCurvePrivateKey,
    hosts: Iterable[str] = (),
    now: datetime,
    life: timedelta,
) -> x509.Certificate:
    """A certificate for one use, by an authority; ``hosts`` of a server."""
    identifier = by.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _blank(subject, by.subject, key, now=now, life=life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    if known := [host_of(each) for each in hosts]:
        builder = builder.add_extension(x509.SubjectAlternativeName(known), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _blank(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    now = now.astimezone(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + life)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
