"""The HTTP application: metrics, health, reload, the JSON API and the page."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvexporter.metrics.exposition import render
from kvexporter.snapshot import ExporterSnapshot
from kvexporter.web.answers import json_error, zipped
from kvexporter.web.api import API, api_routes
from kvexporter.web.guard import guarded
from kvexporter.web.live_config import LiveWebConfig
from kvexporter.web.page_files import page_routes

log = logging.getLogger("kvexporter.web")

_SECURITY = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}

Reload = Callable[[], Awaitable[str | None]]
"""Reads the configuration anew; gives what was wrong, None if it is in force."""


def create_app(
    snapshot: Callable[[], ExporterSnapshot],
    ready: Callable[[], bool],
    healthy: Callable[[], bool],
    reload: Reload | None = None,
    telemetry_path: str = "/metrics",
    web_config: LiveWebConfig | None = None,
) -> ASGIApp:
    """Make the application. `reload` None: the lifecycle endpoint is off. `web_config` stands before every path."""

    async def metrics(request: Request) -> Response:
        content_type, body = render(snapshot(), request.headers.get("accept"))
        return zipped(request, body, content_type, vary="Accept, Accept-Encoding")

    async def health(_: Request) -> Response:
        if healthy():
            return PlainTextResponse("kvexporter is healthy.\n")
        return PlainTextResponse("kvexporter is not healthy: a part of it has stopped; its log says why.\n", 503)

    async def readiness(_: Request) -> Response:
        if ready():
            return PlainTextResponse("kvexporter is ready.\n")
        return PlainTextResponse("kvexporter is not ready: it has not yet looked at every server once.\n", 503)

    async def reloading(_: Request) -> Response:
        if reload is None:
            return PlainTextResponse("Reloading over HTTP is off; --web.enable-lifecycle turns it on.\n", 403)
        error = await reload()
        if error is None:
            return PlainTextResponse("The configuration was read anew.\n")
        return PlainTextResponse(f"The configuration was not changed:\n{error}\n", 500)

    application = Starlette(
        routes=[
            Route(telemetry_path, metrics, methods=["GET"]),
            *page_routes(snapshot, telemetry_path),
            *api_routes(snapshot, ready, telemetry_path, web_config),
            Route("/-/healthy", health, methods=["GET"]),
            Route("/-/ready", readiness, methods=["GET"]),
            Route("/-/reload", reloading, methods=["POST", "PUT"]),
        ],
        exception_handlers={HTTPException: _refused},
    )
    # Would answer /metrics/ with a redirect made from the client's own Host header.
    application.router.redirect_slashes = False
    return _with_headers(guarded(application, web_config) if web_config is not None else application)


async def _refused(request: Request, error: Exception) -> Response:
    """Answer for a path that is not there, or a method that it does not have; below the API as the API does."""
    if not isinstance(error, HTTPException):
        raise error
    if request.url.path.startswith(f"{API}/"):
        answer: Response = json_error(error.status_code, error.detail)
        answer.headers.update(error.headers or {})
        return answer
    return PlainTextResponse(error.detail, error.status_code, headers=error.headers)


def _with_headers(app: ASGIApp) -> ASGIApp:
    """Add the security headers and the date to every answer."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["date"] = formatdate(time.time(), usegmt=True)
                for name, value in _SECURITY.items():
                    headers.setdefault(name, value)
                if _has_body(scope):
                    # Nothing here reads a body; on a kept connection it would have to be read to its end.
                    headers["connection"] = "close"
            await send(message)

        await app(scope, receive, send_with_headers)

    return answer


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
