"""Why a request over HTTP came to nothing, as a reason and in words of our own."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import h11
import httpx

from kvexporter.sources.api_target import AccessError


def explain_failure(error: Exception) -> AccessError:
    """A transport error as a reason and words of our own: libraries quote what they received in theirs."""
    causes = list(_causes(error))
    for cause in causes:
        match cause:
            case ssl.SSLCertVerificationError():
                return AccessError("tls", f"the server's certificate is not accepted: {cause.verify_message}")
            case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
                return AccessError("connection", "closed during the TLS exchange")
            case ssl.SSLError():
                return AccessError("tls", cause.reason or "TLS failed")
            case h11.RemoteProtocolError(error_status_hint=431):
                return AccessError("too_large", "response headers of more than 100 KiB")
            case ConnectionRefusedError() | FileNotFoundError():
                return AccessError("refused", "nothing listens there")
            case socket.gaierror():
                return AccessError("connection", "the host's name cannot be resolved")
            case TimeoutError():
                return AccessError("timeout", "the network gave up")
            case OSError(strerror=str(words)):
                return AccessError("connection", words)
    if any(isinstance(cause, httpx.RemoteProtocolError | h11.RemoteProtocolError) for cause in causes):
        return AccessError("connection", "closed before the answer was complete, or this is not HTTP")
    return AccessError("connection", type(error).__name__)


def _causes(error: BaseException, depth: int = 8) -> Iterator[BaseException]:
    """The error, what caused it and so on; all members of groups."""
    yield error
    if depth == 0:
        return
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _causes(member, depth - 1)
    cause = error.__cause__ or error.__context__
    if cause is not None:
        yield from _causes(cause, depth - 1)
