"""The JSON API: what docs/api.md promises."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvexporter.replay import run_replay
from kvexporter.snapshot import Counters, ExporterSnapshot, ServerSnapshot
from tests.support.asgi import app_of, ask
from tests.support.live_page import LivePage
from tests.support.paths import RECORDINGS, ROOT
from tests.support.snapshots import FOUR_AGENTS, FULL, HOSTILE, UNKNOWN, exporter
from tests.support.web_server import ALICE


def get(path: str, snapshot: ExporterSnapshot | None = None) -> Any:
    answer = ask(app_of(exporter(FULL, UNKNOWN) if snapshot is None else snapshot), path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


# ---- servers


def test_every_answer_says_of_what_time_it_is_and_who_answers() -> None:
    for path in ("/api/v1/servers", "/api/v1/servers/main", "/api/v1/incidents"):
        answer = get(path)
        assert answer["at"] == "2026-09-21T14:15:01.000Z"
        assert answer["exporter"]["ready"] is True
        assert re.fullmatch(r"\d+\.\d+.*", answer["exporter"]["version"])


def test_a_server_has_its_pool_its_slots_and_its_counts() -> None:
    server, _ = get("/api/v1/servers")["servers"]
    assert (server["name"], server["unit"], server["model"], server["build"]) == (
        "main",
        "llama-server.service",
        "qwen.gguf",
        "b11434",
    )
    assert server["geometry"] == {
        "slots": 4,
        "slot_context_tokens": 262144,
        "capacity_tokens": 262144,
        "shared": True,
        "promised_tokens": 1048576,
        "overcommit_ratio": 4.0,
        "guaranteed_tokens": 65536,
        "source": "journal",
    }
    assert server["pool"]["processing_tokens"] == 131072 + 65536
    assert server["pool"]["fill_ratio"] == 0.75
    assert server["slots"][0] == {
        "slot": 0,
        "processing": True,
        "tokens": 131072,
        "share": 0.5,
        "task": 21,
        "prompt_tokens": None,
        "task_age_seconds": 12.5,
        "stalled_seconds": 0.5,
    }
    assert server["counts"] == {
        "incidents": {"pool": 1, "slot": 0},
        "requests_failed": {"pool": 4, "slot": 0},
        "error_lines": 6,
        "pressure_lines": 21,
        "restarts": 24,
        "exits": {"127": 24, "KILL": 1},
        "oom_kills": FULL.counters.oom_kills,
        "lower_bound": True,
    }


def test_unknown_is_null_and_never_zero() -> None:
    _, far = get("/api/v1/servers")["servers"]
    assert far["name"] == "far"
    assert far["slots"] == []
    for key in ("unit", "model", "state", "up", "pool", "counts", "requests_processing", "kv_cache_bytes", "memory"):
        assert far[key] is None, key
    assert set(far["geometry"].values()) == {None}
    full = get("/api/v1/servers/far")["server"]
    assert full["fill_history"] is None
    assert full["incidents"] == full["advice"] == []


def test_one_server_has_incidents_and_the_last_hour_too() -> None:
    history = ((1790000085.0, 0.5), (1790000100.0, 0.875))
    server = get("/api/v1/servers/main", exporter(replace(FULL, fill_history=history)))["server"]

    (incident,) = server["incidents"]
    # From the operator's own table.
    assert [slot["tokens"] for slot in incident["slots"]] == [159069, 23428, 77417, 2949]
    assert (incident["sum_tokens"], incident["capacity_tokens"], incident["excess_tokens"]) == (262863, 262144, 719)
    assert incident["biggest_slot"] == 0
    assert incident["ended"] == "2026-09-21T14:13:21.500Z"
    assert "slot 0 held 159,069 tokens (60.7%)" in incident["text"]
    values = server["fill_history"]["highest_ratios"]
    assert len(values) == 240
    assert values[-2:] == [0.5, 0.875]
    assert set(values[:-2]) == {None}
    assert server["fill_history"]["start"] == "2026-09-21T13:15:15.000Z"  # 14:15:00 less 239 times 15 s


def test_a_last_hour_of_which_nothing_is_known_any_more_is_null() -> None:
    # 14:15:01 less an hour is 13:15:01; the first of the 240 steps begins at 13:15:15.
    history = ((1790000101.0 - 3599.0, 0.5),)
    assert get("/api/v1/servers/main", exporter(replace(FULL, fill_history=history)))["server"]["fill_history"] is None


def test_a_crash_loop_is_told_from_a_server_that_was_stopped() -> None:
    looping = replace(FULL, name="looping", state="down", up=False)
    stopped = replace(looping, name="stopped", counters=replace(FULL.counters, unit_exits={}, unit_restarts=0))
    servers = get("/api/v1/servers", exporter(looping, stopped))["servers"]
    assert servers[0]["words"]["state"] == (
        "It is down. So far its process ended badly 25 times, with 127 (24), KILL (1); "
        "systemd started it anew 24 times."
    )
    assert servers[1]["words"]["state"] == "It is down."


def test_how_long_an_incident_had_been_coming_is_said() -> None:
    coming = replace(FOUR_AGENTS, demand_above_seconds=200.0)
    server = get("/api/v1/servers/main", exporter(replace(FULL, incidents=(coming,))))["server"]
    assert server["incidents"][0]["coming"] is not None
    assert "3 min 20 s" in server["incidents"][0]["coming"]
    assert server["incidents"][0]["demand_above_seconds"] == 200.0


def test_advice_for_an_overcommitted_pool_is_cheapest_first_and_never_overcommits() -> None:
    advice = get("/api/v1/servers/main")["server"]["advice"]
    assert advice[0]["flags"] == []  # what costs nothing: tell the clients what is sure
    assert advice[0]["guaranteed_tokens"] == 65536
    assert [way["flags"] for way in advice].count(["-c", "262144", "-np", "4"]) == 1  # split
    known = [way["kv_bytes"] for way in advice if way["kv_bytes"] is not None]
    assert known == sorted(known)
    for way in advice[1:]:
        flags = dict(zip(way["flags"], way["flags"][1:], strict=False))
        assert way["guaranteed_tokens"] * int(flags["-np"]) <= int(flags["-c"])
    quiet = replace(FULL, incidents=(), counters=replace(FULL.counters, incidents={}, requests_failed={}))
    assert get("/api/v1/servers/main", exporter(quiet))["server"]["advice"] == advice


def test_a_pool_that_cannot_overflow_needs_no_advice() -> None:
    safe = replace(FULL, geometry=replace(FULL.geometry, slot_context=65536), counters=Counters(), incidents=())
    assert get("/api/v1/servers/main", exporter(safe))["server"]["advice"] == []


def test_a_recorded_incident_has_the_numbers_of_its_log() -> None:
    name = "replay-b11434-full"
    expected = json.loads((RECORDINGS / "expected.json").read_text())[name]
    (server,) = get("/api/v1/servers", run_replay(directory=RECORDINGS / name))["servers"]
    detail = get(f"/api/v1/servers/{server['name']}", run_replay(directory=RECORDINGS / name))["server"]

    assert {key: server["geometry"][key] for key in ("slots", "capacity_tokens", "guaranteed_tokens")} == {
        "slots": expected["geometry"]["slots"],
        "capacity_tokens": expected["geometry"]["pool_capacity_tokens"],
        "guaranteed_tokens": expected["geometry"]["guaranteed_tokens"],
    }
    assert server["counts"]["incidents"] == expected["incidents"]
    assert server["counts"]["requests_failed"] == expected["requests_failed"]
    (incident,) = detail["incidents"]
    (told,) = expected["incident_details"]
    assert {str(slot["slot"]): slot["tokens"] for slot in incident["slots"]} == told["slot_tokens"]
    assert (incident["sum_tokens"], incident["excess_tokens"]) == (told["sum_tokens"], told["excess_tokens"])


@pytest.mark.parametrize("name", ["no%20such-<script>", "main/%2e%2e/x", "MAIN", "", "%00", "a" * 2000])
def test_a_server_that_is_not_there_is_404_and_its_name_is_not_repeated(name: str) -> None:
    answer = ask(app_of(exporter(FULL)), f"/api/v1/servers/{name}")
    assert answer.status_code == 404
    assert "script" not in answer.text
    assert "aaaa" not in answer.text


def test_every_name_in_the_list_can_be_asked_for() -> None:
    odd = ServerSnapshot("org/model:8081?x#y%20")
    snapshot = exporter(FULL, replace(HOSTILE, name='a"b\\c d\udcff'), odd)
    for server in get("/api/v1/servers", snapshot)["servers"]:
        quoted = "".join(f"%{byte:02X}" for byte in server["name"].encode())
        assert get(f"/api/v1/servers/{quoted}", snapshot)["server"]["name"] == server["name"]


def test_bytes_that_are_not_utf8_do_not_break_the_answer() -> None:
    evil = ServerSnapshot("x\udcff", unit="\udcff.service", model="\ud800")
    (server,) = get("/api/v1/servers", exporter(evil))["servers"]
    assert server["name"] == "x?"


def test_no_exporter_problem_is_hidden() -> None:
    problems = get("/api/v1/servers")["exporter"]["problems"]
    assert {problem["subject"] for problem in problems} == {"process", "journal"}
    assert all(problem["text"] and problem["level"] for problem in problems)


# ---- incidents


def some_incidents() -> ExporterSnapshot:
    one = tuple(replace(FOUR_AGENTS, ended=1790000000.0 + at) for at in (1, 3, 5))
    other = tuple(replace(FOUR_AGENTS, ended=1790000000.0 + at) for at in (2, 4))
    return exporter(replace(FULL, name="a", incidents=one), replace(FULL, name="b", incidents=other))


def test_incidents_of_all_servers_come_latest_first() -> None:
    found = get("/api/v1/incidents", some_incidents())["incidents"]
    assert [(incident["server"], incident["ended"][-7:]) for incident in found] == [
        ("a", "25.000Z"),
        ("b", "24.000Z"),
        ("a", "23.000Z"),
        ("b", "22.000Z"),
        ("a", "21.000Z"),
    ]


def test_incidents_can_be_of_one_server_and_few() -> None:
    assert len(get("/api/v1/incidents?limit=2", some_incidents())["incidents"]) == 2
    found = get("/api/v1/incidents?server=b&limit=1000", some_incidents())["incidents"]
    assert [incident["server"] for incident in found] == ["b", "b"]
    assert ask(app_of(some_incidents()), "/api/v1/incidents?server=<script>").status_code == 404


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "abc<script>", "1e3", "", "٣", "9" * 500])
def test_an_impossible_limit_is_400_with_what_was_expected(limit: str) -> None:
    answer = ask(app_of(some_incidents()), f"/api/v1/incidents?limit={limit}")
    assert answer.status_code == 400
    assert answer.json() == {"error": "limit: expected a whole number from 1 to 1000"}


# ---- Prometheus' service discovery


def test_prometheus_discovers_the_exporter_at_the_address_by_which_it_asked() -> None:
    with LivePage(exporter(FULL, UNKNOWN)) as page:
        (group,) = httpx.get(f"{page.url}/api/v1/targets", trust_env=False).json()
    assert group["targets"] == [f"127.0.0.1:{page.port}"]
    assert group["labels"]["__scheme__"] == "http"
    assert group["labels"]["__metrics_path__"] == "/metrics"
    assert group["labels"]["__meta_kvexporter_servers"] == ",main,far,"


def test_prometheus_can_discover_the_llama_servers() -> None:
    v6 = replace(FULL, name="six", url="https://[2001:db8::1]/base/", last_poll={})
    groups = get("/api/v1/targets?kind=llama-server", exporter(FULL, UNKNOWN, v6))
    assert [group["targets"] for group in groups] == [["127.0.0.1:8080"], ["[2001:db8::1]:443"]]
    assert [group["labels"]["__metrics_path__"] for group in groups] == ["/metrics", "/base/metrics"]
    assert groups[0]["labels"]["__meta_kvexporter_server"] == "main"
    assert [group["labels"]["__meta_kvexporter_metrics"] for group in groups] == ["true", ""]
    # All label values are strings: Prometheus refuses others.
    assert all(isinstance(value, str) for group in groups for value in group["labels"].values())


def test_another_kind_of_target_is_400_and_not_repeated() -> None:
    answer = ask(app_of(exporter(FULL)), "/api/v1/targets?kind=<script>")
    assert answer.status_code == 400
    assert "script" not in answer.text


# ---- who may ask, and how


@pytest.mark.parametrize("path", ["servers", "servers/main", "servers/none", "incidents", "events", "targets"])
def test_the_api_lets_in_whom_the_metrics_let_in(path: str, tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(ALICE)
    with LivePage(exporter(FULL), config) as page:
        url = f"{page.url}/api/v1/{path}"
        assert httpx.get(url, trust_env=False, timeout=30).status_code == 401
        assert httpx.get(url, trust_env=False, timeout=30, auth=("alice", "wrong")).status_code == 401
        good = httpx.request("HEAD", url, trust_env=False, timeout=30, auth=("alice", "fakepassword"))
        assert good.status_code == (404 if path.endswith("none") else 200)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["servers", "servers/main", "incidents", "events", "targets"])
def test_nothing_can_be_changed_over_the_api(path: str, method: str) -> None:
    assert ask(app_of(exporter(FULL)), f"/api/v1/{path}", method).status_code == 405


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/api/v1/no<script>", "GET", 404),
        ("/api/v2/servers", "GET", 404),
        ("/api/", "GET", 404),
        ("/api/v1/servers", "POST", 405),
        ("/api/v1/events", "OPTIONS", 405),
    ],
)
def test_what_is_not_there_is_an_error_in_json_too(path: str, method: str, status: int) -> None:
    answer = ask(app_of(exporter(FULL)), path, method)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    assert answer.json() == {"error": {404: "Not Found", 405: "Method Not Allowed"}[status]}
    assert ("allow" in answer.headers) == (status == 405)


def test_answers_are_zipped_for_who_takes_it() -> None:
    answer = ask(app_of(exporter(FULL)), "/api/v1/servers", headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json()["servers"][0]["name"] == "main"


def test_other_sites_pages_may_not_read_it() -> None:
    answer = ask(app_of(exporter(FULL)), "/api/v1/servers", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_every_key_of_the_api_is_documented() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    documented = set(re.findall(r"`(\w+)`", text))

    def keys(value: Any, path: str = "") -> set[str]:
        if isinstance(value, dict):
            # Whose keys are names of collectors, endpoints or causes.
            free = path in ("collectors", "last_answers", "failing", "incidents", "requests_failed", "exits")
            own = set() if free and not isinstance(value.get("cause"), str) else set(value)
            return own.union(*(keys(each, key) for key, each in value.items()))
        if isinstance(value, list):
            return set().union(*(keys(each, path) for each in value))
        return set()

    history = replace(FULL, fill_history=((1790000085.0, 0.5),), failing={"metrics": "unsupported"})
    for path in ("/api/v1/servers", "/api/v1/servers/main", "/api/v1/incidents", "/api/v1/targets?kind=llama-server"):
        assert keys(get(path, exporter(history))) <= documented
