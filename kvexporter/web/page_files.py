"""The live page: a few files that the package carries, and for who runs no scripts a table of now."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kvexporter.snapshot import ExporterSnapshot
from kvexporter.web.answers import zipped
from kvexporter.web.landing import servers_table

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""Nothing from anywhere else, nothing inline, and no text that becomes markup."""

_FOLDER = files("kvexporter.web") / "page"
_SCRIPT = "text/javascript; charset=utf-8"
_TYPES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": _SCRIPT,
    "server.js": _SCRIPT,
    "draw.js": _SCRIPT,
    "dom.js": _SCRIPT,
}
_HTML = "text/html; charset=utf-8"


def page_routes(snapshot: Callable[[], ExporterSnapshot], telemetry_path: str) -> list[Route]:
    """Give the page's routes. Its files are read once."""
    template = (_FOLDER / "index.html").read_text("utf-8").replace("{telemetry_path}", escape(telemetry_path))

    async def index(request: Request) -> Response:
        body = template.replace("{servers}", servers_table(snapshot()))
        return _with_policy(zipped(request, body.encode(), _HTML))

    return [Route("/", index, methods=["GET"]), *(_file(name, kind) for name, kind in _TYPES.items())]


def _file(name: str, content_type: str) -> Route:
    body = (_FOLDER / name).read_bytes()

    async def answer(request: Request) -> Response:
        return zipped(request, body, content_type)

    return Route(f"/page/{name}", answer, methods=["GET"])


def _with_policy(answer: Response) -> Response:
    answer.headers["content-security-policy"] = PAGE_POLICY
    return answer
