"""The exporter's own log: what happened to a server, once each, in words."""

from __future__ import annotations

import logging

import pytest

from kvexporter.announcing import say_news, say_no_log, say_unit_event
from kvexporter.facts import FoundProcess, UnitExited, UnitOutOfMemory, UnitStarted
from kvexporter.incident_words import incident_words
from kvexporter.llama import events as ev
from kvexporter.server import Server
from kvexporter.snapshot import Incident, IncidentSlot
from kvexporter.targets import Target
from kvexporter.watched import Watched

NOW = 10_000.0


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kvexporter.servers")


def watched(process: FoundProcess | None = None) -> Watched:
    return Watched(Target("main", process=process), Server("main"))


def news(server: Watched, now: float = NOW, *, caught_up: bool = True, log_expected: bool = False) -> None:
    say_news(server, now, caught_up=caught_up, log_expected=log_expected)


def die(server: Watched, at: float) -> None:
    """One request dies of a full pool."""
    for event in (
        ev.TaskLaunched(0, 7),
        ev.BatchUnplaced(1),
        ev.ContextExceeded(0, True),
        ev.RequestFailed(7, "pool"),
        ev.Released(0, 7, 900, False),
    ):
        server.model.line(ev.LogLine(event), at)
    server.model.tick(at + 60)


def incident(*slots: IncidentSlot, failed: int = 4, capacity: int | None = 262_144) -> Incident:
    return Incident("pool", 1.0, 2.0, slots, failed, capacity, None, None, None, None, None)


def test_an_incident_in_words_names_the_biggest_holders_first() -> None:
    slots = [IncidentSlot(n, n, tokens, None) for n, tokens in enumerate((10, 40_000, 30_000, 158_224, 20, None))]
    assert incident_words(incident(*slots)) == (
        "the pool ran out: 4 requests died; slot 3 held 158,224 tokens, slot 1 held 40,000 tokens, "
        "slot 2 held 30,000 tokens, slot 4 held 20 tokens, 1 more slot the rest"
    )
    assert incident_words(incident(failed=1)) == "the pool ran out: 1 request died"


def test_an_incident_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    server = watched()
    die(server, NOW)
    news(server, NOW + 1)
    news(server, NOW + 2)
    assert caplog.messages == ["main: the pool ran out: 1 request died; slot 0 held 900 tokens"]


def test_incidents_of_an_old_log_are_counted_in_one_line_after_it_was_read(caplog: pytest.LogCaptureFixture) -> None:
    server = watched()
    for at in (1000.0, 2000.0, 3000.0):
        die(server, at)
        news(server, caught_up=False)
    assert caplog.messages == []
    news(server)
    assert caplog.messages == ["main: 3 earlier times the pool ran out are in its log"]


def test_an_outage_and_its_end_are_said_once_each(caplog: pytest.LogCaptureFixture) -> None:
    server = watched()
    news(server)
    server.model.health_polled(NOW)
    news(server)
    server.model.poll_failed("health", "refused", NOW + 1)
    news(server)
    news(server)
    server.model.poll_failed("health", "loading", NOW + 2)
    news(server)
    server.model.health_polled(NOW + 3)
    news(server)
    assert caplog.messages == ["main is down", "main is up again"]


def test_a_units_exit_is_said_in_words_and_an_old_one_is_not(caplog: pytest.LogCaptureFixture) -> None:
    server = watched()
    say_unit_event(server, UnitExited("killed", "SEGV"), NOW - 3600, NOW)
    say_unit_event(server, UnitStarted(), NOW, NOW)
    for _ in range(100):
        say_unit_event(server, UnitExited("dumped", "SEGV"), NOW, NOW)
    say_unit_event(server, UnitExited("exited", "1"), NOW, NOW)
    say_unit_event(server, UnitOutOfMemory(), NOW, NOW)
    assert caplog.messages == [
        "main: its process was killed by signal SEGV",
        "main: its process ended with exit status 1",
        "main: its process was killed because memory ran out",
    ]


def test_a_running_server_whose_journal_stays_silent_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    server = watched(FoundProcess(1, NOW - 30, ("llama-server",)))
    news(server, log_expected=True)
    assert caplog.messages == []
    news(server, NOW + 60, log_expected=True)
    news(server, NOW + 61, log_expected=True)
    assert [text.split(":")[1] for text in caplog.messages] == [" nothing of llama-server's own is in its log, so "
        "requests that die for want of context are not counted"]  # fmt: skip


def test_a_bare_process_without_a_log_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    say_no_log(watched(FoundProcess(1, NOW, ("llama-server",))))
    say_no_log(watched())
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
