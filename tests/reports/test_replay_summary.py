"""The lines that a replay says besides the metrics."""

from __future__ import annotations

from dataclasses import replace

from kvexporter.reports.replay_summary import MOST_INCIDENTS, replay_summary
from kvexporter.snapshot import Counters, ExporterSnapshot, Incident, IncidentSlot, ServerSnapshot
from tests.support.snapshots import FOUR_AGENTS, FULL

REFUSED = Incident("slot", 70.5, 70.5, (IncidentSlot(3, 6, 5000, None),), 1, 4096, 5000, 904, None, None, 3, 5000)


def said(server: ServerSnapshot, *, since_start: bool = False) -> str:
    return replay_summary(ExporterSnapshot(0.0, (server,)), {"main": (0.987, 1790000001.0)}, since_start=since_start)


def test_an_incident_is_told_with_its_time_its_holders_and_the_excess() -> None:
    assert said(FULL) == (
        "main: 4 slots of up to 262,144 tokens share a pool of 262,144 (overcommitted 4.00 times): only 65,536 tokens "
        "are sure for each, and when the sum reaches the pool all running requests die\n"
        "  fullest at 2026-09-21 14:13:21 UTC: 98.7% of the pool\n"
        "  1 incident of a full pool (4 requests died)\n"
        "  2026-09-21 14:13:20 UTC: the pool ran out: 4 requests died; slot 0 held 159,069 tokens (60.7%), "
        "slot 2 held 77,417 tokens (29.5%), slot 1 held 23,428 tokens (8.9%), slot 3 held 2,949 tokens (1.1%); "
        "together 262,863 of 262,144, 719 too many\n"
    )


def test_a_request_beyond_its_slot_is_told_with_its_size() -> None:
    counters = Counters(incidents={"slot": 1}, requests_failed={"slot": 1})
    text = said(replace(FULL, incidents=(REFUSED,), counters=counters), since_start=True)
    assert "  1 incident of its own slot's limit (1 request died)\n" in text
    assert (
        "  70.5 s: 1 request died of slot 3's own limit; it had 5,000 tokens, 904 more than the slot's 4,096\n" in text
    )
    assert text.endswith("Times are seconds since the server's start: a bare log tells no others.\n")


def test_of_many_incidents_the_latest_are_told() -> None:
    counters = Counters(incidents={"pool": 500}, requests_failed={"pool": 2000})
    text = said(replace(FULL, incidents=(FOUR_AGENTS,) * 100, counters=counters))
    assert "500 incidents of a full pool (2,000 requests died)" in text
    assert text.count("the pool ran out") == MOST_INCIDENTS
    assert f"the latest {MOST_INCIDENTS}:" in text


def test_nothing_known_is_said_so_and_names_cannot_steer_the_terminal() -> None:
    text = said(ServerSnapshot("\x1b[2Jfar"))
    assert text == "?[2Jfar: how its pool is cut is not told\n  no request died for want of context\n"
