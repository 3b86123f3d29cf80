"""What `kvexporter check` says of one server: pure, from what was tried."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kvexporter.facts import Endpoint, PollReason
from kvexporter.geometry import PoolShape
from kvexporter.llama.model_shape import ModelShape
from kvexporter.llama.props import Props
from kvexporter.reports.findings import Finding, Level
from kvexporter.reports.poll_words import REASONS
from kvexporter.reports.pool_words import pool_words
from kvexporter.sources.journal_health import JournalHealth
from kvexporter.sources.llama_api import ApiAnswer
from kvexporter.sources.log_selection import LogFileSelection, StdinSelection
from kvexporter.targets import Target

_LOOPBACK = ("localhost", "127.", "::1", "0.0.0.0", "::")  # noqa: S104  (compared, not bound)

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
    dropped_lines: int = 0
    """Lines of its log that journald says it dropped."""
    gaps: int = 0
    """Times that entries of its journal were gone before the exporter read them, as far as its store can be read."""
    shape: tuple[ModelShape | None, str | None] = (None, None)
    """What the header of its model's file tells, or why it does not; neither where no file is known."""


def common_findings(servers: Sequence[ServerFacts]) -> tuple[list[Finding], frozenset[str]]:
    """What stands in the way of several servers' logs alike: said once; and those texts, not to be said again."""
    levels: dict[str, list[Level]] = {}
    for facts in servers:
        if facts.journal is not None:
            for text in facts.journal.problems:
                levels.setdefault(text, []).append("problem")
            for text in facts.journal.notes:
                levels.setdefault(text, []).append("warning")
    common = {text: "problem" if "problem" in found else "warning" for text, found in levels.items() if len(found) > 1}
    return [
        Finding(
            "problem" if level == "problem" else "warning",
            _part(text),
            f"{text} (the logs of {len(levels[text])} servers)",
        )
        for text, level in common.items()
    ], frozenset(common)


def _part(text: str) -> str:
    return "permissions" if text.startswith("no permission") else "journal"


def server_findings(facts: ServerFacts, told: Collection[str] = ()) -> list[Finding]:
    """Say what of a server can be read, what not, and what to do. `told`: what was said for all servers together."""
    name = facts.target.name
    parts = (_process(facts), _journal(facts, told), _api(facts), _pool(facts))
    return [Finding(level, name, text, remedy) for part in parts for level, text, remedy in part]


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


def _journal(facts: ServerFacts, told: Collection[str]) -> _Lines:
    target = facts.target
    if target.child_of is not None:
        yield "ok", f"its log is part of {target.child_of}'s, the router that started it", ""
        return
    if facts.journal is None:
        yield (
            "warning",
            "its log is not in a journal: requests that died for want of context are not counted",
            "run kvexporter on the server's own host"
            if _elsewhere(target)
            else "run it as a systemd service, or name its entries with journal.matches or its file with log.file",
        )
        return
    for problem in facts.journal.problems:
        if problem in told:
            yield "warning", f"its log cannot be read: see {_part(problem)}", ""
        else:
            yield "problem", f"its log: {problem}", ""
    for note in facts.journal.notes:
        if note not in told:
            yield "warning", f"its log: {note}", ""
    if facts.journal.ok and facts.journal.has_entries and facts.journal.has_own_entries is False:
        yield (
            "problem",
            f"the journal has what systemd says of {target.selection}, but nothing of llama-server itself: requests "
            "that died for want of context are not counted",
            "have it log to the journal: without StandardOutput=, --log-file and --log-disable; or name its file with "
            "log.file",
        )
    elif facts.journal.ok and facts.journal.has_entries:
        detail = f", {facts.journal.detail}" if facts.journal.detail else ""
        yield "ok", f"its log can be read ({target.selection}{detail})", ""
    elif isinstance(target.selection, StdinSelection):
        yield "ok", "its log comes by standard input, which only the running exporter can read", ""
    if isinstance(target.selection, LogFileSelection) and target.options is not None and target.options.log_file:
        yield (
            "warning",
            "it empties its --log-file at each start: what was not read by then is not counted",
            "append to the log instead: StandardOutput=append:… and StandardError=inherit, or 2>> in a script",
        )
    if facts.dropped_lines:
        yield (
            "warning",
            f"journald dropped {facts.dropped_lines} lines of it above its rate limit: counts from it are lower bounds",
            "raise LogRateLimitBurst= of its unit, or set LogRateLimitIntervalSec=0 there",
        )
    if facts.gaps:
        yield (
            "warning",
            f"entries of it were gone before they were read, {'once' if facts.gaps == 1 else f'{facts.gaps} times'}: "
            "counts from it are lower bounds",
            "keep rotated files for longer, in the log's own folder"
            if isinstance(target.selection, LogFileSelection)
            else "give the journal more room: SystemMaxUse= (RuntimeMaxUse= in memory) in journald.conf",
        )
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
        text, remedy = REASONS[health.reason]
        if health.reason == "refused" and _elsewhere(target):
            remedy = "start it with --host: by default it listens on its own host only; or correct its url"
        yield "problem", f"{where} {text}{_detail(health)}", remedy
        return
    yield "ok", f"{where} {'is loading its model' if health.reason else 'answers'}", ""
    if facts.props is not None and facts.props.sleeping:
        yield "ok", "it sleeps, and is not woken to look further", ""
    elif health.reason is None:
        yield from _endpoints(facts)


def _elsewhere(target: Target) -> bool:
    """The server seems to run on another host."""
    if target.process is not None or target.unit is not None or target.api is None:
        return False
    return not (urlsplit(target.api.base_url).hostname or "").startswith(_LOOPBACK)


def _pool(facts: ServerFacts) -> _Lines:
    """How its pool is cut, by its command line and what it answers."""
    target, props = facts.target, facts.props
    if (target.options is not None and target.options.router) or (props is not None and props.router):
        return
    shape = PoolShape(target.geometry)
    shape.options = target.options
    if props is not None:
        shape.api(props.total_slots, props.slot_context)
    words = pool_words(shape.geometry())
    if words is not None:
        # The model's training context may cap the slots: without an answer it is not known.
        source = "" if props is not None else "as it was started: "
        yield "warning" if words.overcommitted else "ok", f"{source}{words.text}", words.remedy


def _endpoints(facts: ServerFacts) -> _Lines:
    offers = facts.props
    refused = _offered(facts, "props", None)
    if refused in ("unsupported", "loading"):
        refused = None
    if refused is not None:
        text, remedy = REASONS[refused]
        yield "problem", f"/props {text}{_detail(facts.answers['props'])}", remedy
    elif facts.target.options is not None and facts.target.options.api_key and _sends_no_key(facts):
        yield "problem", "it was started with an API key, and none is sent", REASONS["unauthorized"][1]
    slots = _offered(facts, "slots", offers.endpoint_slots if offers is not None else None)
    if slots == "unsupported":
        yield (
            "warning",
            "it does not offer /slots: between the lines of its log the slots' tokens are estimates",
            "start it without --no-slots (older builds: with --slots)",
        )
    elif slots is not None and slots != refused:
        text, remedy = REASONS[slots]
        yield "problem", f"/slots {text}", remedy
    metrics = _offered(facts, "metrics", offers.endpoint_metrics if offers is not None else None)
    if metrics == "unsupported":
        yield (
            "warning",
            "it does not offer /metrics: its own totals and waiting requests are not shown",
            "start it with --metrics",
        )
    elif metrics is not None and metrics != slots:
        text, remedy = REASONS[metrics]
        yield "problem", f"/metrics {text}", remedy
    if facts.target.options is None and facts.target.may_sleep is None and offers is not None:
        if offers.sleeping is None:
            return  # a build that cannot sleep
        yield (
            "warning",
            "it may have been started with --sleep-idle-seconds, so it is asked for its slots only while it works",
            "say may_sleep: false in the configuration if it never sleeps",
        )


def _sends_no_key(facts: ServerFacts) -> bool:
    """Nor has the server been asked for its slots, which would have told what it thinks of that."""
    api = facts.target.api
    return api is not None and api.api_key_file is None and "slots" not in facts.answers


def _offered(facts: ServerFacts, endpoint: Endpoint, told: bool | None) -> PollReason | None:
    """Why an endpoint cannot be used, None if it can or nothing is known."""
    if told is False:
        return "unsupported"
    answer = facts.answers.get(endpoint)
    return answer.reason if answer is not None else None


def _detail(answer: ApiAnswer) -> str:
    return f" ({answer.detail})" if answer.detail else ""
