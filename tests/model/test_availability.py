"""Up or not: what answers, and whose log it is."""

from __future__ import annotations

import pytest

from kvexporter.facts import PollReason, UnitRestartScheduled, UnitStarted
from kvexporter.llama.exposition import UpstreamMetrics
from kvexporter.server import Server
from tests.support.model import LogStory

START = """
0.00.000.953 I srv  llama_server: initializing ...
0.00.009.500 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 2048, kv_unified = 'true'
0.00.011.264 I srv  llama_server: model loaded
"""


@pytest.mark.parametrize("reason", ["not_found", "http_error", "redirect", "malformed", "too_large", "unsupported"])
def test_what_answers_health_otherwise_is_no_llama_server(reason: PollReason) -> None:
    server = Server("s")
    server.poll_failed("health", reason, 1)
    server.poll_failed("slots", "not_found", 2)
    server.metrics_polled(UpstreamMetrics(), 3)  # any exporter has those
    snapshot = server.snapshot(3)
    assert (snapshot.up, snapshot.state) == (False, None)


def test_another_program_in_the_servers_place_is_not_taken_for_it() -> None:
    server = Server("s")
    server.health_polled(1)
    server.poll_failed("health", "not_found", 2)
    assert (server.snapshot(2).up, server.state) == (False, None)


def test_a_server_that_demands_a_key_is_up() -> None:
    server = Server("s")
    server.poll_failed("health", "unauthorized", 1)
    assert (server.snapshot(1).up, server.state) == (True, "ready")


def test_a_wrong_address_does_not_contradict_the_log() -> None:
    story = LogStory().lines(START)
    story.server.poll_failed("health", "not_found", story.at + 1)
    assert (story.server.snapshot(story.at + 1).up, story.server.state) == (False, "ready")


def test_systemds_words_about_the_unit_are_not_the_servers_log() -> None:
    """Its output may go to a file."""
    server = Server("s", unit="s.service")
    server.unit_event(UnitStarted(), 1)
    server.unit_event(UnitRestartScheduled(1), 2)
    snapshot = server.snapshot(3)
    assert (snapshot.has_log, snapshot.request_tokens, snapshot.counters.unit_restarts) == (False, None, 1)

    again = Server("s", unit="s.service")
    again.remember(server.memory())
    assert (again.snapshot(4).has_log, again.snapshot(4).counters.unit_restarts) == (False, 1)
