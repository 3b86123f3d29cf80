"""What stands before every path: the rate limit, the configured headers and basic authentication."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvexporter.web.auth import Authenticator, read_credentials
from kvexporter.web.config_file import RateLimitConfig, WebConfig
from kvexporter.web.live_config import LiveWebConfig
from kvexporter.web.protocol import ADMITTED

_UNUSABLE = "The web configuration cannot be used; kvexporter's log says why.\n"
_CHALLENGE = 'Basic realm="kvexporter", charset="UTF-8"'


class RateLimiter:
    """A bucket of `burst` requests that gains one each `interval`; shared by all clients. `clock` gives seconds."""

    def __init__(self, limit: RateLimitConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._left = float(limit.burst)
        self._at = clock()

    def allows(self) -> bool:
        """Take one request out of the bucket; False if it is empty."""
        if self.limit.interval <= 0:
            return True
        now = self._clock()
        self._left = min(float(self.limit.burst), self._left + (now - self._at) / self.limit.interval)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def guarded(app: ASGIApp, live: LiveWebConfig) -> ASGIApp:
    """Make an application that answers only whom the web configuration lets in, as it is at each request."""
    authenticator = Authenticator()
    limiter = RateLimiter(RateLimitConfig())

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal limiter
        if scope["type"] != "http":
            return
        await live.look()
        admitted: Callable[[], bool] = scope.get("state", {}).get(ADMITTED, _always)
        if not admitted():
            # It was cut off; to end before that is known would be taken for a fault of this application.
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        config = live.config
        if config is None:
            await PlainTextResponse(_UNUSABLE, 500)(scope, receive, send)
            return
        if limiter.limit != config.rate_limit:
            limiter = RateLimiter(config.rate_limit)
        send = _with_configured_headers(config, send)
        if not limiter.allows():
            await PlainTextResponse("Too Many Requests\n", 429)(scope, receive, send)
            return
        if config.basic_auth_users and not await _is_let_in(authenticator, config, scope):
            refusal = PlainTextResponse("Unauthorized\n", 401, {"www-authenticate": _CHALLENGE})
            await refusal(scope, receive, send)
            return
        await app(scope, receive, send)

    return answer


def _always() -> bool:
    return True


async def _is_let_in(authenticator: Authenticator, config: WebConfig, scope: Scope) -> bool:
    credentials = read_credentials([value for name, value in scope["headers"] if name == b"authorization"])
    return credentials is not None and await authenticator.admits(config.basic_auth_users, credentials)


def _with_configured_headers(config: WebConfig, send: Send) -> Send:
    configured = config.http_server_config.headers
    if not configured:
        return send

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in configured.items():
                headers[name] = value
        await send(message)

    return send_with_headers
