"""What is asked when: the guarantees to a server, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kvexporter.facts import Endpoint, PollReason
from kvexporter.polling import LAUNCH_SECONDS, Failures, Mode, PollPolicy, PollView, ServerHints, mode

POLICY = PollPolicy(interval=1.0, idle_interval=30.0, name="main")
NOW = 900.0
ALL: tuple[Endpoint, ...] = ("health", "props", "slots", "metrics", "models")
QUIET: frozenset[Endpoint] = frozenset(("health", "props"))

LOCAL = ServerHints(sleep_enabled=False)
"""A server whose command line shows that it never sleeps."""

LONG_AGO: Mapping[Endpoint, float] = dict.fromkeys(ALL, NOW - 500)
JUST_NOW: Mapping[Endpoint, float] = dict.fromkeys(ALL, NOW)


def due(hints: ServerHints, **view: object) -> set[Endpoint]:
    return set(POLICY.due(PollView(NOW, hints, **view)))  # type: ignore[arg-type]


def polls(hints: ServerHints, seconds: float, **options: float) -> dict[Endpoint, int]:
    """How often each endpoint of a server that always answers at once is asked in a time in which nothing changes."""
    now, end = NOW, NOW + seconds
    sent: dict[Endpoint, float] = {}
    counts: dict[Endpoint, int] = dict.fromkeys(ALL, 0)
    while now < end:
        view = PollView(now, hints, last_sent=sent, **options)  # type: ignore[arg-type]
        due_now = POLICY.due(view)
        for endpoint in due_now:
            counts[endpoint] += 1
            sent = {**sent, endpoint: now}
        later = POLICY.next_time(PollView(now, hints, last_sent=sent, **options))  # type: ignore[arg-type]
        assert later > now or due_now, "a decision that changes nothing must not be repeated at once"
        now = later
    return counts


# ---- which case a server is ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        # The log leads, whatever the CPU time and the sleep timer say.
        (ServerHints(busy=True), "active"),
        (ServerHints(busy=True, sleep_enabled=True, cpu_busy=False), "active"),
        (ServerHints(busy=False, sleep_enabled=False, cpu_busy=True), "idle"),
        (ServerHints(busy=False, slots_idle=False), "idle"),
        # Without a log the CPU time decides.
        (ServerHints(cpu_busy=True, sleep_enabled=False), "active"),
        (ServerHints(cpu_busy=True, sleep_enabled=False, slots_idle=True), "active"),
        (ServerHints(cpu_busy=False, sleep_enabled=False), "idle"),
        (ServerHints(cpu_busy=True, sleep_enabled=True, slots_idle=False), "active"),
        (ServerHints(cpu_busy=False, sleep_enabled=True, slots_idle=False), "idle"),
        # A remote server, of which nothing can be seen.
        (ServerHints(), "idle"),
        (ServerHints(sleep_enabled=True), "idle"),
        (ServerHints(sleep_enabled=False), "active"),
        # States go before.
        (ServerHints(busy=True, sleeping=True), "sleeping"),
        (ServerHints(busy=True, loading=True), "loading"),
        (ServerHints(busy=True, router=True, loading=True, sleeping=True), "router"),
    ],
)
def test_a_server_is_treated_as(hints: ServerHints, expected: Mode) -> None:
    assert mode(PollView(NOW, hints)) == expected


# ---- an active server ----------------------------------------------------------------------------------------------


def test_an_active_server_is_asked_for_slots_every_interval_and_for_metrics_every_fifth() -> None:
    counts = polls(ServerHints(busy=True), 60)
    assert (counts["slots"], counts["metrics"]) == (60, 12)
    assert (counts["health"], counts["props"], counts["models"]) == (2, 1, 0)


def test_the_interval_is_the_configured_one() -> None:
    policy = PollPolicy(interval=0.25, idle_interval=10)
    view = PollView(NOW, ServerHints(busy=True), last_sent=JUST_NOW)
    assert policy.next_time(view) == NOW + 0.25
    assert policy.next_time(PollView(NOW, LOCAL, last_sent=JUST_NOW, in_flight=frozenset(("slots",)))) == NOW + 10


def test_what_is_in_flight_is_not_asked_again() -> None:
    in_flight = frozenset(ALL)
    assert not POLICY.due(PollView(NOW, ServerHints(busy=True), last_sent=LONG_AGO, in_flight=in_flight))


def test_metrics_waits_for_the_answer_of_slots() -> None:
    """Both wait for the running decode on older builds: the second would only hold another HTTP thread."""
    hints = ServerHints(busy=True)
    assert due(hints, last_sent=LONG_AGO) == {"health", "props", "slots"}
    assert "metrics" not in due(hints, last_sent=LONG_AGO, in_flight=frozenset(("slots",)))
    assert "metrics" in due(hints, last_sent={**LONG_AGO, "slots": NOW})
    for reason in ("timeout", "refused", "connection", "unauthorized", "loading", "tls", "key_file"):
        failures = {"slots": Failures(reason, 1, NOW)}
        assert "metrics" not in due(hints, last_sent=LONG_AGO, failures=failures), reason


@pytest.mark.parametrize("reason", ["unsupported", "not_found", "malformed", "too_large", "http_error", "redirect"])
def test_metrics_goes_on_without_slots_that_are_switched_off_or_broken(reason: PollReason) -> None:
    failures: dict[Endpoint, Failures] = {"slots": Failures(reason, 9, NOW)}
    assert "metrics" in due(ServerHints(busy=True), last_sent=LONG_AGO, failures=failures)


def test_what_the_server_is_known_not_to_have_is_never_asked() -> None:
    assert due(ServerHints(busy=True, slots_supported=False)) == {"health", "props", "metrics"}
    assert due(ServerHints(busy=True, metrics_supported=False)) == {"health", "props", "slots"}
    assert polls(ServerHints(busy=True, slots_supported=False, metrics_supported=False), 60)["slots"] == 0


# ---- an idle server ------------------------------------------------------------------------------------------------


def test_an_idle_server_with_a_log_gets_one_quiet_request_every_half_minute_and_a_second_now_and_then() -> None:
    counts = polls(ServerHints(busy=False, sleep_enabled=False), 3600)
    assert counts == {"health": 120, "props": 12, "slots": 0, "metrics": 0, "models": 0}


@pytest.mark.parametrize("hints", [ServerHints(), ServerHints(cpu_busy=False), ServerHints(sleeping=True)])
def test_without_a_log_the_properties_tell_whether_the_server_sleeps_as_often_as_it_gives_a_sign_of_life(
    hints: ServerHints,
) -> None:
    counts = polls(hints, 3600)
    assert counts["health"] == 120
    assert counts["props"] >= 120


def test_signs_of_life_come_at_the_multiples_of_their_period_whenever_the_first_was() -> None:
    """With all else that the daemon does now and then, and those of all other servers."""
    sent: Mapping[Endpoint, float] = {"health": NOW + 7.5, "props": NOW + 7.5}
    hints = ServerHints(busy=False, sleep_enabled=False)
    assert POLICY.next_time(PollView(NOW + 8, hints, last_sent=sent)) == NOW + 30
    late: Mapping[Endpoint, float] = {"health": NOW + 30.4, "props": NOW + 30.4}
    assert POLICY.next_time(PollView(NOW + 31, hints, last_sent=late)) == NOW + 60
    early: Mapping[Endpoint, float] = {"health": NOW + 29.9, "props": NOW + 29.9}
    assert POLICY.next_time(PollView(NOW + 29.9, hints, last_sent=early)) == NOW + 59.9  # decides; asks at NOW + 60
    assert POLICY.due(PollView(NOW + 59.9, hints, last_sent=early)) == set()
    assert POLICY.due(PollView(NOW + 60, hints, last_sent=early)) == {"health"}


# ---- a task that begins --------------------------------------------------------------------------------------------


def test_the_first_look_at_a_task_comes_when_its_first_token_may_be_out() -> None:
    asked: Mapping[Endpoint, float] = {**JUST_NOW, "slots": NOW - 500, "metrics": NOW - 500}
    view = PollView(NOW, ServerHints(busy=True), last_sent=asked, busy_since=NOW, launched_at=NOW)
    assert POLICY.due(view) == set()
    assert POLICY.next_time(view) == NOW + LAUNCH_SECONDS
    assert POLICY.due(replace(view, now=NOW + LAUNCH_SECONDS)) == {"slots"}
    # The first look at the server of all.
    assert POLICY.next_time(replace(view, last_sent={"health": NOW, "props": NOW})) == NOW + LAUNCH_SECONDS
    # The log told of it late.
    assert POLICY.due(replace(view, launched_at=NOW - 0.5)) == {"slots"}


def test_a_task_that_begins_while_others_run_delays_only_the_look_that_would_meet_its_first_token() -> None:
    asked: Mapping[Endpoint, float] = {**JUST_NOW, "slots": NOW - 0.9}
    view = PollView(NOW, ServerHints(busy=True), last_sent=asked, busy_since=NOW - 30, launched_at=NOW)
    assert POLICY.next_time(view) == NOW + LAUNCH_SECONDS
    assert POLICY.next_time(replace(view, launched_at=NOW - 0.5)) == pytest.approx(NOW + 0.1)


@pytest.mark.parametrize("asked", [{**JUST_NOW, "slots": NOW - 1, "metrics": NOW - 1}, {"health": NOW, "props": NOW}])
def test_tasks_that_begin_and_end_all_the_time_delay_no_look_for_longer(asked: Mapping[Endpoint, float]) -> None:
    for step in range(1, 100):
        now = NOW + step / 100
        for hints in (ServerHints(busy=True), ServerHints(busy=False, sleep_enabled=False)):
            view = PollView(now, hints, last_sent=asked, busy_since=NOW, launched_at=now, look_since=now)
            assert ("slots" in POLICY.due(view)) == (step >= 25)


def test_the_look_after_the_last_task_leaves_the_next_one_time_to_begin() -> None:
    hints = ServerHints(busy=False, sleep_enabled=False)
    asked: Mapping[Endpoint, float] = {**JUST_NOW, "slots": NOW - 3, "metrics": NOW - 3}
    view = PollView(NOW, hints, last_sent=asked, look_since=NOW, busy_since=NOW - 10, launched_at=NOW - 10)
    # It was due two seconds ago and not asked, which only happens where it was not wanted.
    assert POLICY.due(view) == {"slots"}
    assert POLICY.next_time(replace(view, last_sent={**asked, "slots": NOW - 0.9})) == NOW + LAUNCH_SECONDS


def test_a_server_without_a_log_is_looked_at_when_that_is_due() -> None:
    hints = ServerHints(cpu_busy=True, sleep_enabled=False)
    view = PollView(NOW, hints, last_sent={**JUST_NOW, "slots": NOW - 1}, launched_at=NOW, busy_since=NOW)
    assert POLICY.due(view) == {"slots"}


def test_one_look_at_the_slots_after_the_last_task_of_a_server_that_never_sleeps() -> None:
    hints = ServerHints(busy=False, sleep_enabled=False)
    asked = {**JUST_NOW, "slots": NOW - 3, "metrics": NOW - 3}
    assert due(hints, last_sent=asked, look_since=NOW - 1) == {"slots"}
    assert due(hints, last_sent={**asked, "slots": NOW}, look_since=NOW - 1) == {"metrics"}
    assert due(hints, last_sent=JUST_NOW, look_since=NOW - 1) == set()
    assert polls(hints, 3600, look_since=NOW - 1)["slots"] == 1


def test_looks_after_many_short_tasks_are_an_interval_apart() -> None:
    hints = ServerHints(busy=False, sleep_enabled=False)
    view = PollView(NOW, hints, last_sent={**JUST_NOW, "slots": NOW - 0.3, "metrics": NOW - 0.2}, look_since=NOW - 0.1)
    assert POLICY.due(view) == set()
    assert POLICY.next_time(view) == pytest.approx(NOW + 0.7)


def test_a_look_that_failed_is_taken_again_later() -> None:
    hints = ServerHints(busy=False, sleep_enabled=False)
    failures: dict[Endpoint, Failures] = {"slots": Failures("connection", 1, NOW - 2)}
    assert due(hints, last_sent=JUST_NOW, look_since=NOW - 1, failures=failures) == {"slots"}


@pytest.mark.parametrize("sleep_enabled", [True, None])
def test_no_look_at_a_server_that_may_sleep(sleep_enabled: bool | None) -> None:
    hints = ServerHints(busy=False, sleep_enabled=sleep_enabled)
    assert due(hints, last_sent=LONG_AGO, look_since=NOW - 1) == QUIET


# ---- a server that may sleep ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hints",
    [
        ServerHints(busy=False, sleep_enabled=True),
        ServerHints(busy=False, sleep_enabled=None),
        ServerHints(busy=False, sleep_enabled=True, cpu_busy=True, slots_idle=False),
        ServerHints(cpu_busy=False, sleep_enabled=True),
        ServerHints(cpu_busy=False, sleep_enabled=None),
        ServerHints(sleep_enabled=True),
        ServerHints(sleep_enabled=None),
        ServerHints(sleeping=True, sleep_enabled=True),
        ServerHints(sleeping=True, busy=True, cpu_busy=True, slots_idle=False),
        ServerHints(loading=True, busy=True),
    ],
)
def test_nothing_that_keeps_it_awake_is_asked_for_hours(hints: ServerHints) -> None:
    counts = polls(hints, 6 * 3600, look_since=NOW - 1, cpu_busy_since=NOW - 1)
    assert counts["slots"] == counts["metrics"] == counts["models"] == 0
    assert counts["health"] > 0


def test_cpu_time_alone_is_worth_one_question_and_not_two() -> None:
    """Whatever else uses CPU time - spinning threads, kvexporter's own polls - must not keep the server awake."""
    hints = ServerHints(cpu_busy=True, sleep_enabled=True, slots_idle=True)
    assert polls(hints, 3600, cpu_busy_since=NOW)["slots"] == 1
    assert polls(ServerHints(cpu_busy=True, sleep_enabled=True), 3600, cpu_busy_since=NOW)["slots"] == 1
    unsupported = ServerHints(cpu_busy=True, sleep_enabled=True, slots_supported=False)
    assert polls(unsupported, 3600, cpu_busy_since=NOW)["metrics"] == 1


def test_the_next_rise_of_cpu_time_is_worth_the_next_question() -> None:
    hints = ServerHints(cpu_busy=True, sleep_enabled=None, slots_idle=True)
    asked: dict[Endpoint, float] = {**JUST_NOW, "slots": NOW - 20, "metrics": NOW - 20}
    assert "slots" not in due(hints, last_sent=asked, cpu_busy_since=NOW - 30)
    assert "slots" in due(hints, last_sent=asked, cpu_busy_since=NOW - 1)


def test_work_that_slots_confirm_is_followed_while_cpu_time_is_used() -> None:
    counts = polls(ServerHints(cpu_busy=True, sleep_enabled=True, slots_idle=False), 60, cpu_busy_since=NOW)
    assert counts["slots"] == 60


# ---- other states --------------------------------------------------------------------------------------------------


def test_a_loading_server_is_asked_for_health_only() -> None:
    counts = polls(ServerHints(loading=True), 60)
    assert counts == {"health": 12, "props": 0, "slots": 0, "metrics": 0, "models": 0}


def test_a_router_is_asked_for_health_and_models_only() -> None:
    counts = polls(ServerHints(router=True, busy=True, cpu_busy=True), 60)
    assert counts == {"health": 2, "props": 0, "slots": 0, "metrics": 0, "models": 2}


def test_missing_properties_are_asked_for_sooner() -> None:
    assert polls(ServerHints(busy=False, needs_props=True), 60)["props"] == 12
    assert polls(ServerHints(busy=False), 60)["props"] == 1


def test_a_remote_server_that_never_sleeps_is_polled_all_the_time() -> None:
    assert polls(ServerHints(sleep_enabled=False), 60)["slots"] == 60


# ---- failures ------------------------------------------------------------------------------------------------------


def pause(endpoint: Endpoint, reason: PollReason, count: int) -> float:
    """The pause after so many failures in a row, by the moment from which the endpoint is due."""
    hints = ServerHints(
        busy=True, router=endpoint == "models", slots_supported=False if endpoint == "metrics" else None
    )
    low, high = 0.0, 10_000.0
    while high - low > 0.001:
        middle = (low + high) / 2
        failures: dict[Endpoint, Failures] = {endpoint: Failures(reason, count, NOW)}
        view = PollView(NOW + middle, hints, last_sent=LONG_AGO, failures=failures)
        if endpoint in POLICY.due(view):
            high = middle
        else:
            low = middle
    return high


@pytest.mark.parametrize("reason", ["refused", "connection", "timeout"])
def test_a_server_that_cannot_be_reached_is_left_alone_for_up_to_half_a_minute(reason: PollReason) -> None:
    series = [pause("health", reason, count) for count in range(1, 12)]
    assert 0.99 <= series[0] <= 1.01
    assert all(22 <= late <= 30.01 for late in series[6:])
    assert all(series[n] < series[n + 1] for n in range(4))


@pytest.mark.parametrize("endpoint", ["slots", "metrics"])
def test_waiting_for_a_long_decode_pauses_5_seconds_at_most(endpoint: Endpoint) -> None:
    assert all(pause(endpoint, "timeout", count) <= 5.01 for count in (1, 2, 5, 10, 100))


@pytest.mark.parametrize(
    ("reason", "seconds"), [("unauthorized", 60), ("unsupported", 600), ("not_found", 600), ("loading", 5)]
)
@pytest.mark.parametrize("count", [1, 2, 50])
def test_a_clear_refusal_pauses_for(reason: PollReason, seconds: float, count: int) -> None:
    assert pause("slots", reason, count) == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize("reason", ["tls", "key_file", "malformed", "too_large", "redirect", "http_error"])
def test_what_an_operator_must_mend_is_tried_once_a_minute_in_the_end(reason: PollReason) -> None:
    assert pause("slots", reason, 1) <= 1.01
    assert 45 <= pause("slots", reason, 20) <= 60.01
    assert 45 <= pause("slots", reason, 10_000) <= 60.01


def test_an_answer_ends_the_pauses() -> None:
    assert "slots" in due(ServerHints(busy=True), last_sent={**JUST_NOW, "slots": NOW - 1}, failures={})


def test_retries_of_different_servers_are_spread_and_repeatable() -> None:
    view = PollView(
        NOW, LOCAL, last_sent=JUST_NOW, failures={endpoint: Failures("refused", 8, NOW) for endpoint in ALL}
    )
    times = {name: PollPolicy(name=name).next_time(view) for name in ("a", "b", "c", "d", "e", "f")}
    assert len(set(times.values())) > 1
    assert times == {name: PollPolicy(name=name).next_time(view) for name in times}


@pytest.mark.parametrize(
    ("endpoint", "failure", "expected"),
    [
        ("slots", None, 1),
        ("slots", Failures("timeout", 1, NOW), 4),
        ("slots", Failures("timeout", 2, NOW), 16),
        ("slots", Failures("timeout", 3, NOW), 60),
        ("metrics", Failures("timeout", 1000, NOW), 60),
        ("slots", Failures("refused", 3, NOW), 1),
        ("health", Failures("timeout", 3, NOW), 1),
        ("props", Failures("timeout", 3, NOW), 1),
    ],
)
def test_deadlines_grow_only_where_an_answer_may_wait_for_a_decode(
    endpoint: Endpoint, failure: Failures | None, expected: float
) -> None:
    failures = {endpoint: failure} if failure else {}
    assert POLICY.patience(PollView(NOW, ServerHints(busy=True), failures=failures), endpoint) == expected


def test_an_hour_without_an_answer_costs_an_old_server_few_threads() -> None:
    """Each request that is given up may hold one of its HTTP threads until the decode ends."""
    now, given_up = NOW, 0
    failures: dict[Endpoint, Failures] = {}
    while now < NOW + 3600:
        view = PollView(now, ServerHints(busy=True), last_sent=LONG_AGO, failures=failures)
        assert "slots" in POLICY.due(view)
        assert given_up == 0 or "metrics" not in POLICY.due(view)
        now += 5.0 * POLICY.patience(view, "slots")
        given_up += 1
        failures = {"slots": Failures("timeout", given_up, now)}
        now += 5.0
    assert given_up <= 16


@pytest.mark.parametrize(("interval", "idle"), [(0, 30), (-1, 30), (5, 1)])
def test_impossible_intervals_are_refused(interval: float, idle: float) -> None:
    with pytest.raises(ValueError, match="intervals"):
        PollPolicy(interval, idle)
