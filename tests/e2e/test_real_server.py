"""The real exporter on the real llama-server: its numbers against what the server and its clients saw."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.exporter import Exporter
from tests.support.journal_files import LiveJournalFile
from tests.support.llama_server import RealLlamaServer, Request
from tests.support.paths import wait_for
from tests.support.prometheus import Prometheus, promtool_check_metrics

pytestmark = pytest.mark.real_server


def server_config(name: str, server: RealLlamaServer, journal: LiveJournalFile) -> dict[str, Any]:
    return {
        "name": name,
        "url": server.url,
        "unit": journal.unit,
        "journal": {"directory": str(journal.directory)},
        "poll_interval": "200ms",
    }


@contextmanager
def watched(tmp_path: Path, *arguments: str) -> Iterator[tuple[RealLlamaServer, Exporter]]:
    """A server with its journal, and the exporter on both; the series' label is server="it"."""
    with (
        LiveJournalFile(tmp_path / "journal") as journal,
        RealLlamaServer("--metrics", *arguments, journal=journal) as server,
        Exporter({"idle_poll_interval": "1s", "servers": [server_config("it", server, journal)]}) as exporter,
    ):
        yield server, exporter


def final_tokens(server: RealLlamaServer) -> dict[str, int]:
    """Each slot's size at its last release, as the server logged it."""
    releases = re.findall(r"id\s+(\d+) \| task \d+ \| stop processing: n_tokens = (\d+)", server.log())
    return {slot: int(tokens) for slot, tokens in releases}


# ---- geometry --------------------------------------------------------------------------------------------------------

# The configurations that the two operators ran and considered, a quarter and a 64th in size. The expected figures are
# llama-server's own rules: -c is the whole buffer; split slots get equal parts; a cap per slot multiplies to the pool.
CONFIGURATIONS = {
    "original": (
        ["--ctx-size", "4096"],
        {"slots": 4, "context": 4096, "capacity": 4096, "shared": 1, "overcommit": 4, "guaranteed": 1024},
    ),
    "c2": (
        ["--ctx-size", "6144", "--parallel", "3", "--no-kv-unified"],
        {"slots": 3, "context": 2048, "capacity": 6144, "shared": 0, "overcommit": 1, "guaranteed": 2048},
    ),
    "c3p": (
        ["--parallel", "1", "--ctx-size", "3072", "-ctk", "q8_0", "-ctv", "q8_0"],
        {"slots": 1, "context": 3072, "capacity": 3072, "shared": 0, "overcommit": 1, "guaranteed": 3072},
    ),
    "overcommitted": (
        ["-c", "4096", "-np", "4", "-kvu"],
        {"slots": 4, "context": 4096, "capacity": 4096, "shared": 1, "overcommit": 4, "guaranteed": 1024},
    ),
    "a": (
        ["-np", "4", "-kvu", "--kv-unified-per-slot", "2048"],
        {"slots": 4, "context": 2048, "capacity": 8192, "shared": 1, "overcommit": 1, "guaranteed": 2048},
    ),
    "b": (
        ["-c", "16384", "-np", "4", "-kvu", "--kv-unified-per-slot", "4096", "-ctk", "q8_0", "-ctv", "q8_0"],
        {"slots": 4, "context": 4096, "capacity": 16384, "shared": 1, "overcommit": 1, "guaranteed": 4096},
    ),
    "c": (
        ["-c", "16384", "-np", "4", "-kvu", "--kv-unified-per-slot", "4096"],
        {"slots": 4, "context": 4096, "capacity": 16384, "shared": 1, "overcommit": 1, "guaranteed": 4096},
    ),
    "split": (
        ["-c", "4096", "-np", "4"],
        {"slots": 4, "context": 1024, "capacity": 4096, "shared": 0, "overcommit": 1, "guaranteed": 1024},
    ),
}
SERIES = {
    "slots": "llama_slots",
    "context": "llama_slot_context_tokens",
    "capacity": "llama_kv_pool_capacity_tokens",
    "shared": "llama_kv_pool_shared",
    "overcommit": "llama_kv_pool_overcommit_ratio",
    "guaranteed": "llama_slot_guaranteed_tokens",
}


@pytest.fixture(scope="module")
def configurations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    """One exporter on all configurations at once, each a unit of its own in one journal folder."""
    folder = tmp_path_factory.mktemp("journals")
    with ExitStack() as stack:
        entries = []
        for name, (arguments, _) in CONFIGURATIONS.items():
            journal = LiveJournalFile(folder, unit=f"llama-{name}.service", name=f"{name}.journal")
            stack.enter_context(journal)
            server = stack.enter_context(RealLlamaServer(*arguments, journal=journal))
            entries.append(server_config(name, server, journal))
        yield stack.enter_context(Exporter({"servers": entries}))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_each_configuration_shows_its_pool_and_what_a_slot_is_sure_of(configurations: Exporter, name: str) -> None:
    expected = CONFIGURATIONS[name][1]
    shown = configurations.wait_value(expected["capacity"], "llama_kv_pool_capacity_tokens", server=name)
    assert {key: shown.value(series, server=name) for key, series in SERIES.items()} == expected
    assert shown.value("llama_kv_pool_promised_tokens", server=name) == expected["slots"] * expected["context"]


def test_a_server_is_found_without_any_configuration_and_its_pool_read_from_its_command_line() -> None:
    with RealLlamaServer("-c", "4096", "-np", "4", "-kvu") as server, Exporter(None) as exporter:
        name = f"127.0.0.1:{server.port}"
        shown = exporter.wait_value(4, "llama_kv_pool_overcommit_ratio", server=name)
        assert shown.value("llama_slot_guaranteed_tokens", server=name) == 1024
        assert shown.value("llama_up", server=name) == 1
        start = shown.value("llama_process_start_time_seconds", server=name)
        assert start is not None
        assert abs(start - time.time()) < 600


# ---- context errors --------------------------------------------------------------------------------------------------


def test_failed_requests_equal_the_clients_http_500s_over_several_overflows(tmp_path: Path) -> None:
    with watched(tmp_path, "-c", "4096", "-np", "4", "-kvu") as (server, exporter):
        failed = incidents = 0
        for _ in range(3):
            statuses = [completion.status for completion in server.overflow(4096)]
            failed += statuses.count(500)
            incidents += 500 in statuses
        assert failed > 0

        shown = exporter.wait_value(failed, "llama_context_exceeded_requests_total", server="it", cause="pool")
        log = server.log()

    assert shown.value("llama_context_exceeded_total", server="it", cause="pool") == incidents
    lines = sum("Context size has been exceeded" in line for line in log.splitlines())
    assert shown.value("llama_context_exceeded_log_lines_total", server="it") == lines
    assert shown.value("llama_context_exceeded_requests_total", server="it", cause="slot") == 0


def test_the_last_incident_is_the_one_that_the_server_logged(tmp_path: Path) -> None:
    with watched(tmp_path, "-c", "4096", "-np", "4", "-kvu") as (server, exporter):
        assert [completion.status for completion in server.overflow(4096)] == [500] * 4
        shown = exporter.wait_value(1, "llama_context_exceeded_total", server="it", cause="pool")
        final = final_tokens(server)

    assert shown.by("slot", "llama_last_incident_slot_tokens", server="it") == final
    assert shown.value("llama_last_incident_excess_tokens", server="it") == sum(final.values()) - 4096


def test_one_request_beyond_its_slot_is_another_cause_and_harms_nobody_else(tmp_path: Path) -> None:
    with watched(tmp_path, "-c", "4096", "-np", "4", "-kvu") as (server, exporter):
        refused, served = server.complete_all([Request(prompt=5000, answer=10), Request(prompt=100, answer=10)])
        assert (refused.status, served.status) == (400, 200)
        shown = exporter.wait_value(1, "llama_context_exceeded_requests_total", server="it", cause="slot")
    assert shown.value("llama_context_exceeded_requests_total", server="it", cause="pool") == 0


def test_a_healthy_run_counts_no_error(tmp_path: Path) -> None:
    requests = [Request(prompt=200, answer=100, seed=seed) for seed in range(8)]
    with watched(tmp_path, "-c", "4096", "-np", "4", "-kvu") as (server, exporter):
        assert [completion.status for completion in server.complete_all(requests)] == [200] * 8
        shown = exporter.wait_value(8, "llama_request_tokens_count", server="it")

    for cause in ("pool", "slot"):
        assert shown.value("llama_context_exceeded_total", server="it", cause=cause) == 0
        assert shown.value("llama_context_exceeded_requests_total", server="it", cause=cause) == 0
    for name in ("context_exceeded_log_lines", "kv_pressure_lines", "answers_truncated", "requests_cancelled"):
        assert shown.value(f"llama_{name}_total", server="it") == 0, name


# ---- tokens ----------------------------------------------------------------------------------------------------------


def test_slot_tokens_end_within_one_decode_step_of_the_server_s_own_count(tmp_path: Path) -> None:
    # Long enough that several polls of each slot fall into its answer.
    requests = [Request(prompt=size, answer=4000, seed=size) for size in (300, 500, 700, 900)]
    with watched(tmp_path, "-c", "32768", "-np", "4", "-kvu") as (server, exporter):
        seen: dict[str, list[float]] = {}
        with ThreadPoolExecutor(1) as clients:
            done = clients.submit(server.complete_all, requests)
            while not done.done():
                now = exporter.scrape()
                for slot, processing in now.by("slot", "llama_slot_processing", server="it").items():
                    tokens = now.value("llama_slot_tokens", server="it", slot=slot)
                    if processing and tokens is not None:
                        seen.setdefault(slot, []).append(tokens)
                time.sleep(0.1)
            assert [completion.status for completion in done.result()] == [200] * 4
        shown = exporter.wait_value(0, "llama_kv_pool_tokens", server="it", state="processing")
        final = final_tokens(server)

    assert sorted(final) == ["0", "1", "2", "3"]
    for slot, tokens in final.items():
        assert seen[slot] == sorted(seen[slot]), "an answer only grows"
        assert len(set(seen[slot])) >= 3, "it was watched while it grew"
        assert seen[slot][-1] <= tokens + 1
    after = shown.by("slot", "llama_slot_tokens", server="it")
    assert all(abs(after[slot] - tokens) <= 1 for slot, tokens in final.items()), (after, final)


# ---- sleep -----------------------------------------------------------------------------------------------------------


def log_seconds(line: str) -> float:
    """The server's own clock at the start of a line: minutes.seconds.milliseconds.microseconds."""
    minutes, seconds, milliseconds, microseconds = (int(part) for part in line.split(" ", 1)[0].split("."))
    return minutes * 60 + seconds + milliseconds / 1e3 + microseconds / 1e6


def test_a_watched_server_goes_to_sleep_on_time_and_stays_asleep(tmp_path: Path) -> None:
    with watched(tmp_path, "-c", "4096", "-np", "4", "-kvu", "--sleep-idle-seconds", "4") as (server, exporter):
        assert server.complete(prompt=200, answer=200).status == 200
        server.wait_log("entering sleeping state")
        exporter.wait_value(1, "llama_server_state", server="it", state="sleeping")

        # The time limit is the point here: ten looks at the idle server must not wake it.
        watched_until = time.monotonic() + 10
        while time.monotonic() < watched_until:
            assert exporter.scrape().value("llama_server_state", server="it", state="sleeping") == 1
            time.sleep(0.5)
        lines = server.log().splitlines()
        assert server.get("/props")["is_sleeping"] is True

        released = log_seconds(next(line for line in lines if "stop processing" in line))
        asleep = log_seconds(next(line for line in lines if "entering sleeping state" in line))
        assert 4 <= asleep - released < 8
        assert not any("exiting sleeping state" in line for line in lines)

        assert server.complete(prompt=50, answer=10).status == 200
        exporter.wait_value(1, "llama_server_state", server="it", state="ready")


# ---- a minute of Prometheus ------------------------------------------------------------------------------------------


def test_prometheus_scrapes_without_a_failure_while_the_server_is_killed_and_started_again(tmp_path: Path) -> None:
    expositions = []
    with (
        watched(tmp_path, "-c", "4096", "-np", "4", "-kvu") as (server, exporter),
        Prometheus(tmp_path / "prometheus", {"kvexporter": exporter.address}) as prometheus,
    ):
        started = time.monotonic()
        server.overflow(4096)
        expositions.append(exporter.wait_value(4, "llama_context_exceeded_requests_total", server="it", cause="pool"))
        wait_for("a fill in Prometheus", lambda: prometheus.query("llama_kv_pool_fill_ratio") or None)

        server.kill()
        expositions.append(exporter.wait_value(0, "llama_up", server="it"))
        expositions.append(exporter.wait_absent("llama_kv_pool_fill_ratio", server="it"))
        for name in ("llama_slot_tokens", "llama_slot_processing", "llama_process_resident_memory_bytes"):
            exporter.wait_absent(name, server="it")
        wait_for("the fill to be gone in Prometheus", lambda: not prometheus.query("llama_kv_pool_fill_ratio"))
        assert exporter.scrape().value("llama_context_exceeded_requests_total", server="it", cause="pool") == 4

        server.start()
        expositions.append(exporter.wait_value(1, "llama_up", server="it"))
        server.overflow(4096)
        expositions.append(exporter.wait_value(8, "llama_context_exceeded_requests_total", server="it", cause="pool"))

        while time.monotonic() - started < 60:
            assert server.complete(prompt=100, answer=200).status == 200
            time.sleep(1)
        (scrapes,) = prometheus.samples("up")
        increase = prometheus.value('llama_context_exceeded_requests_total{cause="pool"}')

    assert len(scrapes) >= 45, "a scrape every second for a minute"
    assert all(value == 1 for _, value in scrapes)
    assert increase == 8
    for exposition in expositions:
        assert promtool_check_metrics(exposition.text) == ""
