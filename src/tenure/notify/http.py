"""POST over HTTP, from the standard library, with everything bounded that a receiver could make endless.

One POST has one deadline, from the connection to the end of the answer's headers, however slowly they drip. Headers
and body leave in one write (in two, the other side's delayed acknowledgement costs some 40 ms a request). Redirects are
not followed, bodies of answers are not looked at, proxies are not used. A connection is kept within a round, and only
after an answer that was read to its end; if the receiver has closed it meanwhile, the POST is made again on a new one.

What an answer means is in ``judge``:

>>> judge(204, "", now=0), judge(404, "", now=0).final, judge(500, "", now=0).final
(Delivered(), True, False)
>>> judge(503, "120", now=0).retry_after
120000000
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from time import monotonic, time
from typing import Any, Final

from tenure import __version__
from tenure.api.errors import escape
from tenure.notify.config import Header, Http
from tenure.notify.event import CONTENT_TYPE
from tenure.notify.progress import RETRY_AFTER_MAX, Answer, Away, Declined, Delivered
from tenure.notify.sinks import reason
from tenure.units import SECOND, Micros, format_duration

ASK_AGAIN: Final = frozenset({408, 425, 429, 502, 503, 504})
"""Answers about the receiver, not about the event."""
SECRET_BYTES_MAX: Final = 16 * 1024
ANSWER_BYTES_MAX: Final = 64 * 1024
"""Of an answer's body, so much is read to keep the connection; a longer one ends it."""
_STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
_TROUBLES = (OSError, http.client.HTTPException, ValueError)
"""ValueError: what the library finds wrong with what it is to send or with whom to ask."""


def judge(status: int, retry_after: str, *, now: float) -> Answer:
    """What an answer means; ``now`` is in seconds since 1970, for a Retry-After that is a date."""
    later = parse_retry_after(retry_after, now=now)
    if 200 <= status < 300:
        return Delivered()
    if 300 <= status < 400:
        return Away(why=f"answered {status}: redirects are not followed, correct its url", retry_after=later)
    if status in ASK_AGAIN or status < 200:
        return Away(why=f"answered {status}", retry_after=later)
    return Declined(why=f"answered {status}", final=status < 500, retry_after=later)


def parse_retry_after(text: str, *, now: float) -> Micros:
    """Seconds or a date (RFC 9110); 0 for anything else.

    >>> parse_retry_after("Thu, 01 Jan 1970 00:02:00 GMT", now=60.0), parse_retry_after("soon", now=0.0)
    (60000000, 0)
    """
    text = text.strip()[:64]
    if text.isascii() and text.isdigit():
        return min(int(text) * SECOND, RETRY_AFTER_MAX)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0
    return min(max(0, int(seconds * SECOND)), RETRY_AFTER_MAX)


class HttpSink:
    """A receiver that is POSTed to."""

    width = 1

    def __init__(self, to: Http, *, environ: Mapping[str, str]) -> None:
        self._to = to
        self._environ = environ
        self._tls = ssl.create_default_context() if to.secure else None
        self._kept: _Connection | None = None

    def send(self, bodies: Sequence[bytes]) -> Answer:
        (body,) = bodies
        headers = {"Content-Type": CONTENT_TYPE, "User-Agent": f"tenure/{__version__}"}
        for header in self._to.headers:
            value = resolve(header, self._environ)
            if isinstance(value, Away):
                return value
            headers[header.name] = value
        return self._post(body, headers)

    def rest(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _post(self, body: bytes, headers: dict[str, str]) -> Answer:
        if self._kept is not None:
            try:
                return self._exchange(self._kept, body, headers)
            except _STALE:
                self.rest()  # closed while it was idle, as it may be: that says nothing about the receiver
            except _TROUBLES as error:
                self.rest()
                return Away(why=self._cause(error))
        try:
            self._kept = self._connection()
            return self._exchange(self._kept, body, headers)
        except _TROUBLES as error:
            self.rest()
            return Away(why=self._cause(error))

    def _connection(self) -> _Connection:
        to, seconds = self._to, self._to.timeout / SECOND
        if self._tls is not None:
            return _SecureConnection(to.host, to.port, timeout=seconds, context=self._tls)
        return _Connection(to.host, to.port, timeout=seconds)

    def _exchange(self, connection: _Connection, body: bytes, headers: dict[str, str]) -> Answer:
        response = connection.post(self._to.target, body, headers, seconds=self._to.timeout / SECOND)
        answer = judge(response.status, response.getheader("Retry-After") or "", now=time())
        if not _read_out(response):
            self.rest()
        return answer

    def _cause(self, error: Exception) -> str:
        """What went wrong, in words of ours: the library's may repeat what we sent."""
        match error:
            case TimeoutError():
                what = f"no answer within {format_duration(self._to.timeout)}"
            case ssl.SSLCertVerificationError():
                what = f"its certificate is not trusted: {escape(error.verify_message, limit=200)}"
            case ssl.SSLError():
                what = "TLS failed"
            case socket.gaierror() | UnicodeError():
                what = "its host name cannot be resolved"
            case http.client.RemoteDisconnected():
                what = "closed the connection without an answer"
            case OSError():
                what = reason(error)
            case http.client.HTTPException():
                what = "what it answered is not HTTP"
            case _:
                what = "it cannot be asked"
        return f"{self._to.host}: {what}"


def resolve(header: Header, environ: Mapping[str, str]) -> str | Away:
    """A header's value, as its variable or file holds it now."""
    if header.env is not None:
        value = environ.get(header.env)
        if value is None:
            return Away(why=f"header {header.name}: the variable {header.env} is not set")
    elif header.file is not None:
        try:
            with header.file.open("rb") as file:
                value = file.read(SECRET_BYTES_MAX).decode("ascii").partition("\n")[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            what = reason(error) if isinstance(error, OSError) else "not ASCII text"
            return Away(why=f"header {header.name}: its file cannot be read: {what}")
    else:
        value = header.value or ""
    if not value or not value.isascii() or not value.isprintable():
        return Away(why=f"header {header.name}: its value is empty, or not printable ASCII")
    return header.prefix + value


def _read_out(response: http.client.HTTPResponse) -> bool:
    """Whether the answer came to its end, so that the connection can be used again."""
    if response.will_close:
        return False
    try:
        return len(response.read(ANSWER_BYTES_MAX)) < ANSWER_BYTES_MAX and response.isclosed()
    except (OSError, http.client.HTTPException):
        return False


class _Connection(http.client.HTTPConnection):
    """A connection whose requests leave in one write, and whose answers have a deadline."""

    _held: list[bytes]

    def post(self, target: str, body: bytes, headers: dict[str, str], *, seconds: float) -> http.client.HTTPResponse:
        deadline = monotonic() + seconds
        self.timeout = seconds
        self._held = []
        self.request("POST", target, body=body, headers=headers)
        whole = b"".join(self._held)
        if self.sock is None:
            self.connect()
        self.sock.settimeout(_left(deadline))
        self.sock.sendall(whole)
        self.response_class = _response_within(deadline)
        return self.getresponse()

    def send(self, data: Any) -> None:
        """Called by ``request`` for the headers, then for the body."""
        self._held.append(bytes(data))


class _SecureConnection(http.client.HTTPSConnection, _Connection):
    pass


def _left(deadline: float) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _response_within(deadline: float) -> Any:
    """A class of answers that are read until a deadline, however many reads that takes."""

    class Response(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
            super().__init__(_Timed(sock, deadline), *args, **kwargs)  # type: ignore[arg-type]  # makefile is all it uses

    return Response


class _Timed(io.RawIOBase):
    """A socket's reading side."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)
