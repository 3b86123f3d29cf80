"""The HTTP application: what each path answers to which method, with which headers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from importlib.resources import files

import httpx
import pytest
from starlette.types import ASGIApp

from kvexporter.snapshot import ExporterSnapshot, ServerSnapshot
from kvexporter.web.app import create_app
from tests.support.snapshots import FULL, HOSTILE, exporter


def app(
    snapshot: ExporterSnapshot | None = None,
    *,
    ready: bool = True,
    healthy: bool = True,
    reload: Callable[[], Awaitable[str | None]] | None = None,
    telemetry_path: str = "/metrics",
) -> ASGIApp:
    shown = exporter(FULL) if snapshot is None else snapshot
    return create_app(lambda: shown, lambda: ready, lambda: healthy, reload, telemetry_path)


def ask(
    application: ASGIApp, path: str, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b""
) -> httpx.Response:
    async def exchange() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://kvexporter") as client:
            return await client.request(
                method, path, headers={"accept-encoding": "identity"} | (headers or {}), content=body
            )

    return asyncio.run(exchange())


def test_metrics_are_prometheus_text() -> None:
    answer = ask(app(), "/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'llama_slots{server="main"} 4\n' in answer.text


def test_metrics_are_openmetrics_for_who_asks_for_it() -> None:
    answer = ask(app(), "/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert answer.text.endswith("# EOF\n")


def test_metrics_are_zipped_for_who_takes_it() -> None:
    answer = ask(app(), "/metrics", headers={"accept-encoding": "deflate, gzip;q=0.5"})
    assert answer.headers["content-encoding"] == "gzip"
    assert 'llama_slots{server="main"} 4\n' in answer.text
    assert int(answer.headers["content-length"]) < len(answer.content) / 3


@pytest.mark.parametrize("accepted", ["identity", "gzip;q=0", "deflate", "br"])
def test_metrics_are_plain_for_who_does_not_take_gzip(accepted: str) -> None:
    answer = ask(app(), "/metrics", headers={"accept-encoding": accepted})
    assert "content-encoding" not in answer.headers


def test_metrics_can_be_at_another_path() -> None:
    moved = app(telemetry_path="/a/metrics")
    assert ask(moved, "/a/metrics").status_code == 200
    assert ask(moved, "/metrics").status_code == 404
    assert 'href="./a/metrics"' in ask(moved, "/").text


@pytest.mark.parametrize(("path", "flag"), [("/-/healthy", "healthy"), ("/-/ready", "ready")])
def test_health_and_readiness_are_told_by_the_status_and_a_reason(path: str, flag: str) -> None:
    good, bad = ask(app(), path), ask(app(ready=flag != "ready", healthy=flag != "healthy"), path)
    assert (good.status_code, bad.status_code) == (200, 503)
    assert "not" in bad.text
    assert ":" in bad.text


def test_reloading_is_forbidden_unless_it_was_turned_on() -> None:
    answer = ask(app(), "/-/reload", "POST")
    assert answer.status_code == 403
    assert "--web.enable-lifecycle" in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_reloading_says_whether_it_worked(method: str) -> None:
    async def works() -> str | None:
        return None

    async def fails() -> str | None:
        return "/etc/x.yml:1: a: unknown key"

    assert ask(app(reload=works), "/-/reload", method).status_code == 200
    failed = ask(app(reload=fails), "/-/reload", method)
    assert failed.status_code == 500
    assert "/etc/x.yml:1: a: unknown key" in failed.text


@pytest.mark.parametrize(
    ("path", "method"),
    [("/metrics", "POST"), ("/", "DELETE"), ("/-/healthy", "PUT"), ("/-/ready", "PATCH"), ("/-/reload", "GET")],
)
def test_other_methods_are_refused_with_those_that_are_allowed(path: str, method: str) -> None:
    answer = ask(app(), path, method)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) <= {"GET", "HEAD", "POST", "PUT"}
    assert method not in answer.headers["allow"]


@pytest.mark.parametrize(
    "path",
    [
        "/nothing-<script>",
        "/metrics/",
        "/metrics/../etc/passwd",
        "/%2e%2e/etc/passwd",
        "http://kvexporter//metrics",
        "/-/",
        "/Metrics",
    ],
)
def test_other_paths_are_not_found_and_not_repeated(path: str) -> None:
    answer = ask(app(), path)
    assert answer.status_code == 404
    assert answer.text == "Not Found"
    assert "location" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/-/ready", "/nothing", "/-/reload"])
def test_every_answer_has_the_security_headers(path: str) -> None:
    headers = ask(app(), path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; ")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["date"].endswith("GMT")


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_without_scripts_the_page_shows_each_server_and_where_to_go() -> None:
    page = ask(app(), "/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    texts = Page(page.text).texts
    for shown in ("main", "llama-server.service", "qwen.gguf", "ready", "262,144 tokens", "4.00", "75.0%"):
        assert shown in texts
    # The last minute's peak, and who died of what.
    for shown in ("87.5%", "4 requests in 1 incident", "0 requests"):
        assert shown in texts
    assert "2026-09-21 14:13:21 UTC: slot 0 held most, 159,069 tokens (60.7%)" in texts
    for link in ("/metrics", "/-/healthy", "/-/ready"):
        assert f'href=".{link}"' in page.text  # relative, for who reaches it below another path


def test_without_scripts_the_page_says_unknown_and_not_zero() -> None:
    texts = Page(ask(app(exporter(ServerSnapshot("far"))), "/").text).texts
    assert texts.count("unknown") == 9
    assert "As of 2026-09-21 14:15:01 UTC; reload for newer numbers." in texts
    assert "0" not in texts


def test_the_page_says_so_when_there_is_no_server() -> None:
    assert "No llama-server has been found" in ask(app(exporter()), "/").text


def test_names_of_servers_are_escaped() -> None:
    evil = ServerSnapshot("<script>alert(1)</script>", unit='"><img src=x onerror=alert(1)>', model="&lt;b>{servers}")
    page = Page(ask(app(exporter(evil, HOSTILE)), "/").text)
    assert page.tags.count("script") == 1  # the page's own
    assert not {"img", "b"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.texts


def test_the_page_has_nothing_inline_and_asks_nobody_else() -> None:
    answer = ask(app(), "/")
    page = Page(answer.text)
    assert not [name for name in page.attributes if name.startswith("on") or name == "style"]
    assert "style" not in page.tags
    assert "<script>" not in answer.text
    # Relative, so that it works behind a proxy under a path of its own.
    assert 'href="page/page.css"' in answer.text
    assert 'src="page/page.js"' in answer.text
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    for name in ("page.css", *SCRIPTS):
        text = ask(app(), f"/page/{name}").text
        # The namespace of SVG is a name, and nobody asks for it.
        assert "://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "innerHTML" not in text


SCRIPTS = ("page.js", "server.js", "draw.js", "dom.js")


def test_the_page_with_all_that_it_loads_is_under_60_kib() -> None:
    paths = ["/", "/page/page.css", *(f"/page/{name}" for name in SCRIPTS)]
    assert sum(len(ask(app(), path).content) for path in paths) < 60 * 1024


def test_every_file_of_the_page_that_the_package_carries_is_served() -> None:
    names = {entry.name for entry in (files("kvexporter.web") / "page").iterdir()}
    assert names == {"index.html", "page.css", *SCRIPTS}
    for name in SCRIPTS:
        assert ask(app(), f"/page/{name}").headers["content-type"] == "text/javascript; charset=utf-8"
    assert ask(app(), "/page/page.css").headers["content-type"] == "text/css; charset=utf-8"


@pytest.mark.parametrize("path", ["/page/", "/page/index.html", "/page/../app.py", "/page/%2e%2e/app.py", "/page/x.js"])
def test_no_other_file_is_served(path: str) -> None:
    assert ask(app(), path).status_code == 404
