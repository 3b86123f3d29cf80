"""The definitions: the promised names are there, and each says what an operator has to know."""

from __future__ import annotations

import pytest

from kvexporter.metrics.definition import Metric
from kvexporter.metrics.definitions import METRICS

# The design's list, without what needs a forecast, a control group or the socket table.
PROMISED = """
llama_up llama_server_info llama_server_state llama_requests_processing llama_requests_deferred
llama_slots llama_slot_context_tokens llama_kv_pool_capacity_tokens llama_kv_pool_shared llama_kv_pool_promised_tokens
llama_kv_pool_overcommit_ratio llama_slot_guaranteed_tokens llama_kv_pool_geometry_source llama_kv_cache_bytes
llama_kv_bytes_per_token
llama_slot_tokens llama_slot_processing llama_kv_pool_tokens llama_kv_pool_fill_ratio llama_kv_pool_resident_ratio
llama_kv_pool_fill_peak_ratio llama_kv_pool_fill_seconds
llama_slot_task_age_seconds llama_slot_stalled_seconds
llama_kv_pool_demand_tokens llama_kv_pool_demand_ratio llama_kv_pool_seconds_to_full
llama_kv_pool_committed_tokens llama_kv_pool_committed_ratio
llama_context_exceeded_total llama_context_exceeded_requests_total llama_context_exceeded_log_lines_total
llama_kv_pressure_lines_total llama_kv_recoveries_total llama_slot_purges_total llama_slot_purged_tokens_total
llama_context_shifts_total llama_answers_truncated_total llama_requests_cancelled_total
llama_last_incident_timestamp_seconds llama_last_incident_slot_tokens llama_last_incident_excess_tokens
llama_request_tokens llama_request_prompt_tokens llama_prompt_tokens_per_second llama_generation_tokens_per_second
llama_http_requests_total
llama_prompt_tokens_total llama_prompt_tokens_cached_total llama_prompt_seconds_total llama_predicted_tokens_total
llama_predicted_seconds_total llama_decode_calls_total llama_draft_tokens_total llama_draft_accepted_tokens_total
llama_process_resident_memory_bytes llama_process_memory_bytes llama_process_cpu_seconds_total
llama_process_major_page_faults_total llama_process_open_fds llama_process_start_time_seconds
llama_unit_restarts_total llama_unit_exits_total llama_unit_oom_kills_total
llama_gpu_memory_total_bytes llama_gpu_memory_used_bytes llama_gpu_process_memory_bytes llama_gpu_utilization_ratio
llama_gpu_temperature_celsius llama_gpu_power_watts llama_gpu_unified_memory llama_unified_memory_total_bytes
llama_unified_memory_available_bytes
kvexporter_build_info kvexporter_collector_success kvexporter_collector_duration_seconds
kvexporter_journal_lines_total kvexporter_journal_lag_seconds kvexporter_journal_suppressed_lines_total
kvexporter_poll_failures_total kvexporter_last_poll_timestamp_seconds kvexporter_store_errors_total
""".split()  # noqa: SIM905 - readable as the list that it copies

each_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


def test_every_promised_metric_is_defined() -> None:
    assert set(PROMISED) <= {metric.name for metric in METRICS}


def test_names_are_unique_also_as_openmetrics_families() -> None:
    families = [metric.name.removesuffix("_total").removesuffix("_info") for metric in METRICS]
    assert len(families) == len(set(families))


@each_metric
def test_help_tells_meaning_source_and_when_it_is_absent(metric: Metric) -> None:
    assert metric.meaning.endswith(".")
    assert metric.source
    assert not metric.source.endswith(".")
    assert not metric.absent.endswith(".")
    assert metric.absent.split(" ")[0] in ("", "while", "where", "until", "before", "without", "on", "for")
    assert "\n" not in metric.help_text


@each_metric
def test_a_metric_of_a_server_has_its_name_as_first_label(metric: Metric) -> None:
    assert sum(read is not None for read in (metric.server, metric.histogram, metric.exporter)) == 1
    if metric.exporter is None:
        assert metric.labels[0] == "server"
        assert metric.name.startswith("llama_")
    elif metric.name.startswith("llama_"):
        assert metric.name.startswith(("llama_gpu_", "llama_unified_memory_"))  # of the host, whatever its servers
        assert "server" not in metric.labels
    else:
        assert metric.name.startswith("kvexporter_")


@each_metric
def test_types_and_names_agree(metric: Metric) -> None:
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.name.endswith("_info") == (metric.kind == "info")
    assert (metric.histogram is not None) == (metric.kind == "histogram")
