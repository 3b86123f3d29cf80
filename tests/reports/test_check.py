"""The whole check, against servers that really listen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kvexporter.config import load_config
from kvexporter.reports.check import gather
from kvexporter.reports.findings import Finding, exit_status
from tests.support.paths import free_port

PROPS = '{"default_generation_settings": {"n_ctx": 4096}, "total_slots": 4%s}'


@contextmanager
def llama_server(props: str, statuses: dict[str, int]) -> Iterator[tuple[str, list[str]]]:
    """A server that answers like llama-server; gives its URL and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = {"/props": props, "/health": '{"status": "ok"}', "/slots": "[]"}.get(self.path, "").encode()
            self.send_response(statuses.get(self.path, 200))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def check(tmp_path: Path, server: str) -> list[Finding]:
    (tmp_path / "proc").mkdir(exist_ok=True)
    config = tmp_path / "kvexporter.yml"
    config.write_text(f"servers: [{server}]\n")
    return gather(load_config(config), str(tmp_path / "proc"))


def texts(findings: list[Finding], level: str) -> list[str]:
    return [f"{finding.subject}: {finding.text}" for finding in findings if finding.level == level]


def test_a_remote_server_that_cannot_sleep_is_asked_for_everything(tmp_path: Path) -> None:
    with llama_server(PROPS % "", {"/metrics": 501}) as (url, asked):
        found = check(tmp_path, f"{{name: far, url: '{url}'}}")
    assert sorted(asked) == ["/health", "/metrics", "/props", "/slots"]
    assert f"far: {url} answers" in texts(found, "ok")
    assert any("/metrics" in text for text in texts(found, "warning"))
    assert exit_status(found) == 0


@pytest.mark.parametrize("sleeping", ["true", "false"])
def test_a_server_that_may_sleep_is_neither_woken_nor_kept_awake(tmp_path: Path, sleeping: str) -> None:
    with llama_server(PROPS % f', "is_sleeping": {sleeping}', {}) as (url, asked):
        check(tmp_path, f"{{name: far, url: '{url}'}}")
    assert sorted(asked) == ["/health", "/props"]


def test_a_server_that_is_said_never_to_sleep_is_asked_for_its_slots(tmp_path: Path) -> None:
    with llama_server(PROPS % ', "is_sleeping": false', {}) as (url, asked):
        check(tmp_path, f"{{name: far, url: '{url}', may_sleep: false}}")
    assert "/slots" in asked


def test_a_server_that_wants_a_key_for_its_properties_is_a_problem(tmp_path: Path) -> None:
    with llama_server(PROPS % "", {"/props": 401}) as (url, asked):
        found = check(tmp_path, f"{{name: far, url: '{url}'}}")
    assert sorted(asked) == ["/health", "/props"]
    assert any(text.startswith("far: /props demands an API key") for text in texts(found, "problem"))


def test_root_is_told_how_to_check_as_the_services_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (remedy,) = [
        f.remedy for f in check(tmp_path, "{name: a, url: 'http://127.0.0.1:9'}") if f.subject == "permissions"
    ]
    assert "systemd-run --pipe --wait" in remedy
    assert remedy.endswith(" kvexporter check")


def test_a_server_that_does_not_listen_is_a_problem(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    found = check(tmp_path, f"{{name: far, url: '{url}'}}")
    assert any(text.startswith(f"far: {url} is not listening") for text in texts(found, "problem"))
    assert exit_status(found) == 1


def test_a_missing_key_file_is_said_as_a_warning_of_the_configuration(tmp_path: Path) -> None:
    found = check(tmp_path, f"{{name: far, url: 'http://127.0.0.1:{free_port()}', api_key_file: nothing}}")
    assert any("servers[0].api_key_file" in text for text in texts(found, "warning"))


def test_a_host_without_llama_server_is_a_problem_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    config = tmp_path / "kvexporter.yml"
    config.write_text("")
    problems = texts(gather(load_config(config), str(tmp_path / "proc")), "problem")
    assert problems == ["processes: no llama-server process was found on this host"]


def test_a_missing_proc_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    config = tmp_path / "kvexporter.yml"
    config.write_text("")
    problems = texts(gather(load_config(config), str(tmp_path / "nothing")), "problem")
    assert any("cannot be listed: No such file or directory" in text for text in problems)
