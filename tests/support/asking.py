"""Asks one question of a test server through the HTTP source."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from kvexporter.facts import Endpoint
from kvexporter.sources.llama_api import DEADLINES, ApiAnswer, ApiTarget, LlamaApi
from tests.support.http_servers import HttpServer

PATIENT = dict.fromkeys(DEADLINES, 20.0)
SHORT = dict.fromkeys(DEADLINES, 0.3)


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test on a loop of its own, a minute at most."""
    asyncio.run(asyncio.wait_for(test, 60))


async def ask(
    server: HttpServer, endpoint: Endpoint = "health", deadlines: dict[Endpoint, float] = PATIENT, **options: Any
) -> ApiAnswer:
    api = LlamaApi(ApiTarget(options.pop("url", server.url), deadlines=deadlines, **options))
    try:
        return await api.get(endpoint)
    finally:
        await api.aclose()


def https(server: HttpServer) -> str:
    return server.url.replace("http:", "https:")
