"""What is planned with: what was said, what a log tells, what a running server tells, and the memory there is."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from kvexporter.facts import GpuReport, GpuSample, HostMemory
from kvexporter.llama.model_shape import ModelShape
from kvexporter.pool_geometry import Geometry
from kvexporter.reports.plan import Free, Plan, free_memory, make_plan
from kvexporter.reports.plan_clients import client_settings
from kvexporter.reports.plan_facts import PlanError, Said, plan_of
from kvexporter.reports.plan_json import plan_json
from kvexporter.reports.plan_markdown import plan_markdown
from kvexporter.reports.plan_running import ModelFile, Running
from kvexporter.reports.plan_text import print_plan
from kvexporter.reports.plan_told import NoServerError, Told, only_server
from kvexporter.request_sizes import size_facts
from kvexporter.sizing import RequestSizeFacts, SizingFacts

GIB = 1 << 30
SHARED = Geometry(4, 262_144, 262_144, True, "journal")
HOST = HostMemory(total=128 * GIB, available=60 * GIB, swap_free=8 * GIB)
CARD = GpuSample("0", "GPU-a", "RTX", "nvidia", memory_total=16 * GIB, memory_used=14 * GIB, unified=False)
OTHER = GpuSample("1", "GPU-b", "RTX", "nvidia", memory_total=24 * GIB, memory_used=4 * GIB, unified=False)
DEVSTRAL = ModelFile(ModelShape("llama", 40, 40 * 8 * 128, 40 * 8 * 128), 393_216)


def told(*sizes: int, geometry: Geometry = SHARED, name: str = "main") -> Told:
    return Told(name, size_facts(sizes), geometry, None, None, None, None, "a log")


def running(held: frozenset[str] = frozenset("0"), *, on_host: bool = False) -> Running:
    return Running("main", SHARED, ("f16", "f16"), DEVSTRAL, held, on_host)


def test_a_cache_on_a_card_can_take_what_is_free_on_that_card_and_what_it_takes_today() -> None:
    plan = plan_of(Said(p95=1000), None, running(), GpuReport((CARD, OTHER)), HOST)
    assert plan.facts.kv_bytes_per_token == 160 * 1024
    assert plan.facts.memory_bytes == 2 * GIB + 262_144 * 160 * 1024


def test_without_a_server_all_cards_count() -> None:
    assert free_memory(GpuReport((CARD, OTHER)), HOST, None) == Free(22 * GIB, "free on GPU 0, 1")


@pytest.mark.parametrize(("held", "on_host"), [(frozenset[str](), False), (frozenset("0"), True)])
def test_a_cache_beside_the_cards_takes_the_hosts_memory(held: frozenset[str], on_host: bool) -> None:
    found = free_memory(GpuReport((CARD,)), HOST, held, on_host=on_host)
    assert found == Free(60 * GIB, "available in the host's memory")


def test_a_gpu_that_shares_the_hosts_memory_has_what_it_can_get_of_that() -> None:
    report = GpuReport(unified_total=128 * GIB, unified_available=50 * GIB)
    assert free_memory(report, HOST, frozenset("0")) == Free(50 * GIB, "free in the memory that GPU and CPU share")


def test_a_card_that_does_not_tell_its_memory_leaves_it_unknown() -> None:
    silent = GpuSample("0", "GPU-a", "RTX", "nvidia", unified=False)
    assert free_memory(GpuReport((silent,)), HOST, None) is None
    assert free_memory(GpuReport(), HostMemory(), None) is None


def test_what_is_said_wins_over_what_is_measured() -> None:
    said = Said(slots=2, kv_bytes_per_token=1024.0, cache_type="q8_0", training_context=8192, memory=GIB)
    logged = replace(told(1000), kv_bytes_per_token=512.0, cache_type_k="f16", cache_type_v="f16", context_train=4096)
    plan = plan_of(said, logged, running(), GpuReport((CARD,)), HOST)
    facts = plan.facts
    assert (facts.slots, facts.planned_slots, plan.slots) == (4, 2, 2)
    assert (facts.kv_bytes_per_token, facts.cache_type_k, facts.context_train) == (1024.0, "q8_0", 8192)
    assert facts.memory_bytes == GIB


def test_the_logs_size_line_tells_the_cache_and_its_types() -> None:
    logged = replace(
        told(1000), kv_bytes_per_token=512.0, cache_type_k="q8_0", cache_type_v="f16", context_train=32_768
    )
    plan = plan_of(Said(), logged, None, None, None)
    facts = plan.facts
    assert (facts.kv_bytes_per_token, facts.cache_type_k, facts.cache_type_v) == (512.0, "q8_0", "f16")
    assert (facts.context_train, facts.memory_bytes) == (32_768, None)
    assert any("equally wide" in note for note in plan.notes)
    assert any("--memory" in note for note in plan.notes)


def test_a_model_file_without_usable_numbers_is_said_with_what_to_do() -> None:
    said = Said(p95=1000, slots=2, model=ModelFile(None, 32_768, "/m.gguf is of a model with recurrent layers"))
    plan = plan_of(said, None, None, None, None)
    assert plan.facts.context_train == 32_768
    assert any("recurrent layers; say --kv-bytes-per-token" in note for note in plan.notes)


def test_layers_with_a_sliding_window_are_said_to_come_on_top() -> None:
    said = Said(p95=1000, slots=2, model=ModelFile(ModelShape("gemma3", 8, 1024, 1024, 40), 131_072))
    assert any("40 layers" in note for note in plan_of(said, None, None, None, None).notes)


def test_without_slots_it_says_how_to_say_them() -> None:
    with pytest.raises(PlanError, match="--slots"):
        plan_of(Said(p95=1000), None, None, None, None)


def test_without_sizes_and_window_it_says_how_to_say_them() -> None:
    with pytest.raises(PlanError, match="--p95"):
        plan_of(Said(slots=2), told(geometry=Geometry()), None, None, None)


def test_the_first_that_is_enough_is_sure_for_the_percentile_and_fits() -> None:
    facts = SizingFacts(3, kv_bytes_per_token=163_840.0, cache_type_k="f16", cache_type_v="f16", memory_bytes=2 * GIB)
    plan = make_plan(None, facts, RequestSizeFacts(p95=6100, largest=12_288), ())
    assert plan.first is not None
    chosen = plan.configurations[plan.first]
    assert (chosen.option, chosen.cache_type, chosen.guaranteed) == ("capped", "q8_0", 6144)
    assert client_settings(plan).window == 6144


def test_where_none_fits_there_is_no_first_one() -> None:
    facts = SizingFacts(3, kv_bytes_per_token=163_840.0, cache_type_k="f16", cache_type_v="f16", memory_bytes=1 << 20)
    plan = make_plan(None, facts, RequestSizeFacts(p95=6100), ())
    assert plan.first is None
    # The least: one slot of 6,144 tokens at q8_0, 34/32 bytes a number in place of 2.
    least = 6144 * 163_840 * 34 / 64 / 2**20
    assert plan.why_none is not None
    assert f"the cache takes {least:.0f} MiB at least, and there are 1.00 MiB for it" in plan.why_none
    unmeasured = make_plan(None, facts, RequestSizeFacts(), ())
    assert unmeasured.first is None
    assert "say --p95" in (unmeasured.why_none or "")


def test_requests_longer_than_the_training_context_have_no_configuration_that_is_enough() -> None:
    facts = SizingFacts(slots=4, kv_bytes_per_token=100.0, memory_bytes=1 << 34, context_train=32_768)
    enough = make_plan(None, facts, RequestSizeFacts(p95=32_768), ())
    assert (enough.first is not None, enough.why_none) == (True, None)
    plan = make_plan(None, facts, RequestSizeFacts(p95=50_000), ())
    assert plan.first is None
    assert plan.why_none is not None
    assert "95 % of them hold up to 50,000 tokens, and the model was trained on no more than 32,768" in plan.why_none
    assert "Have the clients keep to no more than 32,768 tokens" in plan.why_none
    text = io.StringIO()
    print_plan(plan, Console(file=text, width=80))
    assert plan.why_none in " ".join(text.getvalue().split())
    assert plan.why_none in plan_markdown(plan)
    assert json.loads(plan_json(plan))["why_none_is_enough"] == plan.why_none


def test_an_overcommitted_pool_is_never_the_first_one() -> None:
    plan: Plan = plan_of(Said(), told(100), None, None, None)
    assert plan.configurations[0].overcommitted
    assert plan.first is not None
    assert not plan.configurations[plan.first].overcommitted


def test_clients_that_are_told_both_get_a_quarter_for_the_answer() -> None:
    plan = make_plan(None, SizingFacts(2), RequestSizeFacts(p95=131_072), ())
    settings = {name.split(",")[0]: lines for name, lines in client_settings(plan).settings}
    assert settings["OpenCode"] == ('"limit": {"context": 131072, "output": 32768}',)
    assert settings["Codex"] == ("model_context_window = 131072", "model_auto_compact_token_limit = 111411")


def test_of_several_servers_one_must_be_chosen() -> None:
    servers = [told(100, name="a"), told(200, name="b"), told(name="c")]
    assert only_server(servers, "b").name == "b"
    assert only_server([servers[0], servers[2]], None).name == "a"
    with pytest.raises(NoServerError, match=r"--server: a, b$"):
        only_server(servers, None)
    with pytest.raises(NoServerError, match="no server 'd': a, b, c"):
        only_server(servers, "d")
    with pytest.raises(NoServerError, match="no request of any server has ended"):
        only_server(servers[2:], None)
    with pytest.raises(NoServerError, match="no server's requests"):
        only_server([], None)
