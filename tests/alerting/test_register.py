"""Alerts over time: they begin once, go on through short gaps, end, and survive a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvexporter.alerting.conditions import Held
from kvexporter.alerting.register import ENDED_KEPT_SECONDS, LATER_SECONDS, MOST_ALERTS, Alert, Register
from kvexporter.rules.pool import CONTEXT_EXCEEDED, FILLING_UP, PRESSURE
from kvexporter.snapshot import ServerSnapshot
from tests.support.snapshots import FOUR_AGENTS, FULL

COMMON = {"job": "kvexporter", "instance": "here:9889"}
KEEP = FILLING_UP.keep + LATER_SECONDS


class Story:
    """A register, and the time of its next look at the servers."""

    def __init__(self, *servers: ServerSnapshot, at: float = 1000.0) -> None:
        self.register = Register()
        self.servers = servers or (FULL,)
        self.at = at

    def look(self, after: float, *held: Held) -> bool:
        """Time passes, and these hold of the first server; True if that is new."""
        self.at += after
        by_server: dict[str, tuple[Held, ...]] = {server.name: () for server in self.servers}
        by_server[self.servers[0].name] = held
        return self.register.judge(self.servers, by_server, COMMON, self.at, "host")

    def one(self) -> Alert:
        (alert,) = self.register.alerts
        return alert

    def restarted(self, after: float) -> Story:
        """Another register that takes back what this one has written."""
        again = Story(*self.servers, at=self.at + after)
        again.register.restore(self.register.dump(), again.at)
        return again


def filling(at: float) -> Held:
    return Held(FILLING_UP, at)


def test_an_alert_begins_once_and_is_no_news_while_it_goes_on() -> None:
    story = Story()
    assert story.look(0, filling(1000)) is True
    assert story.look(1, filling(1001)) is False
    assert (story.one().started, story.one().ended, story.one().state) == (1000.0, None, "firing")


def test_it_begins_when_its_event_was_and_never_in_the_future() -> None:
    story = Story()
    story.look(0, Held(PRESSURE, 990.0))
    assert story.one().started == 990.0
    later = Story()
    later.look(0, Held(PRESSURE, 1990.0))
    assert later.one().started == 1000.0


def test_it_goes_on_through_gaps_and_ends_a_while_after_the_rule_would_end_it() -> None:
    story = Story()
    story.look(0, filling(1000))
    assert story.look(KEEP - 1) is False
    assert story.look(0, filling(story.at)) is False
    assert story.look(KEEP) is False
    assert story.one().ended is None

    assert story.look(1) is True

    assert (story.one().ended, story.one().state) == (story.at, "resolved")


def test_a_new_beginning_after_an_end_is_another_alert_that_does_not_overlap() -> None:
    story = Story()
    story.look(0, filling(1000))
    story.look(KEEP + 1)
    ended, first = story.one().ended, story.one().id
    assert story.look(5, Held(FILLING_UP, 1000.0)) is True
    assert story.one().started == ended
    assert story.one().id != first


def test_a_further_incident_is_news_and_the_alert_goes_on() -> None:
    story = Story()
    story.look(0, Held(CONTEXT_EXCEEDED, 1000.0, FOUR_AGENTS, news="1000.000"))
    state, id_ = story.one().state, story.one().id
    assert story.look(30, Held(CONTEXT_EXCEEDED, 1030.0, FOUR_AGENTS, news="1030.000")) is True
    assert story.one().id == id_
    assert story.one().state != state


def test_annotations_are_those_of_the_latest_look() -> None:
    story = Story()
    story.look(0, filling(1000))
    before = story.one().annotations["description"]
    assert FULL.pool is not None
    story.servers = (replace(FULL, pool=replace(FULL.pool, fill_ratio=0.99)),)
    story.look(1, filling(1001))
    assert "99%" in story.one().annotations["description"] != before


def test_of_a_server_that_cannot_be_judged_nothing_ends() -> None:
    story = Story()
    story.look(0, filling(1000))
    story.at += 10 * KEEP
    assert story.register.judge(story.servers, {}, COMMON, story.at, "host") is False
    assert story.one().ended is None
    story.look(KEEP - 1)
    assert story.one().ended is None, "the time in which nothing was known does not count"
    story.look(2)
    assert story.one().ended is not None


def test_alerts_of_a_server_that_is_not_watched_any_more_end() -> None:
    story = Story()
    story.look(0, filling(1000))
    assert story.register.judge((), {}, COMMON, 1000 + KEEP + 1, "host") is True
    assert story.one().ended == 1000 + KEEP + 1


def test_a_clock_that_is_set_back_neither_ends_nor_prolongs_an_alert() -> None:
    story = Story()
    story.look(0, filling(1000))
    story.look(-500)
    assert story.one().ended is None
    story.look(KEEP + 1)
    assert story.one().ended is not None


# ---- restarts --------------------------------------------------------------------------------------------------------


def test_after_a_restart_the_same_alert_goes_on_and_who_was_told_is_known() -> None:
    story = Story()
    story.look(0, Held(CONTEXT_EXCEEDED, 1000.0, FOUR_AGENTS, news="1000.000"))
    story.one().told["webhook pager"] = story.one().state

    again = story.restarted(after=20)

    assert again.one() == replace(story.one(), held=again.at)
    assert again.look(0, Held(CONTEXT_EXCEEDED, 1000.0, FOUR_AGENTS, news="1000.000")) is False


def test_what_was_over_meanwhile_ends_after_the_restart() -> None:
    story = Story()
    story.look(0, filling(1000))
    again = story.restarted(after=7200)
    again.look(1)
    again.look(KEEP)
    assert again.one().ended == again.at
    assert again.one().started == 1000.0


def test_an_end_that_nobody_was_told_of_is_still_known_after_a_restart() -> None:
    story = Story()
    story.look(0, filling(1000))
    story.look(KEEP + 1)
    again = story.restarted(after=30)
    assert again.register.forget({"webhook pager"}, again.at) is False
    assert again.one().state == "resolved"


@pytest.mark.parametrize("detail", [b"", b"{}", b"[1]", b'[{"labels":{}}]', b"\xff"])
def test_what_was_stored_and_cannot_be_read_is_refused(detail: bytes) -> None:
    with pytest.raises(ValueError):
        Register().restore(detail, 1000.0)


# ---- forgetting ------------------------------------------------------------------------------------------------------


def test_an_ended_alert_is_forgotten_when_everybody_knows_it() -> None:
    story = Story()
    story.look(0, filling(1000))
    story.look(KEEP + 1)
    story.one().told["a"] = "resolved"
    assert story.register.forget({"a", "b"}, story.at) is False
    story.one().told["b"] = "resolved"
    assert story.register.forget({"a", "b"}, story.at) is True
    assert not story.register.active


def test_who_cannot_be_told_for_a_quarter_of_an_hour_is_not_waited_for() -> None:
    story = Story()
    story.look(0, filling(1000))
    story.look(KEEP + 1)
    assert story.register.forget({"a"}, story.at + ENDED_KEPT_SECONDS + 1) is True


def test_an_alert_that_is_on_is_never_forgotten() -> None:
    story = Story()
    story.look(0, filling(1000))
    assert story.register.forget(set(), story.at + 1e6) is False


def test_there_are_only_so_many() -> None:
    servers = tuple(ServerSnapshot(f"s{number}") for number in range(MOST_ALERTS + 5))
    register = Register()
    register.judge(servers, {server.name: (filling(1.0),) for server in servers}, COMMON, 1.0, "host")
    assert len(register.alerts) == MOST_ALERTS
