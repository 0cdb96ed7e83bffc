"""The webhook's certificates: who trusts what, when they are renewed, and that a live server shows the new one."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from tenure.kube.certs import BUNDLE_COUNT_MAX, Keeper, Lives, bundle, issue, make_authority

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOST = "tenure-webhook.tenure-system.svc"
DAY = timedelta(days=1)


def authorities(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem) if pem else []


def is_trusted(certificate: x509.Certificate, pem: bytes, *, at: datetime, host: str = HOST) -> bool:
    """As a stranger judges, with a verifier that shares nothing with the maker."""
    store = Store(authorities(pem))
    verifier = PolicyBuilder().store(store).time(at).build_server_verifier(x509.DNSName(host))
    try:
        verifier.verify(certificate, [])
    except VerificationError:
        return False
    return True


def test_what_an_authority_signs_is_trusted_for_its_names_and_its_time_only() -> None:
    authority = make_authority(now=NOW, life=90 * DAY)
    serving = issue(authority, [HOST, "127.0.0.1"], now=NOW, life=7 * DAY).certificate
    assert is_trusted(serving, authority.pem, at=NOW)
    assert not is_trusted(serving, authority.pem, at=NOW + 8 * DAY)
    assert not is_trusted(serving, authority.pem, at=NOW, host="another.tenure-system.svc")
    assert not is_trusted(serving, make_authority(now=NOW, life=90 * DAY).pem, at=NOW)


def test_a_certificate_does_not_outlive_its_authority() -> None:
    authority = make_authority(now=NOW, life=2 * DAY)
    serving = issue(authority, [HOST], now=NOW, life=7 * DAY).certificate
    assert serving.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_a_bundle_keeps_others_drops_the_expired_and_has_ours_once() -> None:
    ours, theirs = (make_authority(now=NOW, life=90 * DAY) for _ in range(2))
    gone = make_authority(now=NOW - 100 * DAY, life=90 * DAY)
    merged = bundle(gone.pem + theirs.pem, [ours.pem], now=NOW)
    assert authorities(merged) == [theirs.certificate, ours.certificate]
    assert bundle(merged, [ours.pem], now=NOW) == merged
    assert authorities(bundle(b"no certificate", [ours.pem], now=NOW)) == [ours.certificate]


def test_a_bundle_is_bounded_and_drops_the_oldest() -> None:
    others = [make_authority(now=NOW + timedelta(hours=each), life=90 * DAY) for each in range(BUNDLE_COUNT_MAX + 3)]
    ours = make_authority(now=NOW - DAY, life=90 * DAY)
    kept = authorities(bundle(b"".join(each.pem for each in others), [ours.pem], now=NOW))
    assert kept == [*(each.certificate for each in others[4:]), ours.certificate]


def test_a_certificate_is_renewed_in_its_last_third_and_not_before() -> None:
    keeper = Keeper([HOST], now=NOW)
    first = keeper.serving
    keeper.turn(NOW + 4 * DAY, published=True)
    assert keeper.serving == first
    keeper.turn(NOW + 5 * DAY, published=True)
    assert keeper.serving != first
    assert is_trusted(keeper.serving, keeper.authorities[0], at=NOW + 9 * DAY)
    assert len(keeper.authorities) == 1


def test_a_new_authority_signs_only_when_it_has_been_published_for_a_while() -> None:
    """At every moment, what is shown is signed by somebody in the last published bundle."""
    lives = Lives(settle=timedelta(minutes=2))
    keeper = Keeper([HOST], now=NOW, lives=lives)
    old = keeper.authorities[0]
    at = NOW + 61 * DAY
    keeper.turn(at, published=True)
    assert keeper.authorities[0] == old
    assert len(keeper.authorities) == 2
    successor = keeper.authorities[1]
    for minutes in (1, 2, 3):  # the cluster cannot be reached: nothing changes
        keeper.turn(at + timedelta(minutes=minutes), published=False)
        assert is_trusted(keeper.serving, old, at=at)
    keeper.turn(at + timedelta(minutes=4), published=True)
    keeper.turn(at + timedelta(minutes=5), published=True)
    assert is_trusted(keeper.serving, old, at=at)
    keeper.turn(at + timedelta(minutes=6), published=True)
    assert keeper.authorities == [successor]
    assert is_trusted(keeper.serving, successor, at=at + DAY)
    assert not is_trusted(keeper.serving, old, at=at + DAY)


def test_certificates_are_always_good_over_years() -> None:
    """Turned once a day for three years, somebody who trusts the published bundle always trusts what is shown."""
    keeper = Keeper([HOST], now=NOW)
    published = bundle(b"", keeper.authorities, now=NOW)
    signers = set()
    for day in range(3 * 365):
        at = NOW + day * DAY
        assert is_trusted(keeper.serving, published, at=at), day
        signers.add(keeper.serving.issuer)
        published = bundle(published, keeper.authorities, now=at)
        keeper.turn(at, published=True)
        assert len(authorities(published)) <= 3
    assert len(signers) > 12


def test_a_machine_that_slept_for_a_year_begins_anew() -> None:
    keeper = Keeper([HOST], now=NOW)
    late = NOW + 400 * DAY
    keeper.turn(late, published=False)
    assert len(keeper.authorities) == 1
    assert is_trusted(keeper.serving, keeper.authorities[0], at=late)
    assert len(authorities(bundle(b"", keeper.authorities, now=late))) == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_protocols_are_refused(version: ssl.TLSVersion) -> None:
    assert Keeper([HOST], now=NOW).context.minimum_version > version
