"""The live page in a real browser, on the real application: what an operator sees, and when."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from kvexporter.rules.thresholds import DEFERRED_FOR, LOADING_FOR
from kvexporter.snapshot import ExporterSnapshot, LifeSnapshot
from kvexporter.web.events import MAX_CLIENTS
from tests.support.browser import Watched, chromium
from tests.support.live_page import LivePage
from tests.support.page_stories import ASLEEP, BUSY, DOWN, INCIDENT, LOADING, SPLIT, fleet, recorded
from tests.support.paths import RECORDINGS
from tests.support.snapshots import FULL, HOSTILE, UNKNOWN, exporter
from tests.support.web_server import ALICE

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


class Shown:
    """A page that must not complain, nor ask anybody but its own exporter."""

    def __init__(self, browser: Browser, served: LivePage, **options: Any) -> None:
        self.served = served
        self.watched = Watched(browser, served.url, **options)
        self.page: Page = self.watched.page

    def __enter__(self) -> Shown:
        self.watched.__enter__()
        expect(self.page.locator("#link-text")).to_have_text("Live")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                assert self.watched.complaints == []
                assert self.watched.hosts == {f"127.0.0.1:{self.served.port}"}
        finally:
            self.watched.__exit__()

    def server(self, name: str) -> Any:
        return self.page.locator("details.server").filter(has=self.page.get_by_role("heading", name=name, exact=True))


@pytest.fixture(scope="module")
def incident() -> list[ExporterSnapshot]:
    """Five minutes into the recording, nine seconds before the incident, one second after it."""
    return recorded([300.0, 765.0, 775.0])


def test_a_pool_that_is_full_now_has_no_seconds_left_and_not_an_empty_place(browser: Browser) -> None:
    assert BUSY.pool is not None
    full = replace(BUSY, pool=replace(BUSY.pool, seconds_to_full=0.0))
    with LivePage(exporter(full)) as served, Shown(browser, served) as shown:
        expect(shown.server(full.name).locator(".left")).to_have_text("0 s left")


def test_the_page_tells_the_story_of_an_incident(browser: Browser, incident: list[ExporterSnapshot]) -> None:
    before, during, after = incident
    expected = json.loads((RECORDINGS / "expected.json").read_text())[INCIDENT]["incident_details"][0]
    with LivePage(before) as served, Shown(browser, served) as shown:
        page = shown.page
        row = page.locator("details.server")

        # Before: four agents at work, room left, and nobody has died.
        expect(row.locator(".fill")).to_have_text("71.9%")  # 188,416 of 262,144
        expect(row.locator(".level")).not_to_have_text("Act now")
        expect(page.get_by_text("None so far.")).to_be_visible()
        expect(page.get_by_text("It works on 4 requests in 4 slots.")).to_be_visible()
        expect(page.get_by_text("only 65,536 tokens are sure for each")).to_be_visible()

        # During: it is known how long is left, and who holds most.
        served.shown = during
        expect(row.locator(".level")).to_have_text("Act now")
        expect(row.locator(".headline")).to_contain_text("Almost full: full in about")
        expect(row.locator(".left")).to_contain_text("s left")
        expect(page.locator("#news")).to_contain_text("Almost full")
        expect(page).to_have_title("(1!) kvexporter")
        biggest = page.locator("table.slots tbody tr").nth(3)
        expect(biggest).to_contain_text("158,")
        assert shown.watched.violations() == []

        # After: the same page tells what happened, to the last token of the log's own lines.
        served.shown = after
        expect(row.locator(".headline")).to_have_text("The pool ran out just now: 4 requests died")
        expect(page.locator("#news")).to_contain_text("4 requests died")
        expect(page.get_by_text("So far 1 of a full pool, 0 of a slot's own limit.")).to_be_visible()
        page.locator(".incident summary").click()
        cells = page.locator(".incident tbody tr").all_inner_texts()
        told = {re.split(r"\W", row)[0]: int(re.findall(r"[\d,]+(?=\t|\n)", row)[-1].replace(",", "")) for row in cells}
        assert told == expected["slot_tokens"]
        feet = page.locator(".incident tfoot")
        expect(feet).to_contain_text(f"{expected['sum_tokens']:,}")
        expect(feet).to_contain_text(f"{expected['excess_tokens']}")
        expect(page.locator(".incident tbody strong")).to_have_text("3, held most")
        expect(page.locator(".hour line.incident.pool")).to_have_count(1)
        page.get_by_text("What would prevent it").click()
        expect(page.get_by_text("-c 262144 -np 4", exact=True)).to_be_visible()
        assert shown.watched.violations() == []


def width(element: Any, name: str = "width") -> float:
    return float(element.get_attribute(name).rstrip("%"))


def test_the_pool_is_drawn_to_scale(browser: Browser, incident: list[ExporterSnapshot]) -> None:
    (server,) = incident[0].servers
    assert server.pool is not None
    assert server.geometry.capacity is not None
    assert server.geometry.guaranteed is not None
    with LivePage(incident[0]) as served, Shown(browser, served) as shown:
        pool = shown.page.locator("svg.pool")
        scale = width(pool.locator(".room")) / server.geometry.capacity  # percent for each token
        segments = pool.locator("rect.slot")
        expect(segments).to_have_count(4)
        for segment, slot in zip(segments.all(), server.slots, strict=True):
            assert slot.tokens is not None
            assert width(segment) == pytest.approx(slot.tokens * scale, abs=0.01)
        # One after the other, without gaps.
        ends = [width(each, "x") + width(each) for each in segments.all()]
        assert [width(each, "x") for each in segments.all()[1:]] == pytest.approx(ends[:-1], abs=0.01)
        # A tick where each slot's sure part ends, the last one at the end of the pool.
        ticks = [width(tick, "x1") for tick in pool.locator("line.tick").all()]
        assert ticks == pytest.approx([server.geometry.guaranteed * scale * slot for slot in (1, 2, 3, 4)], abs=0.01)
        assert width(pool.locator("line.end"), "x1") == pytest.approx(server.geometry.capacity * scale, abs=0.01)
        # What they will need: within the scale at its place, beyond it at the edge, and then that is said.
        assert server.pool.committed_tokens is not None
        need = pool.locator("line.need")
        assert width(need, "x1") == pytest.approx(server.pool.committed_tokens * scale, abs=0.01)
        assert width(pool.locator("line.most"), "x1") == 100
        expect(shown.page.locator(".marks")).to_contain_text(f"{server.pool.demand_tokens:,} (beyond this scale)")
        expect(shown.page.get_by_role("img", name="188,416 of 262,144 tokens (71.9%)")).to_be_visible()


def test_idle_cache_stands_apart(browser: Browser) -> None:
    with LivePage(exporter(FULL)) as served, Shown(browser, served) as shown:
        idle = shown.page.locator("svg.pool rect.idle")
        expect(idle).to_have_count(1)
        last = shown.page.locator("svg.pool rect.slot").last
        assert width(idle, "x") == pytest.approx(width(last, "x") + width(last), abs=0.01)
        assert float(idle.get_attribute("height") or 0) < float(last.get_attribute("height") or 0)
        expect(shown.page.locator(".marks")).to_contain_text("idle cache 4,096")


def test_what_is_not_known_is_said_and_how_to_mend_it(browser: Browser) -> None:
    failing = replace(BUSY, failing={"metrics": "unsupported", "slots": "unauthorized"})
    with LivePage(exporter(failing, UNKNOWN)) as served, Shown(browser, served) as shown:
        shown.page.get_by_text("kvexporter could not read all: 2 problems").click()
        expect(shown.page.get_by_text("permission denied")).to_be_visible()
        expect(shown.page.get_by_text("SystemMaxUse= in journald.conf")).to_be_visible()
        busy = shown.server("busy")
        expect(busy.get_by_text("/metrics is off")).to_be_visible()
        expect(busy.get_by_text("start it with --metrics")).to_be_visible()
        expect(busy.get_by_text("/slots demands an API key")).to_be_visible()
        far = shown.server("far")
        expect(far.get_by_text("requests that died for want of context are not counted")).to_be_visible()
        expect(far.get_by_text("The pool's size is not known")).to_be_visible()
        expect(shown.server("far").locator(".fill")).to_have_text("?")
        assert "0%" not in far.inner_text()


def test_memory_is_one_bar_whose_parts_add_up(browser: Browser) -> None:
    with LivePage(exporter(SPLIT)) as served, Shown(browser, served) as shown:
        parts = shown.page.locator("svg.memory rect").all()
        assert sum(width(part) for part in parts) == pytest.approx(100, abs=0.01)
        # 9,000,000,000 of 25,757,220,864 bytes.
        assert width(parts[0]) == pytest.approx(34.942, abs=0.01)
        expect(shown.page.get_by_text("8.4 GiB of 24.0 GiB are this server's")).to_be_visible()


def test_every_state_has_its_word(browser: Browser) -> None:
    with LivePage(exporter(DOWN, LOADING, ASLEEP)) as served, Shown(browser, served) as shown:
        expect(shown.server("down").locator(".headline")).to_have_text("Down")
        expect(shown.server("down").get_by_text("It is down.")).to_be_visible()
        expect(shown.server("loading").locator(".headline")).to_have_text("Loading its model")
        expect(shown.server("asleep").locator(".headline")).to_have_text("Sleeps until the next request")
        assert shown.watched.violations() == []


def test_what_the_alerts_page_for_is_to_be_acted_on_and_what_was_stopped_is_not(browser: Browser) -> None:
    at = exporter().at
    lives = {
        "looping": LifeSnapshot(restarts_at=(at - 90, at - 60, at - 30), exited_at=at - 30, exit_code="127"),
        "killed": LifeSnapshot(oom_killed_at=at - 130),
        "waiting": LifeSnapshot(deferred_since=at - DEFERRED_FOR),
        "slow to load": LifeSnapshot(loading_since=at - LOADING_FOR),
        "stopped": LifeSnapshot(down_since=at - 600, stopped_on_request=True),
    }
    servers = [
        replace(DOWN, name="looping", life=lives["looping"]),
        replace(SPLIT, name="killed", life=lives["killed"]),
        replace(SPLIT, name="waiting", requests_deferred=2, life=lives["waiting"]),
        replace(LOADING, name="slow to load", life=lives["slow to load"]),
        replace(DOWN, name="stopped", life=lives["stopped"]),
    ]
    with LivePage(exporter(*servers)) as served, Shown(browser, served) as shown:
        expect(shown.page.locator("#summary")).to_have_text("5 servers: 2 act now, 2 watch, 1 note")
        for name, level, headline in (
            ("looping", "Act now", "Crash loop: 3 restarts in 15 min, exit code 127"),
            ("killed", "Act now", "Killed for want of memory 2 min ago"),
            ("waiting", "Watch", "2 requests wait for a slot, for 5 min"),
            ("slow to load", "Watch", "Loading its model for 15 min"),
            ("stopped", "Note", "Stopped on request"),
        ):
            expect(shown.server(name).locator(".level")).to_have_text(level)
            expect(shown.server(name).locator(".headline")).to_have_text(headline)
        shown.server("stopped").locator("summary").first.click()
        expect(
            shown.server("stopped").get_by_text("It is stopped: systemd was asked to stop its unit.")
        ).to_be_visible()
        assert not shown.watched.is_wider_than_the_screen()
        assert shown.watched.violations() == []

        # The operator starts the first again, and the loop is over.
        now = served.shown
        served.shown = replace(now, servers=(replace(SPLIT, name="looping"), *now.servers[1:]))
        expect(shown.server("looping").locator(".level")).to_have_text("Fine")


# ---- many servers, small screens, dark rooms


def test_fifty_servers_are_rows_and_those_in_danger_come_first(browser: Browser) -> None:
    with LivePage(fleet()) as served, Shown(browser, served) as shown:
        rows = shown.page.locator("details.server")
        expect(rows).to_have_count(50)
        expect(shown.page.locator("#summary")).to_have_text("50 servers: 10 act now, 15 note, 25 fine")
        order = {"Act now": 0, "Watch": 1, "Unknown": 2, "Note": 3, "Fine": 4}
        levels = [order[text] for text in rows.locator(".level").all_inner_texts()]
        assert levels == sorted(levels)
        heights = shown.page.evaluate(
            "[...document.querySelectorAll('.server > summary')].map((row) => row.getBoundingClientRect().height)"
        )
        assert max(heights) < 80
        assert not shown.watched.is_wider_than_the_screen()
        assert shown.watched.violations() == []

        # A row opens where it is, and stays open and focused while others rise above it.
        row = shown.server("gpu4-9")
        row.locator("summary").first.focus()
        shown.page.keyboard.press("Enter")
        expect(row.locator(".body")).to_be_visible()
        now = served.shown
        served.shown = replace(now, servers=tuple(replace(s, state="down") for s in now.servers if s.name != "gpu0-0"))
        expect(shown.page.locator("#summary")).to_have_text("49 servers: 49 act now")
        expect(row.locator(".body")).to_be_visible()
        expect(row.locator("summary").first).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_of_320_pixels_shows_all_without_scrolling_sideways(browser: Browser, scheme: Any) -> None:
    with (
        LivePage(exporter(FULL, BUSY, UNKNOWN)) as served,
        Shown(browser, served, width=320, height=640, scheme=scheme) as shown,
    ):
        for summary in shown.page.locator(".body summary:visible").all():
            summary.click()
        expect(shown.page.locator(".incident table").first).to_be_visible()
        assert not shown.watched.is_wider_than_the_screen()
        assert shown.watched.violations() == []
        assert not shown.page.evaluate(
            "[...document.querySelectorAll('main *')].some((e) => !e.closest('svg, .unseen')"
            " && e.getBoundingClientRect().right > window.innerWidth + 1)"
        )


def test_a_dark_room_stays_dark(browser: Browser) -> None:
    def luminance(page: Page, selector: str, what: str) -> float:
        text = page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).{what}")
        return sum(map(int, re.findall(r"\d+", text)[:3])) / 765

    with LivePage(exporter(FULL)) as served, Shown(browser, served, scheme="dark") as shown:
        expect(shown.page.locator(".server .fill")).to_have_text("75.0%")
        assert luminance(shown.page, "body", "backgroundColor") < 0.15
        assert luminance(shown.page, ".server", "backgroundColor") < 0.2
        assert luminance(shown.page, "body", "color") > 0.8
        assert shown.watched.violations() == []


def test_all_can_be_reached_by_keyboard(browser: Browser) -> None:
    with LivePage(exporter(BUSY)) as served, Shown(browser, served) as shown:
        page = shown.page
        page.wait_for_selector(".incident")
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the servers")).to_be_focused()
        page.keyboard.press("Enter")
        reached = []
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.textContent.trim().slice(0, 30)"))
            if "Readiness" in reached:
                break
        assert "Readiness" in reached
        assert any(text.startswith("What would prevent it") for text in reached)
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"


# ---- numbers that are old


def test_old_numbers_are_never_shown_as_fresh(browser: Browser) -> None:
    with LivePage(exporter(BUSY)) as served:
        watched = Watched(browser, served.url)
        watched.page.clock.install()
        with watched:
            page = watched.page
            expect(page.locator(".server .fill")).to_have_text("38.1%")
            served.stop()

            # At once: it is said, with the age, and what is old looks so.
            expect(page.get_by_role("alert")).to_contain_text("kvexporter does not answer")
            expect(page.get_by_role("alert")).to_contain_text("What is below is of 14:15:01 and old.")
            expect(page.locator("#link-text")).to_contain_text("No connection")
            expect(page).to_have_title("(?) kvexporter")
            assert "line-through" in page.locator(".server .fill").evaluate("e => getComputedStyle(e).textDecoration")
            assert watched.violations() == []

            # After half a minute they are gone.
            page.clock.fast_forward(31_000)
            expect(page.locator(".server .fill")).to_have_text("?")
            expect(page.get_by_role("alert")).to_contain_text("Older numbers are not shown.")
            text = page.locator("main").inner_text()
            for old in ("38.1%", "100,000", "60,000", "GiB"):
                assert old not in text
            expect(page.locator("svg.pool rect")).to_have_count(0)

            # And when the exporter is back, so are its numbers, without anybody doing anything.
            served.shown = exporter(replace(BUSY, requests_deferred=3))
            served.start()
            page.clock.fast_forward(35_000)
            expect(page.locator(".server .fill")).to_have_text("38.1%")
            expect(page.get_by_role("alert")).to_be_hidden()
            expect(page.locator(".server")).to_contain_text("3 more requests wait for a slot")
            expect(page.locator("#link-text")).to_have_text("Live")
        assert all("ERR_" in complaint for complaint in watched.complaints)


def test_where_streams_are_refused_the_page_asks_now_and_then(browser: Browser) -> None:
    with (
        LivePage(exporter(BUSY)) as served,
        httpx.Client(trust_env=False, timeout=30) as client,
        ExitStack() as streams,
    ):
        taken = []
        for _ in range(MAX_CLIENTS):
            answer = streams.enter_context(client.stream("GET", f"{served.url}/api/v1/events"))
            taken.append(answer.iter_lines())
            next(taken[-1])
        with Watched(browser, served.url) as watched:
            expect(watched.page.locator("#link-text")).to_have_text("Asking every 3 s")
            expect(watched.page.locator(".server .fill")).to_have_text("38.1%")
            served.shown = exporter(replace(BUSY, pool=FULL.pool))
            expect(watched.page.locator(".server .fill")).to_have_text("75.0%")
        # A browser reports the refusal itself.
        assert [text for text in watched.complaints if "503" not in text] == []


def test_the_page_works_behind_a_password(browser: Browser, tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(ALICE)
    with (
        LivePage(exporter(BUSY), config) as served,
        Watched(browser, served.url, http_credentials={"username": "alice", "password": "fakepassword"}) as watched,
    ):
        expect(watched.page.locator("#link-text")).to_have_text("Live")
        expect(watched.page.locator(".server .fill")).to_have_text("38.1%")
        expect(watched.page.locator(".incident")).to_have_count(2)


# ---- strangers' texts, and long days


def test_names_never_become_markup(browser: Browser) -> None:
    name = "<img src=x onerror=document.title='taken'>"
    evil = replace(HOSTILE, name=name, unit=name, model="<script>document.title='taken'</script>", build="&lt;b>")
    with LivePage(exporter(evil, BUSY)) as served, Shown(browser, served) as shown:
        expect(shown.page.get_by_role("heading", name=name)).to_be_visible()
        expect(shown.page.locator("main img, main script, main b")).to_have_count(0)
        assert "taken" not in shown.page.title()


def test_the_page_says_so_when_no_server_was_found(browser: Browser) -> None:
    with LivePage(exporter()) as served, Shown(browser, served) as shown:
        expect(shown.page.get_by_text("No llama-server has been found.")).to_be_visible()
        served.shown = exporter(BUSY)
        expect(shown.server("busy")).to_be_visible()
        expect(shown.page.get_by_text("No llama-server has been found.")).to_be_hidden()


def test_a_page_that_is_open_for_long_does_not_grow(browser: Browser) -> None:
    with LivePage(exporter(BUSY)) as served, Shown(browser, served) as shown:
        page = shown.page
        page.wait_for_selector(".incident")
        sizes = []
        for step in range(8):
            served.shown = exporter(replace(BUSY, requests_deferred=step + 1))
            expect(page.locator(".server")).to_contain_text(f"{step + 1} more request")
            sizes.append(page.evaluate("document.querySelectorAll('*').length"))
        assert all(after - before == 0 for before, after in pairwise(sizes))
