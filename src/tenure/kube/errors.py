"""What an API server answers when it does not do what was asked: one exception, which is a value to match on.

A refusal (``409 Conflict``, ``404 NotFound``) changed nothing. Where the connection broke, or the server failed while
it worked, a write may have been applied or not: ``in_doubt`` says so, and only looking again tells.
"""

from __future__ import annotations

from typing import Any

import msgspec

UNREACHABLE = "Unreachable"
"""Nothing was sent: the server could not be connected to."""
ANSWER_LOST = "AnswerLost"
"""Something was sent, and no whole answer came back."""


class ApiError(Exception):
    """``code`` is the HTTP status (0 if there was none), ``reason`` the server's word, ``message`` a sentence."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        retry_after: float | None = None,
        causes: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(code, reason, message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        """Seconds after which the server wants to be asked again, if it said so."""
        self.causes = causes
        """Each single thing that was wrong: which field, if it was one, and a sentence."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if not self.code else f"{self.code} {self.reason}: {self.message}"

    @property
    def not_found(self) -> bool:
        return self.code == 404

    @property
    def exists(self) -> bool:
        """A create that came second."""
        return self.code == 409 and self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        """A write on top of something that had changed meanwhile."""
        return self.code == 409 and self.reason != "AlreadyExists"

    @property
    def expired(self) -> bool:
        """What was asked to be continued is too old: list again."""
        return self.code == 410

    @property
    def throttled(self) -> bool:
        return self.code == 429

    @property
    def in_doubt(self) -> bool:
        """Whether a write that got this answer may have been applied all the same."""
        return self.code >= 500 or self.reason == ANSWER_LOST

    @property
    def transient(self) -> bool:
        """Whether the same call may well succeed later, with nothing changed here."""
        return self.code >= 500 or self.code in (0, 429)


class NotTaken(ApiError):
    """A refusal that is not taken for an answer: what must be done is tried again, like what fails in passing."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.code, error.reason, error.message, retry_after=error.retry_after, causes=error.causes)

    @property
    def transient(self) -> bool:
        return True


class _Cause(msgspec.Struct):
    field: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    """The ``Status`` object that comes with a refusal, as far as it is read."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_decoder = msgspec.json.Decoder(_Status)


def refusal(code: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error that an answer is.

    >>> print(refusal(409, b'{"kind":"Status","reason":"Conflict","message":"it has been modified"}'))
    409 Conflict: it has been modified
    >>> print(refusal(502, b"<html>Bad gateway</html>"))
    502 HTTP502: <html>Bad gateway</html>
    """
    try:
        status = _decoder.decode(body)
    except msgspec.MsgspecError:
        status = _Status(message=body[:200].decode("utf-8", errors="replace"))
    wait = float(retry_after) if retry_after is not None and retry_after.isdigit() else None
    causes = (status.details and status.details.causes) or ()
    return ApiError(
        code, status.reason or f"HTTP{code}", status.message or "no reason was given", retry_after=wait,
        causes=tuple((one.field, one.message) for one in causes),
    )  # fmt: skip


def failed_watch(status: dict[str, Any]) -> ApiError:
    """The error that a watch ended with."""
    return refusal(int(status.get("code") or 500), msgspec.json.encode(status))
