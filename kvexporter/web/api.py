"""The JSON API, version 1: what `docs/api.md` describes."""

from __future__ import annotations

from collections.abc import Callable
from heapq import nlargest

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kvexporter.snapshot import ExporterSnapshot, ServerSnapshot
from kvexporter.web.amounts import clean
from kvexporter.web.answers import json_answer, json_error
from kvexporter.web.events import EVENT_STREAM, EventHub, EventResponse
from kvexporter.web.exporter_fields import head_fields
from kvexporter.web.live_config import LiveWebConfig
from kvexporter.web.server_fields import incident_with_words, server_detail, server_summary
from kvexporter.web.targets_api import exporter_target, server_targets

API = "/api"
BASE = f"{API}/v1"
MOST_INCIDENTS = 1000
DEFAULT_INCIDENTS = 100
_NO_SERVER = "there is no such server; /api/v1/servers lists those there are"


def api_routes(
    snapshot: Callable[[], ExporterSnapshot],
    ready: Callable[[], bool],
    telemetry_path: str = "/metrics",
    web_config: LiveWebConfig | None = None,
) -> list[Route]:
    """Give the API's routes. `web_config` is what stands before them: when it changes, streams end."""
    look_at_rules = [web_config.look] if web_config is not None else []
    hub = EventHub(snapshot, ready, _rules_of(web_config), *look_at_rules)

    async def servers(request: Request) -> Response:
        shown = snapshot()
        summaries = [server_summary(server, shown) for server in shown.servers]
        return json_answer(request, {**head_fields(shown, ready=ready()), "servers": summaries})

    async def one_server(request: Request) -> Response:
        shown = snapshot()
        server = _named(shown, request.path_params["name"])
        if server is None:
            return json_error(404, _NO_SERVER)
        return json_answer(request, {**head_fields(shown, ready=ready()), "server": server_detail(server, shown)})

    async def incidents(request: Request) -> Response:
        shown = snapshot()
        limit = _limit(request.query_params.get("limit"))
        if limit is None:
            return json_error(400, f"limit: expected a whole number from 1 to {MOST_INCIDENTS}")
        chosen = shown.servers
        if (name := request.query_params.get("server")) is not None:
            server = _named(shown, name)
            if server is None:
                return json_error(404, _NO_SERVER)
            chosen = (server,)
        found = ((incident.ended, server.name, incident) for server in chosen for incident in server.incidents)
        latest = nlargest(limit, found, key=lambda item: item[0])
        fields = [{"server": clean(name), **incident_with_words(incident)} for _, name, incident in latest]
        return json_answer(request, {**head_fields(shown, ready=ready()), "incidents": fields})

    async def targets(request: Request) -> Response:
        kind = request.query_params.get("kind", "exporter")
        if kind == "llama-server":
            return json_answer(request, server_targets(snapshot()))
        address = request.scope.get("server")
        if kind != "exporter" or address is None:
            return json_error(400, "kind: expected exporter or llama-server")
        own = exporter_target(snapshot(), (address[0], address[1]), request.scope["scheme"], telemetry_path)
        return json_answer(request, own)

    async def events(request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type=EVENT_STREAM)
        if hub.full:
            refusal = json_error(503, "too many event streams are open; ask /api/v1/servers now and then instead")
            refusal.headers["retry-after"] = "30"
            return refusal
        return EventResponse(hub)

    return [
        Route(f"{BASE}/servers", servers, methods=["GET"]),
        Route(f"{BASE}/servers/{{name:path}}", one_server, methods=["GET"]),
        Route(f"{BASE}/incidents", incidents, methods=["GET"]),
        Route(f"{BASE}/targets", targets, methods=["GET"]),
        Route(f"{BASE}/events", events, methods=["GET"]),
    ]


def _rules_of(web_config: LiveWebConfig | None) -> Callable[[], object]:
    """What decides who is let in, as one value that is the same object as long as nothing of it has changed."""
    last: tuple[object, object] = (None, None)

    def rules() -> object:
        nonlocal last
        if web_config is not None:
            found = (web_config.config, web_config.context)
            if any(new is not old for new, old in zip(found, last, strict=True)):
                last = found
        return last

    return rules


def _named(snapshot: ExporterSnapshot, name: str) -> ServerSnapshot | None:
    """The server of a name as the API shows it."""
    return next((server for server in snapshot.servers if clean(server.name) == name), None)


def _limit(text: str | None) -> int | None:
    """How many incidents are asked for; None if that is none."""
    if text is None:
        return DEFAULT_INCIDENTS
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        return None
    return int(text) if 1 <= int(text) <= MOST_INCIDENTS else None
