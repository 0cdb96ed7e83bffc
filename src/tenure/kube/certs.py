"""The webhook's certificates: made here, renewed in time, and put to use without a restart. No secret is stored.

Every operator has an authority of its own, in memory. What is kept in the cluster is only the authorities'
certificates: the ``caBundle`` of the webhook configurations, to which each operator adds its own and from which expired
ones are dropped. So there is no Secret to guard, none that a role must be able to read, and several operators get
along.

An authority is followed by another in its last third: its successor is published first, and signs only when API servers
have had time to learn of it, so that no call fails in between. Clocks come in by argument.
"""

from __future__ import annotations

import ipaddress
import secrets
import ssl
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

BUNDLE_COUNT_MAX: Final = 16
"""Authorities in a bundle; the newest are kept. A living operator adds itself again within a minute."""
SKEW: Final = timedelta(minutes=5)
"""Certificates count from a little earlier, for machines whose clocks are behind."""


class Lives(Struct, frozen=True):
    """How long things last."""

    authority: timedelta = timedelta(days=90)
    serving: timedelta = timedelta(days=7)
    settle: timedelta = timedelta(minutes=2)
    """From the publication of an authority to the first certificate that it signs."""


class Pair(Struct, frozen=True, kw_only=True):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """The certificate alone: what may be shown to everybody."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def is_old(self, now: datetime) -> bool:
        """Whether it is in the last third of its life."""
        start, end = self.certificate.not_valid_before_utc, self.certificate.not_valid_after_utc
        return now >= end - (end - start) / 3


def make_authority(*, now: datetime, life: timedelta) -> Pair:
    """An authority that nobody else has."""
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: verifiers find the signer of a certificate by name first.
    name = _name(f"tenure webhook authority {secrets.token_hex(8)}")
    usage = _usage(signs=True)
    builder = (
        _builder(name, name, key.public_key(), now=now, life=life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Pair(certificate=builder.sign(key, hashes.SHA256()), key=key)


def issue(authority: Pair, hosts: Sequence[str], *, now: datetime, life: timedelta) -> Pair:
    """A serving certificate for these names and addresses. It does not outlive the authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    life = min(life, authority.certificate.not_valid_after_utc - now)
    signer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(_name(hosts[0]), authority.certificate.subject, key.public_key(), now=now, life=life)
        .add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
    )
    return Pair(certificate=builder.sign(authority.key, hashes.SHA256()), key=key)


def bundle(known: bytes, ours: Iterable[bytes], *, now: datetime) -> bytes:
    """A bundle with ours in it: what is expired or unreadable is left out, and the oldest where there are too many."""
    own = [x509.load_pem_x509_certificate(each) for each in ours]
    others = [each for each in _certificates(known) if each.not_valid_after_utc > now and each not in own]
    others.sort(key=lambda each: (each.not_valid_before_utc, each.serial_number))
    kept = [*others[max(0, len(others) + len(own) - BUNDLE_COUNT_MAX) :], *own]
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in kept)


class Keeper:
    """The certificates of one server: call ``turn`` now and then. ``context`` always has the current one."""

    def __init__(self, hosts: Sequence[str], *, now: datetime, lives: Lives | None = None) -> None:
        self.hosts = tuple(hosts)
        self.lives = lives or Lives()
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._authority = make_authority(now=now, life=self.lives.authority)
        self._successor: Pair | None = None
        self._published: datetime | None = None
        self._serving = self._issue(now)

    @property
    def authorities(self) -> list[bytes]:
        """What must be in the bundle: who signs now, and who will."""
        return [each.pem for each in (self._authority, self._successor) if each is not None]

    @property
    def serving(self) -> x509.Certificate:
        """What is shown to whoever connects now."""
        return self._serving.certificate

    def turn(self, now: datetime, *, published: bool) -> None:
        """Renew what is old. ``published``: API servers have been told of all ``authorities``."""
        if now >= self._authority.certificate.not_valid_after_utc:
            # Nobody turned for months: nothing that is trusted is left to be careful with.
            self._authority, self._successor = make_authority(now=now, life=self.lives.authority), None
            self._published, self._serving = None, self._issue(now)
        if self._successor is not None and published:
            self._published = self._published or now
            if now - self._published >= self.lives.settle:
                self._authority, self._successor, self._published = self._successor, None, None
                self._serving = self._issue(now)
        if self._successor is None and self._authority.is_old(now):
            self._successor = make_authority(now=now, life=self.lives.authority)
        if self._serving.is_old(now):
            self._serving = self._issue(now)

    def _issue(self, now: datetime) -> Pair:
        """A new certificate, in use from the next connection on."""
        pair = issue(self._authority, self.hosts, now=now, life=self.lives.serving)
        _load(self.context, pair)
        return pair


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    """OpenSSL takes a pair from files only: they exist for this call, for our eyes."""
    key = pair.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with tempfile.TemporaryDirectory(prefix="tenure-") as folder:
        file = Path(folder) / "pair.pem"
        file.touch(mode=0o600)
        file.write_bytes(pair.pem + key)
        context.load_cert_chain(file)


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:  # nothing there, or nothing of use: ours replaces it
        return []


def _builder(
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


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


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
