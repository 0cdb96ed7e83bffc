"""The webhook's certificates: made here, renewed in time, and put to use without a restart. No secret is stored.

Every operator has an authority of its own, in memory. What is kept in the cluster is only the authorities'
certificates: the ``caBundle`` of the webhook configurations, to which each operator adds its own and from which expired
ones are dropped. So there is no Secret to guard, none that a role must be able to read, and several operators get
along.

An authority is followed by another in its last third: its successor is published first, and signs only when API servers
have had time to learn of it, so that no call fails in between. Clocks come in by argument.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from msgspec import Struct

from tenure.kube.signing import authority_of, name_of, new_key, private_pem, signed

BUNDLE_COUNT_MAX: Final = 16
"""Authorities in a bundle; the newest are kept. A living operator adds itself again within a minute."""


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
    key = new_key()
    # A name of its own: verifiers find the signer of a certificate by name first.
    name = name_of(f"tenure webhook authority {secrets.token_hex(8)}")
    return Pair(certificate=authority_of(name, key, now=now, life=life), key=key)


def issue(authority: Pair, hosts: Sequence[str], *, now: datetime, life: timedelta) -> Pair:
    """A serving certificate for these names and addresses. It does not outlive the authority."""
    key, by = new_key(), authority.certificate
    life = min(life, by.not_valid_after_utc - now)
    certificate = signed(
        name_of(hosts[0]), key.public_key(), ExtendedKeyUsageOID.SERVER_AUTH, by=by, signer=authority.key, hosts=hosts,
        now=now, life=life,
    )  # fmt: skip
    return Pair(certificate=certificate, key=key)


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
    with tempfile.TemporaryDirectory(prefix="tenure-") as folder:
        file = Path(folder) / "pair.pem"
        file.touch(mode=0o600)
        file.write_bytes(pair.pem + private_pem(pair.key))
        context.load_cert_chain(file)


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:  # nothing there, or nothing of use: ours replaces it
        return []
