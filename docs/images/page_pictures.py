"""Takes the pictures of the live page: `.venv/bin/python -m docs.images.page_pictures` from the project's folder.

The real application in Debian's Chromium, showing a recorded incident and a fleet of fifty made up for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, expect

from kvexporter.snapshot import ExporterSnapshot
from tests.support.browser import Watched, chromium
from tests.support.live_page import LivePage
from tests.support.page_stories import INCIDENT_AT, fleet, recorded

HERE = Path(__file__).parent
MOST_BYTES = 200 * 1024


def main() -> None:
    """Write all of them."""
    during, after = recorded([735.0, INCIDENT_AT + 0.5])
    with chromium() as browser:
        take(browser, after, "page-light.png", opened=True)
        take(browser, during, "page-dark.png", scheme="dark")
        take(browser, during, "page-phone.png", width=390, height=844)
        take(browser, fleet(), "page-fleet.png", height=900, full=False)


def take(
    browser: Browser,
    shown: ExporterSnapshot,
    name: str,
    *,
    width: int = 1100,
    height: int = 700,
    scheme: Literal["light", "dark"] = "light",
    opened: bool = False,
    full: bool = True,
) -> None:
    """Take one picture."""
    with LivePage(shown) as served, Watched(browser, served.url, width=width, height=height, scheme=scheme) as watched:
        page = watched.page
        expect(page.locator("#link-text")).to_have_text("Live")
        page.wait_for_timeout(1000)
        if opened:
            page.locator(".incident summary").first.click()
        page.screenshot(path=HERE / name, full_page=full)
    size = (HERE / name).stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{name} has {size} bytes")


if __name__ == "__main__":
    main()
