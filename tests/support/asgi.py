"""The application asked in this process, without a socket."""

from __future__ import annotations

import asyncio

import httpx
from starlette.types import ASGIApp

from kvexporter.snapshot import ExporterSnapshot
from kvexporter.web.app import create_app


def app_of(snapshot: ExporterSnapshot) -> ASGIApp:
    """Make an application that shows this and is well."""
    return create_app(lambda: snapshot, lambda: True, lambda: True)


def ask(application: ASGIApp, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> httpx.Response:
    """Ask it once. For answers that end."""

    async def exchange() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://kvexporter") as client:
            return await client.request(method, path, headers={"accept-encoding": "identity"} | (headers or {}))

    return asyncio.run(exchange())
