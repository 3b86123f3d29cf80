"""Debian's Chromium, driven by playwright's library alone: what a page shows, asks for and complains of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Request, sync_playwright

from tests.support.paths import SetupMissingError

CHROMIUM = Path("/usr/bin/chromium")
PATIENCE = 30_000
"""Milliseconds: the machine is slow and shared."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser. No asyncio loop may run in this thread meanwhile, and none can be started."""
    if not CHROMIUM.exists():
        raise SetupMissingError("Debian's chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            # As root there is no sandbox to be had; only our own page is shown.
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            timeout=4 * PATIENCE,
        )
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page and what it did: errors in its console and the hosts it asked. A context manager."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        *,
        width: int = 1280,
        height: int = 900,
        scheme: Literal["light", "dark"] = "light",
        **options: Any,
    ) -> None:
        self._context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="UTC", **options
        )
        self._context.set_default_timeout(PATIENCE)
        self.url = url
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        self.page: Page = self._context.new_page()
        self.page.on("console", lambda message: self._said(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        self.page.on("request", self._asked)

    def __enter__(self) -> Watched:
        self.page.goto(self.url)
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def violations(self) -> list[str]:
        """What axe-core finds wrong for people who use the page by keyboard, by ear or with weak eyes."""
        found = Axe().run(self.page).response["violations"]
        return [f"{rule['id']}: {node['target']}: {node['failureSummary']}" for rule in found for node in rule["nodes"]]

    def is_wider_than_the_screen(self) -> bool:
        """Whether one would have to scroll sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def _asked(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme != "data":
            self.hosts.add(address.netloc)
