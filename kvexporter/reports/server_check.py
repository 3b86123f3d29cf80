"""What `kvexporter check` says of one server: pure, from what was tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kvexporter.facts import Endpoint, PollReason
from kvexporter.llama.props import Props
from kvexporter.reports.findings import Finding, Level
from kvexporter.sources.journal_health import JournalHealth
from kvexporter.sources.llama_api import ApiAnswer
from kvexporter.targets import Target

LAUNCH_VERBOSITY = 3
"""Below it a server logs neither launches nor releases."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What was tried on one server."""

    target: Target
    journal: JournalHealth | None = None
    """None: it has no journal that could be read."""
    answers: Mapping[Endpoint, ApiAnswer] = field(default_factory=dict)
    props: Props | None = None
    """None: not asked, not answered, or not understood."""


_REASONS: dict[PollReason, tuple[str, str]] = {
    "unauthorized": (
        "demands an API key",
        "give the path of a file with the key as api_key_file of this server in the configuration",
    ),
    "not_found": ("has no such path", "check the url's port and its base path (--api-prefix of the server)"),
    "unsupported": ("has this endpoint turned off", ""),
    "loading": ("is loading its model", ""),
    "http_error": ("answers with an error", "look at the server's own log"),
    "redirect": ("redirects, which is not followed", "give the address that it redirects to as url"),
    "timeout": ("did not answer in time", "is it hung? Older builds answer only between two batches"),
    "refused": ("is not listening", "start the server, or correct its url"),
    "connection": ("could not be reached", "check the url and the network between"),
    "too_large": ("answers with more than 4 MiB", "is it a llama-server?"),
    "malformed": ("does not answer like a llama-server", "check the url: something else may be listening there"),
    "tls": ("could not be reached over TLS", "give its certificate authority as tls.ca_file"),
    "key_file": ("demands an API key that cannot be read", "let kvexporter's user read the api_key_file"),
}


def server_findings(facts: ServerFacts) -> list[Finding]:
    """Say what of a server can be read, what not, and what to do."""
    name = facts.target.name
    return [
        Finding(level, name, text, remedy) for part in (_process, _journal, _api) for level, text, remedy in part(facts)
    ]


_Lines = Iterator[tuple[Level, str, str]]


def _process(facts: ServerFacts) -> _Lines:
    target = facts.target
    if target.process is not None:
        unit = f", unit {target.unit}" if target.unit is not None else ""
        yield "ok", f"process {target.process.pid}{unit}", ""
    elif target.unit is not None:
        yield "problem", f"no llama-server process of {target.unit} was found", f"systemctl status {target.unit}"
    options = target.options
    if options is None:
        return
    if options.unknown:
        yield "warning", f"options that cannot be read: {', '.join(options.unknown)}", "check its command line"
    if not options.environment_known and not _log_is_read(facts):
        yield (
            "warning",
            "its environment cannot be read, so options given as LLAMA_ARG_… are not seen",
            "give them on its command line, or make its log readable",
        )


def _log_is_read(facts: ServerFacts) -> bool:
    return facts.journal is not None and facts.journal.ok


def _journal(facts: ServerFacts) -> _Lines:
    target = facts.target
    if target.child_of is not None:
        yield "ok", f"its log is part of {target.child_of}'s, the router that started it", ""
        return
    if facts.journal is None:
        yield (
            "warning",
            "its log is not in a journal: requests that died for want of context are not counted",
            "run it as a systemd service, or name its entries with journal.matches",
        )
        return
    for problem in facts.journal.problems:
        yield "problem", f"its log: {problem}", ""
    for note in facts.journal.notes:
        yield "warning", f"its log: {note}", ""
    if facts.journal.ok and facts.journal.has_entries:
        yield "ok", f"its log can be read ({target.selection})", ""
    verbosity = target.options.verbosity if target.options is not None else None
    if verbosity is not None and verbosity < LAUNCH_VERBOSITY:
        yield (
            "warning",
            f"it logs at verbosity {verbosity}: neither launches nor releases of requests are in its log",
            f"start it with --verbosity {LAUNCH_VERBOSITY} or without that option",
        )


def _api(facts: ServerFacts) -> _Lines:
    target = facts.target
    if target.api is None:
        if target.child_of is None:
            yield "warning", "its address is not known", "give its url in the configuration"
        return
    where = target.api.base_url
    health = facts.answers.get("health")
    if health is None:
        return
    if health.reason is not None and health.reason != "loading":
        text, remedy = _REASONS[health.reason]
        yield "problem", f"{where} {text}{_detail(health)}", remedy
        return
    yield "ok", f"{where} {'is loading its model' if health.reason else 'answers'}", ""
    if facts.props is not None and facts.props.sleeping:
        yield "ok", "it sleeps, and is not woken to look further", ""
    elif health.reason is None:
        yield from _endpoints(facts)


def _endpoints(facts: ServerFacts) -> _Lines:
    offers = facts.props
    slots = _offered(facts, "slots", offers.endpoint_slots if offers is not None else None)
    if slots == "unsupported":
        yield (
            "warning",
            "it does not offer /slots: between the lines of its log the slots' tokens are estimates",
            "start it without --no-slots (older builds: with --slots)",
        )
    elif slots is not None:
        text, remedy = _REASONS[slots]
        yield "problem", f"/slots {text}", remedy
    metrics = _offered(facts, "metrics", offers.endpoint_metrics if offers is not None else None)
    if metrics == "unsupported":
        yield (
            "warning",
            "it does not offer /metrics: its own totals and waiting requests are not shown",
            "start it with --metrics",
        )
    elif metrics is not None and metrics != slots:
        text, remedy = _REASONS[metrics]
        yield "problem", f"/metrics {text}", remedy
    if facts.target.options is None and facts.target.may_sleep is None and offers is not None:
        if offers.sleeping is None:
            return  # a build that cannot sleep
        yield (
            "warning",
            "it may have been started with --sleep-idle-seconds, so it is asked for its slots only while it works",
            "say may_sleep: false in the configuration if it never sleeps",
        )


def _offered(facts: ServerFacts, endpoint: Endpoint, told: bool | None) -> PollReason | None:
    """Why an endpoint cannot be used, None if it can or nothing is known."""
    if told is False:
        return "unsupported"
    answer = facts.answers.get(endpoint)
    return answer.reason if answer is not None else None


def _detail(answer: ApiAnswer) -> str:
    return f" ({answer.detail})" if answer.detail else ""
