"""One receiver's loop: what is due, what is tried again, and what is remembered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from kvexporter.alerting import alertmanager, webhook
from kvexporter.alerting.conditions import Held
from kvexporter.alerting.receiver import BACK_OFF_SECONDS, MOST_AT_ONCE, Receiver
from kvexporter.alerting.register import Register
from kvexporter.rules.pool import CONTEXT_EXCEEDED, FILLING_UP
from kvexporter.snapshot import ServerSnapshot
from tests.support.snapshots import FOUR_AGENTS

KEY = "alertmanager am"


@dataclass
class Desk:
    """Takes posts, or gives reasons why not, in turn."""

    reasons: list[str | None] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def post(self, body: bytes) -> str | None:
        self.bodies.append(body)
        return self.reasons.pop(0) if self.reasons else None

    def last(self) -> list[dict[str, object]]:
        decoded = msgspec.json.decode(self.bodies[-1])
        alerts: list[dict[str, object]] = decoded if isinstance(decoded, list) else decoded["alerts"]
        return alerts


class Story:
    """A register, one receiver, and a clock that stands still."""

    def __init__(self, form: object = alertmanager, *reasons: str | None) -> None:
        self.now = 1000.0
        self.register = Register()
        self.desk = Desk(list(reasons))
        self.kept = 0
        self.receiver = Receiver(
            KEY, self.desk, form.is_due, form.body, self.register, self._keep, lambda: self.now  # type: ignore[attr-defined]
        )  # fmt: skip

    def _keep(self) -> None:
        self.kept += 1

    def judge(self, *held: Held, servers: int = 1) -> None:
        all_servers = tuple(ServerSnapshot(f"s{number}") for number in range(servers))
        holding = {server.name: held for server in all_servers}
        self.register.judge(all_servers, holding, {"job": "j", "instance": "i"}, self.now, "host")

    def round(self, after: float = 0.0) -> float:
        self.now += after
        return asyncio.run(self.receiver.round())


def page(news: str = "1") -> Held:
    return Held(CONTEXT_EXCEEDED, 1000.0, FOUR_AGENTS, news)


def test_nothing_is_posted_while_nothing_is_on() -> None:
    story = Story()
    story.round()
    assert story.desk.bodies == []


def test_alertmanager_is_told_again_every_ten_seconds_with_an_end_in_the_future() -> None:
    story = Story()
    story.judge(page())
    for after, posts in ((0, 1), (5, 1), (5, 2), (10, 3)):
        story.now += after
        story.judge(page())
        story.round()
        assert len(story.desk.bodies) == posts
    (alert,) = story.desk.last()
    assert alert["startsAt"] == "1970-01-01T00:16:40.000Z"
    assert alert["endsAt"] == alertmanager.moment(story.now + alertmanager.VALID_SECONDS)
    assert alertmanager.VALID_SECONDS >= 10 * alertmanager.AGAIN_SECONDS


def test_an_alert_whose_condition_is_over_is_told_every_two_seconds_since_prometheus_ends_its_own_then() -> None:
    story = Story()
    story.judge(page())  # its rule goes on for no time after its condition
    story.round()
    for after, posts in ((1, 1), (1, 2), (1, 2), (1, 3), (2, 4)):
        story.now += after
        story.judge()
        story.round()
        assert len(story.desk.bodies) == posts


def test_alertmanager_is_told_of_the_end_once_and_the_alert_is_forgotten() -> None:
    story = Story()
    story.judge(page())
    story.round()
    story.now += 10_000
    story.judge()
    story.round()
    (alert,) = story.desk.last()
    assert alert["endsAt"] == alertmanager.moment(story.now)
    story.round(60)
    assert len(story.desk.bodies) == 2
    assert story.register.forget({KEY}, story.now) is True


def test_a_webhook_is_told_of_each_beginning_end_and_further_incident_once() -> None:
    story = Story(webhook)
    story.judge(page("1"))
    for _ in range(5):
        story.round(30)
    assert len(story.desk.bodies) == 1
    story.judge(page("2"))
    story.round(60)
    story.round(60)
    assert len(story.desk.bodies) == 2
    story.now += 10_000
    story.judge()
    story.round()
    story.round()
    assert [alert["status"] for alert in story.desk.last()] == ["resolved"]
    assert len(story.desk.bodies) == 3


def test_a_webhook_is_told_of_overflows_in_a_row_once_a_minute() -> None:
    story = Story(webhook)
    for number in range(120):
        story.judge(page(str(number)))
        story.round(1)
    assert len(story.desk.bodies) <= 3


def test_what_failed_is_tried_again_after_longer_and_longer_pauses_and_then_everything_is_told() -> None:
    failures = len(BACK_OFF_SECONDS) + 2
    story = Story(alertmanager, *["HTTP status 503"] * failures)
    story.judge(page())
    pauses = [story.round() for _ in range(failures)]
    assert pauses == [*BACK_OFF_SECONDS, BACK_OFF_SECONDS[-1], BACK_OFF_SECONDS[-1]]
    assert (story.receiver.tally.failures, story.receiver.tally.problem) == (failures, "HTTP status 503")
    assert story.kept == 0

    story.round()

    assert (story.receiver.tally.sent, story.receiver.tally.problem) == (1, None)
    assert story.kept == 1, "that it was told is kept"
    assert story.register.alerts[0].told == {KEY: "firing 1"}


def test_a_page_is_not_kept_waiting_by_alerts_that_only_go_on() -> None:
    story = Story()
    story.judge(Held(FILLING_UP, 1000.0), servers=MOST_AT_ONCE)
    story.round()
    story.now += 60
    story.judge(Held(FILLING_UP, 1000.0), page(), servers=MOST_AT_ONCE)
    story.round()
    names = {alert["labels"]["alertname"] for alert in story.desk.last()}  # type: ignore[index]
    assert names == {"LlamaContextExceeded"}
    assert len(story.desk.last()) == MOST_AT_ONCE


def test_many_alerts_go_in_several_posts_without_a_pause() -> None:
    story = Story()
    story.judge(page(), servers=2 * MOST_AT_ONCE + 1)
    assert [story.round() for _ in range(2)] == [0.0, 0.0]
    assert story.round() > 0
    assert [len(msgspec.json.decode(body)) for body in story.desk.bodies] == [MOST_AT_ONCE, MOST_AT_ONCE, 1]


def test_an_alert_that_ends_while_it_is_posted_is_told_of_afterwards() -> None:
    story = Story()
    story.judge(page())

    class EndsMeanwhile(Desk):
        async def post(self, body: bytes) -> str | None:
            story.register.alerts[0].ended = story.now
            return await super().post(body)

    story.receiver.poster = EndsMeanwhile()
    story.round()
    assert story.register.alerts[0].told == {KEY: "firing 1"}
    story.receiver.poster = story.desk
    story.round()
    assert story.register.alerts[0].told == {KEY: "resolved"}
