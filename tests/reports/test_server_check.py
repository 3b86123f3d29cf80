"""What the check says of one server."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from kvexporter.facts import Endpoint, FoundProcess, PollReason
from kvexporter.llama.launch import LaunchOptions
from kvexporter.llama.props import Props
from kvexporter.reports.findings import exit_status
from kvexporter.reports.server_check import ServerFacts, common_findings, server_findings
from kvexporter.sources.journal_health import JournalHealth
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.llama_api import ApiAnswer, ApiTarget
from kvexporter.targets import Target

GOOD_JOURNAL = JournalHealth(files=1, has_entries=True)
TARGET = Target(
    "main",
    unit="llama.service",
    selection=JournalSelection(unit="llama.service"),
    api=ApiTarget("http://127.0.0.1:8080"),
    process=FoundProcess(42, 1.0, ("llama-server",)),
    options=LaunchOptions(context=16384, parallel=4),
    port=8080,
)
REMOTE = Target("far", api=ApiTarget("http://gpu.example:8080"))


def props(**known: bool | None) -> Props:
    facts: dict[str, bool | None] = {"sleeping": False, "endpoint_slots": None, "endpoint_metrics": None} | known
    return Props(total_slots=4, slot_context=4096, model="m", build="b1", **facts)  # type: ignore[arg-type]


def answer(endpoint: Endpoint, reason: PollReason | None = None) -> ApiAnswer:
    return ApiAnswer(endpoint, 1.0, 1.1, 200 if reason is None else 500, b"", reason)


def answers(**reasons: PollReason | None) -> dict[Endpoint, ApiAnswer]:
    endpoints: tuple[Endpoint, ...] = ("health", "props", "slots", "metrics")
    return {endpoint: answer(endpoint, reasons.get(endpoint)) for endpoint in endpoints}


def texts(facts: ServerFacts, level: str) -> list[str]:
    return [f"{f.text} → {f.remedy}" for f in server_findings(facts) if f.level == level]


def test_a_server_of_which_all_can_be_read_is_all_ok() -> None:
    found = server_findings(ServerFacts(TARGET, GOOD_JOURNAL, answers(), props()))
    assert {finding.level for finding in found} == {"ok"}
    assert [finding.text for finding in found] == [
        "process 42, unit llama.service",
        "its log can be read (llama.service)",
        "http://127.0.0.1:8080 answers",
        "4 slots of 4,096 tokens, each with a buffer of its own: the pool cannot run out",
    ]


@pytest.mark.parametrize("reason", [reason for reason in get_args(PollReason) if reason != "loading"])
def test_a_server_that_does_not_answer_is_a_problem_with_words_and_a_remedy(reason: PollReason) -> None:
    facts = ServerFacts(TARGET, GOOD_JOURNAL, answers(health=reason))
    (problem,) = (finding for finding in server_findings(facts) if finding.level == "problem")
    assert problem.text.startswith("http://127.0.0.1:8080 ")
    assert problem.remedy or reason == "unsupported"


def test_a_loading_server_is_no_problem() -> None:
    facts = ServerFacts(TARGET, GOOD_JOURNAL, answers(health="loading"))
    assert "http://127.0.0.1:8080 is loading its model → " in texts(facts, "ok")
    assert exit_status(server_findings(facts)) == 0


def test_a_sleeping_server_is_said_to_sleep() -> None:
    facts = ServerFacts(TARGET, GOOD_JOURNAL, {"health": answer("health")}, props(sleeping=True))
    assert any("sleeps" in text for text in texts(facts, "ok"))


def test_missing_endpoints_are_warnings_that_name_the_option() -> None:
    by_status = ServerFacts(TARGET, GOOD_JOURNAL, answers(slots="unsupported", metrics="unsupported"), props())
    by_props = ServerFacts(
        TARGET, GOOD_JOURNAL, {"health": answer("health")}, props(endpoint_slots=False, endpoint_metrics=False)
    )
    for facts in (by_status, by_props):
        slots, metrics = texts(facts, "warning")
        assert "--no-slots" in slots
        assert metrics.endswith("→ start it with --metrics")


def test_a_demanded_key_is_one_problem_and_names_the_configuration_key() -> None:
    facts = ServerFacts(TARGET, GOOD_JOURNAL, answers(slots="unauthorized", metrics="unauthorized"), props())
    (problem,) = texts(facts, "problem")
    assert problem.startswith("/slots demands an API key → ")
    assert "api_key_file" in problem


def test_an_unreadable_journal_is_a_problem_in_its_own_words() -> None:
    health = JournalHealth(("no permission to read /var/log/journal: join the group",))
    facts = ServerFacts(TARGET, health, answers(), props())
    assert texts(facts, "problem") == ["its log: no permission to read /var/log/journal: join the group → "]


def test_an_empty_journal_is_a_warning() -> None:
    health = JournalHealth((), ("the journal has no entries of llama.service",), 1, False)
    facts = ServerFacts(TARGET, health, answers(), props())
    assert texts(facts, "warning") == ["its log: the journal has no entries of llama.service → "]


def test_a_server_without_a_journal_is_a_warning_with_what_helps_there() -> None:
    bare = Target("bare", api=TARGET.api, process=TARGET.process, options=TARGET.options)
    for target, remedy in ((bare, "journal.matches"), (REMOTE, "→ run kvexporter on the server's own host")):
        found = texts(ServerFacts(target, None, answers(), props()), "warning")
        assert [text for text in found if "its log is not in a journal" in text and remedy in text]


def test_a_server_elsewhere_that_refuses_may_listen_on_its_own_host_only() -> None:
    (problem,) = texts(ServerFacts(REMOTE, None, answers(health="refused")), "problem")
    assert "--host" in problem


def test_what_hides_all_logs_alike_is_said_once() -> None:
    denied = JournalHealth(("no permission to read /var/log/journal: join the group",))
    servers = [ServerFacts(replace(TARGET, name=name), denied, answers(), props()) for name in ("a", "b")]
    common, told = common_findings(servers)
    assert [(f.level, f.subject) for f in common] == [("problem", "permissions")]
    for facts in servers:
        found = server_findings(facts, told)
        assert [f.text for f in found if f.level != "ok"] == ["its log cannot be read: see permissions"]
    assert common_findings(servers[:1]) == ([], frozenset())


def test_an_overcommitted_pool_is_a_warning_with_the_window_that_is_sure() -> None:
    target = replace(TARGET, options=LaunchOptions(context=262144, parallel=4, unified=True))
    told = Props(
        total_slots=4,
        slot_context=262144,
        model="m",
        build="b1",
        sleeping=False,
        endpoint_slots=None,
        endpoint_metrics=None,
    )
    (warning,) = texts(ServerFacts(target, GOOD_JOURNAL, answers(), told), "warning")
    assert "overcommitted 4.00 times" in warning
    assert "a window of 65,536 tokens" in warning


def test_the_pool_of_a_server_that_does_not_answer_is_told_by_its_command_line() -> None:
    target = replace(TARGET, options=LaunchOptions(context=262144, parallel=4, unified=True))
    assert any("as it was started: 4 slots" in text for text in texts(ServerFacts(target, GOOD_JOURNAL), "warning"))


@pytest.mark.parametrize("reason", ["unauthorized", "key_file", "malformed"])
def test_properties_that_are_refused_are_a_problem(reason: PollReason) -> None:
    found = {endpoint: answer(endpoint, reason if endpoint == "props" else None) for endpoint in ("health", "props")}
    (problem,) = texts(ServerFacts(TARGET, GOOD_JOURNAL, found), "problem")  # type: ignore[arg-type]
    assert problem.startswith("/props ")


def test_a_server_with_a_key_of_which_none_is_known_is_a_problem_even_where_nothing_was_asked() -> None:
    target = replace(TARGET, options=replace(TARGET.options or LaunchOptions(), api_key=True))
    found = {"health": answer("health"), "props": answer("props")}
    (problem,) = texts(ServerFacts(target, GOOD_JOURNAL, found, props()), "problem")  # type: ignore[arg-type]
    assert "api_key_file" in problem


def test_a_unit_that_does_not_run_is_a_problem() -> None:
    target = Target("main", unit="llama.service", selection=TARGET.selection)
    problems = texts(ServerFacts(target, GOOD_JOURNAL), "problem")
    assert problems == ["no llama-server process of llama.service was found → systemctl status llama.service"]


@pytest.mark.parametrize(("verbosity", "warned"), [(None, False), (0, True), (2, True), (3, False), (5, False)])
def test_a_log_without_launches_is_a_warning(verbosity: int | None, warned: bool) -> None:
    target = Target("a", selection=TARGET.selection, options=LaunchOptions(verbosity=verbosity))
    facts = ServerFacts(target, GOOD_JOURNAL)
    assert any("verbosity" in text for text in texts(facts, "warning")) == warned


@pytest.mark.parametrize(("journal", "warned"), [(GOOD_JOURNAL, False), (None, True)])
def test_an_unreadable_environment_matters_only_without_a_log(journal: JournalHealth | None, warned: bool) -> None:
    target = Target("a", selection=TARGET.selection, options=LaunchOptions(environment_known=False))
    assert any("LLAMA_ARG_" in text for text in texts(ServerFacts(target, journal), "warning")) == warned


@pytest.mark.parametrize(
    ("may_sleep", "sleeping", "warned"), [(None, False, True), (None, None, False), (False, False, False)]
)
def test_a_remote_server_that_may_sleep_is_a_warning_that_names_the_configuration_key(
    may_sleep: bool | None, sleeping: bool | None, warned: bool
) -> None:
    target = Target("far", api=REMOTE.api, may_sleep=may_sleep)
    facts = ServerFacts(target, GOOD_JOURNAL, answers(), props(sleeping=sleeping))
    assert any("may_sleep: false" in text for text in texts(facts, "warning")) == warned


def test_a_routers_child_has_its_log_in_the_routers() -> None:
    target = Target("router:8081", child_of="router", api=TARGET.api)
    facts = ServerFacts(target, None, answers(), props(sleeping=None))
    assert texts(facts, "warning") == []
    assert any("router" in text for text in texts(facts, "ok"))


def test_lines_that_journald_dropped_make_the_counts_lower_bounds() -> None:
    facts = ServerFacts(TARGET, GOOD_JOURNAL, answers(), props(), dropped_lines=1234)
    (warning,) = texts(facts, "warning")
    assert "dropped 1234 lines" in warning
    assert "lower bounds" in warning
    assert "LogRateLimitBurst=" in warning


def test_entries_that_were_gone_before_they_were_read_make_the_counts_lower_bounds() -> None:
    facts = ServerFacts(TARGET, GOOD_JOURNAL, answers(), props(), gaps=2)
    (warning,) = texts(facts, "warning")
    assert "2 times: counts from it are lower bounds" in warning
    assert "SystemMaxUse=" in warning
