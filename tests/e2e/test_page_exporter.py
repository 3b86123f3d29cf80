"""The live page of the real exporter as a process: killed, hung, and back again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import Watched, chromium
from tests.support.exporter import Exporter

expect.set_options(timeout=60_000)
CONFIG = {"servers": [{"name": "far", "url": "http://127.0.0.1:9"}]}
"""Nothing listens there, so its one server is down."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def test_a_killed_exporter_is_plain_to_see_and_so_is_its_return(browser: Browser) -> None:
    with Exporter(CONFIG) as exporter, Watched(browser, exporter.url) as watched:
        page = watched.page
        row = page.locator(".server")
        expect(page.locator("#link-text")).to_have_text("Live")
        expect(row.locator(".headline")).to_have_text("Down")

        exporter.kill()
        expect(page.get_by_role("alert")).to_contain_text("kvexporter does not answer")
        expect(page.locator("#link-text")).to_contain_text("No connection")
        # In the end nothing is left of what it said.
        expect(row.locator(".headline")).to_have_text("not known: no connection to kvexporter")
        expect(row.locator(".level")).to_have_text("Unknown")

        exporter.launch()
        exporter.wait_ready()
        expect(page.locator("#link-text")).to_have_text("Live")
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(row.locator(".headline")).to_have_text("Down")
        assert watched.hosts == {exporter.address}


def test_an_exporter_that_hangs_is_not_taken_for_one_that_has_no_news(browser: Browser) -> None:
    with Exporter(CONFIG) as exporter, Watched(browser, exporter.url) as watched:
        page = watched.page
        expect(page.locator(".server .headline")).to_have_text("Down")

        os.kill(exporter.pid, signal.SIGSTOP)
        try:
            # Its connection stays open, and nothing comes.
            expect(page.get_by_role("alert")).to_contain_text("No word from kvexporter")
        finally:
            os.kill(exporter.pid, signal.SIGCONT)
        expect(page.locator("#link-text")).to_have_text("Live")
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(page.locator(".server .headline")).to_have_text("Down")


def test_an_idle_page_hears_from_the_exporter_and_stays_fresh(browser: Browser) -> None:
    with Exporter(CONFIG) as exporter, Watched(browser, exporter.url) as watched:
        page = watched.page
        expect(page.locator(".server .headline")).to_have_text("Down")
        page.wait_for_timeout(14_000)  # longer than the silence after which the page would complain
        expect(page.locator("#link-text")).to_have_text("Live")
        assert watched.complaints == []
