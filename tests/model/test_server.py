"""One server's state, counters and staleness, as facts come in."""

from __future__ import annotations

from kvexporter.facts import (
    LinesSuppressed,
    ProcessSample,
    UnitExited,
    UnitOutOfMemory,
    UnitRestartScheduled,
    UnitStarted,
)
from kvexporter.llama.exposition import UpstreamMetrics
from kvexporter.llama.props import Props
from kvexporter.llama.slots import SlotSample
from kvexporter.pool_geometry import Geometry
from kvexporter.server import Server
from tests.support.model import LogStory

START = """
0.00.000.953 I srv  llama_server: initializing ...
0.00.004.013 I srv    load_model: loading model 'tiny.gguf'
0.00.009.500 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 2048, kv_unified = 'true'
0.00.011.264 I srv  llama_server: model loaded
0.00.011.307 I srv  llama_server: listening on http://127.0.0.1:18631
"""


def process(pid: int = 100, start: float = 1000.0) -> ProcessSample:
    return ProcessSample(pid=pid, start_time=start, cpu_seconds=1.0, resident_bytes=1000)


def busy(held: int, task: int = 5) -> list[SlotSample]:
    return [SlotSample(0, True, task, 2048, held, 10, None), SlotSample(1, False, None, 2048, None, None, None)]


def test_the_log_tells_loading_ready_sleeping_waking_and_the_end() -> None:
    story = LogStory()
    seen = []
    for line in [
        *START.split("\n")[1:-1],
        "0.04.643.147 I srv  handle_sleep: server is entering sleeping state",
        "0.09.896.607 I que    start_loop: exiting sleeping state",
        "0.09.896.640 I srv    load_model: loading model 'tiny.gguf'",
        "0.09.901.291 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 2048, kv_unified = 'true'",
        "0.09.906.760 I srv    operator(): operator(): cleaning up before exit...",
    ]:
        seen.append(story.line(line).server.state)
    assert seen == [
        *["loading"] * 3, "ready", "ready", "sleeping", "loading", "loading", "ready", "down",
    ]  # fmt: skip


def test_a_healthy_answer_does_not_hide_that_the_server_sleeps() -> None:
    story = LogStory().lines(START).line("0.04.643.147 I srv  handle_sleep: server is entering sleeping state")
    story.server.health_polled(story.at + 1)
    assert str(story.server.state) == "sleeping"
    story.server.props_polled(Props(2, 2048, "m", None, False, True, True), story.at + 2)
    assert story.server.state == "ready"


def test_the_builds_own_word_for_sleep_is_enough_without_a_log() -> None:
    server = Server("s")
    server.props_polled(Props(2, 2048, "m", "b1", True, True, True), 10)
    snapshot = server.snapshot(11)
    assert (snapshot.state, snapshot.up) == ("sleeping", True)
    assert snapshot.pool is not None
    assert snapshot.pool.processing_tokens == 0


def test_loading_answers_are_a_state_and_no_outage() -> None:
    server = Server("s")
    server.poll_failed("health", "loading", 1)
    assert (server.state, server.snapshot(1).up) == ("loading", True)


def test_a_refused_connection_means_down_only_if_the_process_is_not_seen() -> None:
    gone = Server("s")
    gone.poll_failed("health", "refused", 1)
    assert (gone.state, gone.snapshot(1).up) == ("down", False)

    alive = Server("s")
    alive.process_seen(process(), 1)
    alive.poll_failed("health", "refused", 2)
    assert (alive.state, alive.snapshot(2).up) == ("loading", False)


def test_silence_of_a_living_process_is_not_down() -> None:
    story = LogStory().lines(START)
    story.server.process_seen(process(), story.at)
    for second in range(10):
        story.server.poll_failed("slots", "timeout", story.at + second)
    assert story.server.state == "ready"


def test_a_server_elsewhere_that_answers_nothing_three_times_is_down() -> None:
    server = Server("s")
    server.health_polled(0)
    for second in range(3):
        server.poll_failed("health", "timeout", second)
    assert server.state == "down"


def test_the_end_of_the_process_takes_its_values_away_and_keeps_counts_and_shape() -> None:
    story = LogStory().lines(START)
    story.server.process_seen(process(), story.at)
    story.server.slots_polled(busy(700), story.at + 1)
    story.server.metrics_polled(UpstreamMetrics(requests_processing=1, requests_deferred=2), story.at + 1)
    before = story.server.snapshot(story.at + 1)
    assert before.pool is not None
    assert before.pool.fill_ratio == 700 / 2048
    assert (before.requests_processing, before.requests_deferred) == (1, 2)

    story.server.process_seen(None, story.at + 2)
    after = story.server.snapshot(story.at + 2)

    assert (after.state, after.up, after.pool, after.slots, after.process) == ("down", False, None, (), None)
    assert (after.requests_processing, after.requests_deferred, after.upstream.decode_calls) == (None, None, None)
    assert after.geometry == Geometry(2, 2048, 2048, True, "journal")


def test_a_new_process_under_the_same_name_starts_empty() -> None:
    story = LogStory().lines(START)
    story.server.process_seen(process(100), story.at)
    story.server.slots_polled(busy(700), story.at + 1)
    story.server.process_seen(process(200, 1002.0), story.at + 2)
    assert story.server.snapshot(story.at + 2).pool is None
    story.at += 3
    story.lines(START)
    pool = story.server.snapshot(story.at).pool
    assert pool is not None
    assert (pool.processing_tokens, pool.idle_tokens) == (0, 0)


def test_polled_values_are_left_out_after_three_missed_polls() -> None:
    server = Server("s", poll_interval=1.0)
    server.slots_polled(busy(700), 10)
    for second in (11, 12, 13, 14):
        server.poll_failed("slots", "http_error", second)
    assert server.snapshot(13).pool is not None
    late = server.snapshot(14.5)
    assert late.pool is None
    assert late.slots == ()
    assert late.requests_processing is None
    assert late.last_poll["slots"] == 10


def test_a_value_inside_a_long_decode_stays() -> None:
    """Older builds answer only between batches."""
    story = LogStory().lines(START)
    story.server.slots_polled(busy(700), story.at)
    story.server.poll_failed("slots", "timeout", story.at + 5)
    pool = story.server.snapshot(story.at + 60).pool
    assert pool is not None
    assert pool.processing_tokens == 700


def test_an_idle_servers_values_do_not_grow_old() -> None:
    story = LogStory().lines(START)
    story.line("0.00.382.861 I slot      release: id  1 | task 2 | stop processing: n_tokens = 219, truncated = 0")
    snapshot = story.server.snapshot(story.at + 3600)
    assert snapshot.pool is not None
    assert (snapshot.pool.processing_tokens, snapshot.pool.idle_tokens) == (0, 219)
    assert snapshot.requests_processing == 0


def test_time_is_counted_at_the_fill_that_was_in_force() -> None:
    story = LogStory(at=99.95).lines(START)
    story.server.slots_polled(busy(1024), 101)
    story.server.slots_polled(busy(2048), 111)
    story.server.tick(116)
    seconds = story.server.snapshot(116).fill_seconds
    assert seconds is not None
    buckets = dict(seconds.buckets)
    idle = buckets[0.1]
    assert 0.9 < idle < 1.1
    assert (buckets[0.4] - idle, buckets[0.5] - idle, buckets[0.98] - idle, buckets[1.0] - idle) == (0, 10, 10, 15)
    assert seconds.sum == 10 * 0.5 + 5 * 1.0


def test_a_peak_between_two_scrapes_shows_for_a_minute() -> None:
    story = LogStory().lines(START)
    story.server.slots_polled(busy(2000), story.at)
    for second in range(1, 62):
        story.server.slots_polled(busy(100), story.at + second)
        pool = story.server.snapshot(story.at + second).pool
        assert pool is not None
        assert pool.fill_peak_ratio == (2000 / 2048 if second <= 61 else 100 / 2048)
    story.server.slots_polled(busy(100), story.at + 63)
    pool = story.server.snapshot(story.at + 63).pool
    assert pool is not None
    assert pool.fill_peak_ratio == 100 / 2048


def test_systemds_words_about_the_unit_are_counted() -> None:
    server = Server("s", unit="s.service")
    for event in (
        UnitStarted(),
        UnitExited("exited", "127"),
        UnitRestartScheduled(1),
        UnitExited("killed", "KILL"),
        UnitOutOfMemory(),
        UnitRestartScheduled(2),
        LinesSuppressed(4321),
    ):
        server.unit_event(event, 10)
    counters = server.snapshot(11).counters
    assert counters.unit_exits == {"127": 1, "KILL": 1}
    assert (counters.unit_restarts, counters.oom_kills, counters.suppressed_lines) == (2, 1, 4321)
    assert server.state == "down"


def test_without_a_log_its_counters_do_not_exist() -> None:
    server = Server("s")
    server.health_polled(1)
    snapshot = server.snapshot(2)
    assert not snapshot.has_log
    assert snapshot.counters.unit_restarts is None
    assert snapshot.request_tokens is None


def test_a_client_who_gave_up_is_counted_and_a_failed_request_is_not() -> None:
    story = LogStory().lines(START)
    story.line("0.01.228.989 E srv    send_error: task id = 10, error: Context size has been exceeded.")
    story.line("0.01.229.075 W srv          stop: cancel task, id_task = 10").wait(5)
    story.line("0.02.859.048 W srv          stop: cancel task, id_task = 6")
    story.line("0.02.860.048 I slot      release: id  1 | task 6 | stop processing: n_tokens = 399, truncated = 0")
    assert story.server.snapshot(story.at).counters.requests_cancelled == 1


def test_a_low_verbosity_log_does_not_lead_the_polls() -> None:
    story = LogStory().line(
        "0.00.002.338 I cmn  common_param: common_params_print_info: verbosity = 2 (adjust with `-lv N`)"
    )
    assert not story.server.log_tells_tasks
    assert LogStory().lines(START).server.log_tells_tasks


def test_a_newer_builds_new_task_drops_the_idle_slots_cache() -> None:
    story = LogStory().lines(START)
    story.line("0.00.382.861 I slot      release: id  1 | task 2 | stop processing: n_tokens = 219, truncated = 0")
    story.line("0.00.472.095 I slot launch_slot_: id  0 | task 6 | processing task, is_child = 0")
    pool = story.server.snapshot(story.at).pool
    assert pool is not None
    assert pool.idle_tokens == 0


def test_failed_polls_are_counted_by_endpoint_and_reason() -> None:
    server = Server("s")
    server.poll_failed("slots", "unsupported", 1)
    server.poll_failed("metrics", "unauthorized", 2)
    server.poll_failed("metrics", "unauthorized", 3)
    snapshot = server.snapshot(4)
    assert snapshot.poll_failures == {("slots", "unsupported"): 1, ("metrics", "unauthorized"): 2}
    assert snapshot.up is True
    assert snapshot.state == "ready"


def test_unknown_fill_is_not_shown_as_empty() -> None:
    """Verbosity 2 shows no tasks, and /slots answers 401: only upstream's own gauge tells that requests run."""
    story = LogStory().lines(
        "0.00.002.338 I cmn  common_param: common_params_print_info: verbosity = 2 (adjust with `-lv N`)"
    )
    story.server.props_polled(Props(4, 4096, "m", None, None, True, True), story.at)
    story.server.metrics_polled(UpstreamMetrics(requests_processing=3), story.at)
    story.server.poll_failed("slots", "unauthorized", story.at)
    snapshot = story.server.snapshot(story.at)
    assert (snapshot.pool, snapshot.slots, snapshot.requests_processing) == (None, (), 3)


def test_a_fresh_idle_server_holds_nothing_in_all_its_slots() -> None:
    snapshot = LogStory().lines(START).server.snapshot(2000)
    assert [(slot.id, slot.tokens, slot.processing) for slot in snapshot.slots] == [(0, 0, False), (1, 0, False)]
    assert snapshot.requests_processing == 0


def test_a_pool_that_ran_out_for_a_moment_shows_as_a_full_peak() -> None:
    story = LogStory().lines(START).line("0.00.472.095 I slot launch_slot_: id  0 | task 6 | processing task")
    story.line("decode: failed to find a memory slot for batch of size 2")
    story.line("0.01.228.950 E srv        decode: Context size has been exceeded. off = 0, n_batch = 1, ret = 1")
    story.line("0.01.231.056 I slot      release: id  0 | task 6 | stop processing: n_tokens = 2050, truncated = 0")
    story.line("0.01.236.251 E srv  update_slots: decode() failed: Context size has been exceeded.")
    pool = story.server.snapshot(story.at + 1).pool
    assert pool is not None
    assert pool.fill_peak_ratio == 1.0
    assert pool.fill_ratio == 0


def test_time_is_not_counted_twice_while_an_old_log_is_read() -> None:
    story = LogStory(at=1000.0).lines(START)
    story.server.tick(73_000.0, quiet=72_000.0)
    story.server.slots_polled(busy(2000), 73_000.5)
    story.line("0.00.472.095 I slot launch_slot_: id  1 | task 6 | processing task")
    story.server.tick(73_001.0, quiet=3.0)
    story.server.slots_polled(busy(2000), 73_002.0)
    story.server.tick(73_003.0, quiet=3.0)
    seconds = story.server.snapshot(73_003.0).fill_seconds
    assert seconds is not None
    assert seconds.count < 5


def test_the_end_of_an_old_process_does_not_end_the_next_ones_life() -> None:
    story = LogStory(at=1000.0)
    story.server.process_seen(process(100, 999.0), 1000.0)
    story.lines(START)
    story.at = 1500.0
    story.lines(START).line("0.00.472.095 I slot launch_slot_: id  1 | task 6 | processing task")
    story.server.process_seen(None, story.at)
    assert story.server.state == "ready"
    assert story.server.snapshot(story.at).requests_processing == 1


def test_a_first_line_that_comes_twice_is_one_start() -> None:
    story = LogStory()
    for line in ("build: 8635 (abc) with cc", "system info: n_threads = 1, n_threads_batch = 1, total_threads = 2"):
        story.line(line)
    assert story.server.lives == 1


def test_the_automatic_slots_are_known_though_they_are_logged_before_the_first_line() -> None:
    story = LogStory().line("main: n_parallel is set to auto, using n_parallel = 4 and kv_unified = true")
    story.line("system info: n_threads = 1, n_threads_batch = 1, total_threads = 2")
    story.line("srv    load_model: loading model 'm.gguf'")
    story.line("srv    load_model: initializing slots, n_slots = 4")
    story.line("slot   load_model: id  0 | task -1 | new slot, n_ctx = 4096")
    geometry = story.server.snapshot(story.at).geometry
    assert (geometry.capacity, geometry.shared) == (4096, True)


def test_time_outs_of_slots_alone_do_not_mean_that_a_server_is_down() -> None:
    server = Server("s")
    server.health_polled(0)
    for second in range(10):
        server.poll_failed("slots", "timeout", second)
    assert server.state == "ready"


def test_a_server_that_answers_nothing_and_still_works_is_not_down() -> None:
    story = LogStory().lines(START)
    for second in range(3):
        story.server.poll_failed("health", "timeout", story.at + second)
    assert str(story.server.state) == "down"
    story.at += 5
    story.line(
        "0.08.391.629 I slot print_timing: id  1 | task 23 | prompt processing, n_tokens = 1233, progress = 0.60"
    )
    assert str(story.server.state) == "ready"


def test_lines_of_http_threads_between_a_failure_and_its_retry_do_not_count_it_twice() -> None:
    story = LogStory().lines(START).line("decode: failed to find a memory slot for batch of size 4")
    story.line("srv  log_server_r: request: GET /slots 127.0.0.1 200")
    story.line(
        "srv  update_slots: failed to find free space in the KV cache, retrying with smaller batch size, i = 0, "
        "n_batch = 2, ret = 1"
    )
    assert story.server.snapshot(story.at).counters.pressure_lines == 1
