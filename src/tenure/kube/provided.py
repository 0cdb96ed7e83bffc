"""The webhook's certificate where somebody else makes it: ``tls.crt`` and ``tls.key`` in a folder, say a Secret's.

Whoever makes it (cert-manager) also keeps the ``caBundle`` of the webhook configurations. What is left to do here is to
look again now and then: a pair that was renewed is put to use without a restart, and one that is half written, or does
not fit, is left alone until it does.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

CERTIFICATE, KEY = "tls.crt", "tls.key"
"""As a Secret of the type ``kubernetes.io/tls`` names them."""
LOOK_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


class Unusable(Exception):
    """There is no certificate to begin with; the text says what is wrong."""


class Provided:
    """A certificate that comes from a folder. ``context`` always has the latest that could be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._seen = (b"", b"")
        try:
            self.look()
        except (OSError, ssl.SSLError) as error:
            raise Unusable(f"{folder} holds no certificate to serve with: {error}") from error

    def look(self) -> bool:
        """Read the folder; True if another pair is in use from now on. Raises if what is there cannot be used."""
        found = (self.folder / CERTIFICATE).read_bytes(), (self.folder / KEY).read_bytes()
        if found == self._seen:
            return False
        # Tried apart first: a pair that does not fit must not disturb the one in use.
        for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
            context.load_cert_chain(self.folder / CERTIFICATE, self.folder / KEY)
        self._seen = found
        return True


async def keep_read(provided: Provided, *, every: float = LOOK_SECONDS) -> None:
    """Look, for ever. What is wrong is said once."""
    said = ""
    while True:
        trouble = ""
        try:
            if provided.look():
                log.info("the webhook's certificate was renewed")
        except (OSError, ssl.SSLError) as error:
            trouble = str(error)
            if trouble != said:
                log.warning("the webhook's certificate in %s cannot be used: %s", provided.folder, trouble)
        said = trouble
        await asyncio.sleep(every)
