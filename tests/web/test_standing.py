"""How a server stands, by the thresholds of the alerts; and what is said of it."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from kvexporter.alerting.conditions import POOL_RULES, SERVER_RULES, SETTLED_SECONDS
from kvexporter.facts import CgroupSample, GpuSample, ProcessSample
from kvexporter.pool_geometry import Geometry
from kvexporter.rules import thresholds as limit
from kvexporter.rules.groups import ALERTS
from kvexporter.snapshot import CollectorStatus, LifeSnapshot, PoolSnapshot, ServerSnapshot, SlotSnapshot
from kvexporter.web.amounts import duration, size
from kvexporter.web.memory_fields import memory_fields
from kvexporter.web.problems import exporter_problems, server_problems
from kvexporter.web.server_words import server_words
from kvexporter.web.standing import LEVELS, standing
from tests.support.page_stories import ASLEEP, BUSY, DOWN, LOADING, SPLIT
from tests.support.snapshots import FOUR_AGENTS, FULL, UNKNOWN, exporter

NOW = 1790000101.0
SAFE = Geometry(slots=4, slot_context=65536, capacity=262144, shared=True)


def level(server: ServerSnapshot, at: float = NOW) -> str:
    return standing(server, at).level


def pool(fill: float, **known: float) -> PoolSnapshot:
    tokens = round(fill * 262144)
    return replace(PoolSnapshot(tokens, 0, fill, fill, known.pop("peak", fill)), **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("server", "expected"),
    [(DOWN, "page"), (LOADING, "info"), (ASLEEP, "ok"), (SPLIT, "ok"), (BUSY, "info"), (UNKNOWN, "unknown")],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_kind_of_server_has_its_level(server: ServerSnapshot, expected: str) -> None:
    assert level(server) == expected


def test_the_levels_are_the_alerts_severities_the_worst_first() -> None:
    assert LEVELS == ("page", "warning", "unknown", "info", "ok")
    assert [standing(each, NOW).rank for each in (DOWN, UNKNOWN, BUSY, SPLIT)] == [0, 2, 3, 4]


def test_an_incident_is_urgent_as_long_as_its_alert() -> None:
    server = replace(BUSY, incidents=(FOUR_AGENTS,))
    ended = FOUR_AGENTS.ended
    assert level(server, ended + limit.INCIDENT_WINDOW - 1) == "page"
    assert level(server, ended + limit.INCIDENT_WINDOW) == "info"
    assert standing(server, ended + 130).text == "The pool ran out 2 min ago: 4 requests died"
    alone = replace(server, incidents=(replace(FOUR_AGENTS, cause="slot", requests_failed=1),))
    assert standing(alone, ended + 5).text == "1 request died of a slot's own limit just now"
    assert level(alone, ended + 5) == "warning"


def test_an_incident_whose_last_lines_may_still_come_is_told_at_once() -> None:
    assert level(replace(BUSY, open_incident=FOUR_AGENTS), FOUR_AGENTS.ended + 2 * SETTLED_SECONDS) == "page"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [*((each, "warning") for each in limit.POOL_WARN), *((each, "page") for each in limit.POOL_PAGE)],
)
def test_a_pool_that_fills_is_told_by_the_alerts_thresholds(condition: limit.PoolCondition, expected: str) -> None:
    bounds = {name: bound for name, bound in asdict(condition).items() if bound is not None}
    if "seconds_to_full" in bounds:
        bounds["seconds_to_full"] -= 1  # the others are reached, this one is undercut
    assert level(replace(BUSY, pool=replace(pool(0.5), **bounds))) == expected
    safe = replace(BUSY, geometry=SAFE, pool=replace(pool(0.5), **bounds))
    assert level(safe) == "ok"


@pytest.mark.parametrize(
    ("life", "expected", "text"),
    [
        (LifeSnapshot(oom_killed_at=NOW - 130), "page", "Killed for want of memory 2 min ago"),
        (
            LifeSnapshot(restarts_at=(NOW - 800, NOW - 50, NOW - 20), exited_at=NOW - 20, exit_code="127"),
            "page",
            "Crash loop: 3 restarts in 15 min, exit code 127",
        ),
        (
            LifeSnapshot(restarts_at=(NOW - 901, NOW - 50, NOW - 20), exited_at=NOW - 20, exit_code="127"),
            "info",
            "Room now, but 4 times the pool is promised",
        ),
        (LifeSnapshot(down_since=NOW - 60), "page", "Does not answer"),
        (LifeSnapshot(down_since=NOW - 59), "info", "Room now, but 4 times the pool is promised"),
    ],
)
def test_what_befell_a_server_is_told_as_its_alerts_tell_it(life: LifeSnapshot, expected: str, text: str) -> None:
    stands = standing(replace(BUSY, life=life), NOW)
    assert (stands.level, stands.text) == (expected, text)


def test_a_server_that_was_stopped_on_request_is_no_emergency() -> None:
    stopped = replace(DOWN, life=LifeSnapshot(down_since=NOW - 900, stopped_on_request=True))
    assert (level(stopped), standing(stopped, NOW).text) == ("info", "Stopped on request")
    assert server_words(stopped)["state"] == "It is stopped: systemd was asked to stop its unit."
    crashed = replace(DOWN, life=LifeSnapshot(down_since=NOW - 900, stopped_on_request=False))
    assert (level(crashed), standing(crashed, NOW).text) == ("page", "Down")
    killed = replace(crashed, life=replace(crashed.life, oom_killed_at=NOW - 900 + 1))
    assert standing(killed, NOW).text == "Down: killed for want of memory"


def test_a_crash_loop_says_more_than_that_the_server_is_down_for_the_moment() -> None:
    life = LifeSnapshot(down_since=NOW - 1, restarts_at=(NOW - 9, NOW - 6, NOW - 3), exited_at=NOW - 1, exit_code="1")
    assert standing(replace(DOWN, life=life), NOW).text == "Crash loop: 3 restarts in 15 min, exit code 1"
    by_hand = replace(DOWN, life=replace(life, stopped_on_request=True))
    assert standing(by_hand, NOW).text == "Stopped on request"


def test_requests_that_wait_and_a_model_that_loads_are_watched_once_that_lasts() -> None:
    waiting = replace(BUSY, requests_deferred=2, life=LifeSnapshot(deferred_since=NOW - limit.DEFERRED_FOR))
    assert (level(waiting), standing(waiting, NOW).text) == ("warning", "2 requests wait for a slot, for 5 min")
    assert standing(waiting, NOW - 1).level == "info"
    loading = replace(LOADING, life=LifeSnapshot(loading_since=NOW - limit.LOADING_FOR))
    assert (level(loading), standing(loading, NOW).text) == ("warning", "Loading its model for 15 min")
    assert (standing(loading, NOW - 1).level, standing(loading, NOW - 1).text) == ("info", "Loading its model")


def test_the_page_judges_every_alert_of_a_server_but_those_that_look_back_for_hours() -> None:
    """And those on counts from the log, which are told as a problem."""
    judged = {rule.name for rule in (*POOL_RULES, *SERVER_RULES)}
    of_servers = {rule.name for rule in ALERTS if "server" in rule.labels}
    assert of_servers - judged == {
        "LlamaPoolOvercommitted",  # the page's note on the pool's shape
        "LlamaGenerationSlow",
        "LlamaMemoryCreeping",
        "LlamaWeightsReread",
        "KvexporterCountsLowerBound",
    }


def test_what_the_running_requests_will_need_is_the_reason_where_no_time_can_be_told() -> None:
    needing = replace(BUSY, pool=pool(0.5, committed_ratio=1.25))
    assert standing(needing, NOW).text == "The running requests will need 125.0% of the pool"


def test_a_pool_that_cannot_overflow_is_never_said_to_fill() -> None:
    full = replace(SPLIT, geometry=SAFE, pool=pool(0.999, seconds_to_full=5.0, demand_ratio=2.0))
    assert level(full) == "ok"
    assert server_words(full)["time_left"] == "The pool cannot run out."


def test_a_request_that_stands_still_is_watched() -> None:
    still = SlotSnapshot(2, True, 100, task=7, task_age=400.0, stalled=limit.STALLED_SECONDS + 1.0)
    assert standing(replace(BUSY, slots=(still,)), NOW).text == "Slot 2: nothing has changed for 5 min"
    moving = replace(still, stalled=float(limit.STALLED_SECONDS))
    assert level(replace(BUSY, slots=(moving,))) == "info"


def test_batches_that_found_no_room_are_watched() -> None:
    assert level(replace(BUSY, cascade_since=NOW - 1, pressure_at=NOW - 1)) == "warning"
    assert level(replace(BUSY, pressure_at=NOW - 60)) == "warning"
    assert level(replace(BUSY, pressure_at=NOW - limit.PRESSURE_WINDOW - 1)) == "info"


# ---- words


def test_what_the_running_requests_hold_and_need_is_said_in_numbers() -> None:
    held = pool(0.5, committed_tokens=200_000, committed_ratio=0.76, demand_tokens=300_000, demand_ratio=1.144)
    words = server_words(replace(BUSY, pool=held))
    # Of BUSY's two slots the first holds 60,000: 22.9 %.
    assert words["fill"] == (
        "Running requests hold 131,072 of 262,144 tokens (50.0%); slot 0 holds most of it, 60,000 (22.9%)."
    )
    assert words["demand"] == (
        "Once their prompts are read they hold at least 200,000 tokens (76.0%); "
        "with answers as long as is allowed 300,000 tokens (114.4%): 37,856 more than there are."
    )
    assert words["time_left"] == "The pool is not seen to be filling."


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (pool(0.9, seconds_to_full=44.6), "If it goes on like this the pool is full in about 45 s."),
        (pool(1.0), "The pool is full."),
        (pool(0.0), "Nothing runs."),
        (
            pool(0.5, committed_ratio=1.1),
            "The pool will be full unless a request ends before; when cannot be said yet.",
        ),
    ],
)
def test_how_long_is_left_is_said(held: PoolSnapshot, expected: str) -> None:
    assert server_words(replace(BUSY, pool=held))["time_left"] == expected


def test_nothing_is_said_of_what_is_not_known() -> None:
    words = server_words(UNKNOWN)
    assert words.pop("state") == "Its state is not known yet."
    assert set(words.values()) == {None}
    assert server_words(replace(BUSY, pool=None))["time_left"] is None


def test_speeds_are_means_over_the_requests_that_told_them() -> None:
    # 15.25 / 2 and 350.5 / 2.
    assert server_words(FULL)["speed"] == "Writes 7.6 tokens/s and reads 175 tokens/s, the mean of 2 requests."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3599, "59 min"),
        (7500, "2 h 5 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_durations_are_no_more_exact_than_is_worth_reading(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_have_units_of_1024() -> None:
    assert [size(number) for number in (0, 1023, 163840, 42949672960, 2**41, None)] == [
        "0 B",
        "1023 B",
        "160 KiB",
        "40.0 GiB",
        "2.00 TiB",
        "unknown",
    ]


# ---- memory


def parts(fields: dict[str, object] | None) -> dict[str, int]:
    assert fields is not None
    listed = fields["parts"]
    assert isinstance(listed, list)
    found = {part["name"]: part["bytes"] for part in listed}
    assert sum(found.values()) == fields["total_bytes"]
    return found


def test_a_gpus_memory_is_the_servers_the_others_and_free() -> None:
    assert parts(memory_fields(FULL, exporter(FULL))) == {
        "this server": 13199000000,
        "others": 13600000000 - 13199000000,
        "free": 25757220864 - 13600000000,
    }


def test_shared_memory_never_counts_a_byte_twice() -> None:
    gpu = GpuSample(index="0", uuid="u", name="GB10", vendor="nvidia", unified=True, memory_used=80_000)
    host = replace(exporter(FULL), gpus=(gpu,), unified_memory_total=128_000, unified_memory_available=30_000)
    sample = ProcessSample(1, 0.0, 0.0, resident_bytes=25_000, anon_bytes=5_000, file_bytes=20_000)
    server = replace(FULL, gpu_process_memory={"0": 70_000}, process=sample)
    # Mapped files can be given back, so they lie in what is available.
    assert parts(memory_fields(server, host)) == {
        "this server, by the GPU's driver": 70_000,
        "its own": 5_000,
        "others": 128_000 - 30_000 - 75_000,
        "free": 30_000,
    }


def test_without_a_gpu_the_groups_limit_is_the_whole() -> None:
    group = CgroupSample(current_bytes=60, limit_bytes=100, anon_bytes=30, file_bytes=20)
    server = replace(FULL, gpu_process_memory={}, cgroup=group)
    host = replace(exporter(server), gpus=(), unified_memory_total=None)
    assert parts(memory_fields(server, host)) == {
        "its own": 30,
        "files, can be given back": 20,
        "other": 10,
        "free": 40,
    }


def test_without_a_limit_the_process_is_the_whole_and_without_one_there_is_no_bar() -> None:
    host = replace(exporter(), gpus=(), unified_memory_total=None)
    alone = replace(FULL, gpu_process_memory={}, cgroup=None)
    assert parts(memory_fields(alone, host)) == {"its own": 45000000000, "mapped files": 20255407616}
    assert memory_fields(UNKNOWN, exporter(UNKNOWN)) is None


# ---- problems


def test_a_host_without_a_gpu_lacks_nothing() -> None:
    status = CollectorStatus(False, 0.0, "no_gpu: there is no GPU here")
    assert exporter_problems(replace(exporter(), collectors={"gpu": status}, journal_gaps=0)) == []


def test_a_collector_that_fails_is_told_with_its_reason_and_a_remedy() -> None:
    collectors = {
        "gpu": CollectorStatus(False, 0.0, "mismatch: the library is newer than the driver"),
        "store": CollectorStatus(False, 0.0, "/var/lib/kvexporter/kvexporter.db: disk full"),
        "process": CollectorStatus(True, 0.0),
    }
    found = exporter_problems(replace(exporter(), collectors=collectors, journal_gaps=0))
    assert [(problem.subject, problem.text) for problem in found] == [
        ("gpu", "the library is newer than the driver"),
        ("store", "/var/lib/kvexporter/kvexporter.db: disk full"),
    ]
    assert all(problem.remedy for problem in found)


def test_a_server_that_answers_nothing_is_told_once_and_one_that_is_down_not_at_all() -> None:
    failing = {"slots": "timeout", "metrics": "timeout", "props": "unauthorized"}
    texts = [problem.text for problem in server_problems(replace(BUSY, failing=failing))]
    assert texts == ["/slots did not answer in time", "/props demands an API key"]
    assert server_problems(replace(DOWN, failing={"health": "refused"})) == []
