"""The real daemon on servers that hang in every way there is: the others are polled on time, and scrapes answer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kvexporter.sources.llama_api import BODY_BOUND
from kvexporter.sources.process import ProcessReader
from tests.support.background import background_servers, black_hole
from tests.support.exporter import Exporter
from tests.support.http_servers import (
    Behaviour,
    HttpServer,
    Request,
    answering,
    by_path,
    endless_chunks,
    endless_headers,
    hanging,
    one_byte_a_second,
    raw,
)
from tests.support.prometheus import promtool_check_metrics

INTERVAL = 1.0
GOOD = ("good-1", "good-2", "good-3")

SLOTS = b'[{"id":0,"id_task":7,"n_ctx":4096,"is_processing":true,"n_prompt_tokens":1234,"next_token":{"n_decoded":5}}]'
PROPS = b'{"default_generation_settings":{"n_ctx":4096},"total_slots":1,"build_info":"b11434-0","model_path":"m.gguf"}'

good = by_path(
    {
        "/health": answering(),
        "/props": answering(PROPS),
        "/slots": answering(SLOTS),
        "/metrics": answering(b"llamacpp:prompt_tokens_total 1234\nllamacpp:requests_processing 1\n"),
    }
)


async def one_gibibyte(request: Request, writer: Any) -> None:
    """Announce 1 GiB and begin to send it."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % 2**30)
    for _ in range(2**30 // 2**16):
        writer.write(bytes(2**16))
        await writer.drain()


BAD: dict[str, Behaviour] = {
    "never-answers": hanging,
    "byte-a-second": one_byte_a_second,
    "closes-midway": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n[{", close=True),
    "closes-at-once": raw(b"", close=True),
    "redirects": raw(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
    "one-gibibyte": one_gibibyte,
    "endless-chunks": endless_chunks,
    "endless-headers": endless_headers,
    "nonsense": raw(b"\0\xff SSH-2.0 \r\n\r\n", close=True),
    "html": answering(b"<html>please log in</html>"),
    "nested": answering(b"[" * 100_000),
    "slots-hang": by_path({"/health": answering(), "/props": answering(PROPS), "/slots": hanging}),
}
REASONS = {
    "never-answers": {"timeout"},
    "byte-a-second": {"timeout"},
    "closes-midway": {"connection"},
    "closes-at-once": {"connection"},
    "redirects": {"redirect"},
    "one-gibibyte": {"too_large"},
    "endless-chunks": {"too_large"},
    "endless-headers": {"too_large", "connection"},
    "nonsense": {"connection"},
    "html": {"malformed"},
    "nested": {"malformed"},
    "black-hole": {"timeout"},
}
"""Why /props gives nothing."""


def config(urls: dict[str, str]) -> dict[str, Any]:
    return {
        "discovery": False,
        "poll_interval": f"{INTERVAL:g}s",
        "servers": [{"name": name, "url": url, "may_sleep": False} for name, url in urls.items()],
    }


@pytest.fixture(scope="module")
def watching() -> Iterator[tuple[Exporter, dict[str, HttpServer]]]:
    """The exporter on three good servers and all the bad ones."""
    with ExitStack() as stack:
        servers = stack.enter_context(background_servers({**BAD, **dict.fromkeys(GOOD, good)}))
        urls = {name: server.url for name, server in servers.items()}
        urls["black-hole"] = stack.enter_context(black_hole())
        yield stack.enter_context(Exporter(config(urls))), servers


@pytest.mark.parametrize("name", REASONS)
def test_each_way_of_hanging_is_counted_under_its_reason(
    watching: tuple[Exporter, dict[str, HttpServer]], name: str
) -> None:
    exporter, _ = watching
    end = time.monotonic() + 60
    reasons: set[str] = set()
    while not reasons and time.monotonic() < end:
        time.sleep(0.2)
        reasons = set(exporter.scrape().by("reason", "kvexporter_poll_failures_total", server=name, endpoint="props"))
    assert reasons
    assert reasons <= REASONS[name]


def test_the_other_servers_are_polled_on_time_and_scrapes_answer(
    watching: tuple[Exporter, dict[str, HttpServer]],
) -> None:
    exporter, _ = watching
    for name in GOOD:
        exporter.wait_value(1234, "llama_slot_tokens", server=name, slot="0")
    polls: dict[str, list[float]] = {name: [] for name in GOOD}
    end = time.monotonic() + 60
    slowest = 0.0
    while min(map(len, polls.values())) < 15 and time.monotonic() < end:
        began = time.monotonic()
        now = exporter.scrape()
        slowest = max(slowest, time.monotonic() - began)
        for name, seen in polls.items():
            at = now.value("kvexporter_last_poll_timestamp_seconds", server=name, endpoint="slots")
            if at is not None and at not in seen:
                seen.append(at)
        time.sleep(0.2)
    for name, seen in polls.items():
        gaps = [later - earlier for earlier, later in pairwise(seen)]
        assert len(gaps) >= 14, f"{name} was polled {len(gaps)} times in a minute"
        # The middle one: a busy test machine may delay any single poll.
        assert statistics.median(gaps) <= 1.5 * INTERVAL, (name, gaps)
    assert slowest < 2.0


def test_a_server_that_keeps_only_its_slots_to_itself_is_up(watching: tuple[Exporter, dict[str, HttpServer]]) -> None:
    exporter, _ = watching
    now = exporter.wait_value(1, "llama_up", server="slots-hang")
    assert now.all("llama_slot_tokens", server="slots-hang") == []


def test_no_body_is_held_and_no_question_piles_up(watching: tuple[Exporter, dict[str, HttpServer]]) -> None:
    exporter, _ = watching
    exporter.wait_value(1234, "llama_slot_tokens", server=GOOD[0], slot="0")
    sample = ProcessReader().read(exporter.pid)
    assert sample is not None
    assert sample.anon_bytes is not None
    assert sample.anon_bytes < 60 * 2**20 + len(BAD) * BODY_BOUND
    assert sample.open_fds is not None
    # At most one for each endpoint of each server, and what the process itself needs.
    assert sample.open_fds < 5 * (len(BAD) + len(GOOD) + 1) + 30


def test_what_is_shown_is_clean_and_quotes_nothing_of_the_answers(
    watching: tuple[Exporter, dict[str, HttpServer]],
) -> None:
    exporter, _ = watching
    text = exporter.scrape().text
    assert promtool_check_metrics(text) == ""
    for words in ("please log in", "SSH-2.0"):
        assert words not in text
        assert words not in exporter.log()
    assert "Traceback" not in exporter.log()


def test_stopping_does_not_wait_for_servers_that_hang(tmp_path: Path) -> None:
    with background_servers({"hangs": hanging}) as servers:
        with Exporter(config({"hangs": servers["hangs"].url})) as exporter:
            end = time.monotonic() + 30
            while not servers["hangs"].requests and time.monotonic() < end:
                time.sleep(0.05)
            assert servers["hangs"].requests
            began = time.monotonic()
        assert time.monotonic() - began < 15, exporter
