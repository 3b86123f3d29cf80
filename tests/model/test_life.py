"""Since when a server has been down, loading or short of slots, and what became of its unit."""

from __future__ import annotations

from kvexporter.alerting.conditions import server_alerts
from kvexporter.facts import (
    CgroupSample,
    ProcessSample,
    UnitExited,
    UnitFailed,
    UnitOutOfMemory,
    UnitRestartScheduled,
    UnitStarted,
    UnitStopped,
    UnitStopping,
)
from kvexporter.llama.exposition import UpstreamMetrics
from kvexporter.llama.log import parse_line
from kvexporter.rules.thresholds import DEFERRED_FOR, DOWN_FOR, LOADING_FOR
from kvexporter.server import Server


def holding(server: Server, at: float) -> list[str]:
    return [held.rule.name for held in server_alerts(server.snapshot(at), at)]


def crashed(server: Server, at: float) -> None:
    server.unit_event(UnitExited("exited", "127"), at)
    server.unit_event(UnitFailed("exit-code"), at)


def restarted(server: Server, at: float) -> None:
    server.unit_event(UnitRestartScheduled(1), at)
    server.unit_event(UnitStopped(), at)
    server.unit_event(UnitStarted(), at)


def test_a_crash_is_an_outage_after_a_minute_and_a_stop_on_request_never() -> None:
    server = Server("s", unit="s.service")
    server.unit_event(UnitStarted(), 0)
    server.health_polled(1)
    crashed(server, 10)
    assert holding(server, 10 + DOWN_FOR - 1) == []
    assert holding(server, 10 + DOWN_FOR) == ["LlamaServerDown"]

    server.unit_event(UnitStarted(), 200)
    server.health_polled(201)
    assert holding(server, 400) == []
    server.unit_event(UnitStopping(), 500)
    server.unit_event(UnitStopped(), 501)
    assert (server.state, holding(server, 5000)) == ("down", [])


def test_a_stop_on_request_is_known_over_a_restart_of_the_exporter() -> None:
    server = Server("s", unit="s.service")
    server.unit_event(UnitStarted(), 0)
    server.unit_event(UnitStopping(), 500)
    server.unit_event(UnitStopped(), 501)
    again = Server("s", unit="s.service")
    again.remember(server.memory())
    again.process_seen(None, 600)
    assert again.snapshot(601).life.stopped_on_request is True
    assert holding(again, 5000) == []


def test_a_server_that_answers_after_a_stop_is_missed_again_when_it_is_gone() -> None:
    """Its start may have been lost with a part of the journal, or was not systemd's."""
    server = Server("s", unit="s.service")
    server.unit_event(UnitStarted(), 0)
    server.unit_event(UnitStopping(), 500)
    server.health_polled(500)  # it ends what it does
    assert server.stopped_on_request is True
    server.unit_event(UnitStopped(), 501)
    server.health_polled(600)
    server.process_seen(None, 700)
    assert holding(server, 700 + DOWN_FOR) == ["LlamaServerDown"]


def test_a_server_that_works_or_runs_anew_after_a_stop_whose_end_was_lost_is_missed_when_it_is_gone() -> None:
    """Its log and its process tell what systemd's lost words do not."""
    logging, running = Server("s", unit="s.service"), Server("s", unit="s.service")
    for server in logging, running:
        server.unit_event(UnitStarted(), 0)
        server.unit_event(UnitStopping(), 500)
        assert server.stopped_on_request is True
    line = parse_line(b"slot launch_slot_: id  0 | task 7 | processing task, is_child = 0")
    assert line is not None
    logging.line(line, 501)  # it ends what it does
    assert logging.stopped_on_request is True
    logging.line(line, 650)
    running.process_seen(ProcessSample(77, 503.0, 0.0, 1), 504)
    for server in logging, running:
        server.process_seen(None, 700)
        assert holding(server, 700 + DOWN_FOR) == ["LlamaServerDown"]


def test_a_server_without_a_unit_that_cleans_up_before_its_end_is_missed() -> None:
    """The real one prints that line, too, when its model cannot be loaded or its port is taken."""
    server = Server("s")
    server.health_polled(1)
    line = parse_line(b"0.00.011.437 I srv    operator(): operator(): cleaning up before exit...")
    assert line is not None
    server.line(line, 100)
    assert holding(server, 100 + DOWN_FOR) == ["LlamaServerDown"]


def test_an_outage_goes_on_by_a_clock_that_was_set_back() -> None:
    server = Server("s")
    server.process_seen(None, 10_000)
    server.tick(10_001)
    server.tick(5_000)
    assert holding(server, 5_000 + DOWN_FOR) == ["LlamaServerDown"]


def test_the_third_restart_within_a_quarter_of_an_hour_is_a_crash_loop() -> None:
    server = Server("s", unit="s.service")
    for number in range(3):
        assert "LlamaServerCrashLooping" not in holding(server, number * 100.0)
        crashed(server, number * 100.0)
        restarted(server, number * 100.0 + 5)
    assert "LlamaServerCrashLooping" in holding(server, 206.0)
    assert "LlamaServerCrashLooping" not in holding(server, 206.0 + 900)


def test_restarts_after_clean_ends_are_no_crash_loop() -> None:
    """With Restart=always a server that is ended by a signal of its user is started again too."""
    server = Server("s", unit="s.service")
    for number in range(5):
        restarted(server, number * 100.0)
        server.health_polled(number * 100.0 + 1)
    assert holding(server, 401.0) == []


def test_a_kill_for_want_of_memory_is_told_by_systemd_or_by_the_control_group() -> None:
    server = Server("s", unit="s.service")
    server.unit_event(UnitOutOfMemory(), 10)
    assert "LlamaServerOutOfMemory" in holding(server, 10 + 899)
    assert "LlamaServerOutOfMemory" not in holding(server, 10 + 900)

    contained = Server("c")
    contained.process_seen(ProcessSample(1, 0.0, 0.0, 1), 20)
    contained.cgroup_seen(CgroupSample(1, oom_kills=2))
    assert holding(contained, 21) == []  # of long ago
    contained.process_seen(ProcessSample(1, 0.0, 0.0, 1), 30)
    contained.cgroup_seen(CgroupSample(1, oom_kills=3))
    assert holding(contained, 31) == ["LlamaServerOutOfMemory"]


def test_a_model_that_loads_for_long_is_told() -> None:
    server = Server("s")
    server.poll_failed("health", "loading", 100)
    server.poll_failed("health", "loading", 100 + LOADING_FOR - 1)
    assert holding(server, 100 + LOADING_FOR - 1) == []
    assert holding(server, 100 + LOADING_FOR) == ["LlamaServerLoadingTooLong"]
    server.health_polled(100 + LOADING_FOR)
    assert holding(server, 100 + LOADING_FOR) == []


def waits(server: Server, requests: float, *times: int) -> None:
    for at in times:
        server.health_polled(at)
        server.metrics_polled(UpstreamMetrics(requests_deferred=requests), at)


def test_requests_that_wait_for_long_are_told() -> None:
    server = Server("s")
    waits(server, 1, *range(0, DEFERRED_FOR, 5))
    assert holding(server, DEFERRED_FOR - 1) == []
    waits(server, 2, DEFERRED_FOR)
    assert holding(server, DEFERRED_FOR) == ["LlamaRequestsDeferred"]
    waits(server, 0, DEFERRED_FOR + 5)
    waits(server, 1, DEFERRED_FOR + 10)
    assert holding(server, DEFERRED_FOR + 10) == []


def test_between_two_busy_times_nobody_knows_whether_requests_waited() -> None:
    """An idle server is not asked."""
    server = Server("s")
    waits(server, 1, 0)
    waits(server, 1, 1000)
    assert server.snapshot(1000).life.deferred_since == 1000
    assert server.snapshot(1500).life.deferred_since is None
