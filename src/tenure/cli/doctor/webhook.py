"""The webhook: configured, trusted, and answering with a certificate that is valid.

Policies and schemas hold without it (``failurePolicy: Ignore``), so that it is not served yet is a warning. A webhook
that is served and not trusted is a problem: it is not called, and looks as if it were.
"""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from tenure.cli.doctor.installed import Object, Site
from tenure.cli.doctor.report import Check, ok, problem, unknown, warning
from tenure.kube.rbac import WEBHOOKS
from tenure.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS

SOON = timedelta(days=2)
SERVE = "run the operator with --webhook HOST:PORT: it makes certificates, and publishes and renews them"


def webhook(site: Site) -> Iterator[Check]:
    """Both configurations, and what stands behind the first of them."""
    good: list[Object] = []
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        found = site.get(resource, WEBHOOKS)
        name = f"{resource.kind}/{WEBHOOKS}"
        if found is None or not found.get("webhooks"):
            yield problem("webhook", f"{name} is missing", site.install)
        elif not (config := found["webhooks"][0]["clientConfig"]).get("caBundle"):
            yield warning(
                "webhook", f"{name} trusts no certificate yet: the API server does not call the webhook", SERVE
            )
        else:
            trouble = list(_bundle(name, base64.b64decode(config["caBundle"])))
            yield from trouble
            if not trouble:
                good.append(config)
    if len(good) == 2:
        yield from _answering(good[0])


def _bundle(name: str, pem: bytes) -> Iterator[Check]:
    """Whether any of the authorities that are trusted is still valid, and for how long."""
    from cryptography import x509

    try:
        ends = [one.not_valid_after_utc for one in x509.load_pem_x509_certificates(pem)]
    except ValueError as error:
        yield problem("webhook", f"{name} has a caBundle that cannot be read: {error}", SERVE)
        return
    now = datetime.now(UTC)
    if max(ends) <= now:
        yield problem("webhook", f"{name} trusts only certificates that ended on {max(ends):%Y-%m-%d}", SERVE)
    elif max(ends) <= now + SOON:
        yield warning("webhook", f"what {name} trusts ends on {max(ends):%Y-%m-%d %H:%M} UTC", SERVE)


def _answering(config: Object) -> Iterator[Check]:
    url = config.get("url")
    if not url:
        service = config["service"]
        where = f"{service['namespace']}/{service['name']}"
        yield ok("webhook", f"configured and trusted; it is called through Service/{where}, inside the cluster")
        return
    try:
        end = _handshake(url, base64.b64decode(config["caBundle"]))
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
        yield problem(
            "webhook", f"{url} answers with a certificate that the API server does not trust: {reason}", SERVE
        )
    except OSError as error:
        yield unknown("webhook", f"{url} does not answer this computer: {error.strerror or error}",
                      f"if it should be reached from here, {SERVE}")  # fmt: skip
    else:
        yield ok("webhook", f"{url} answers with a certificate that is trusted until {end:%Y-%m-%d %H:%M} UTC")


def _handshake(url: str, authorities: bytes) -> datetime:
    """Greet it as the API server would; answers when its certificate ends."""
    where = urlsplit(url)
    context = ssl.create_default_context(cadata=authorities.decode())
    with (
        socket.create_connection((where.hostname, where.port or 443), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=where.hostname) as greeted,
    ):
        told: Any = greeted.getpeercert()
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(told["notAfter"]), UTC)
