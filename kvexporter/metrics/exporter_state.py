"""Definitions: the exporter itself."""

from __future__ import annotations

import platform

import kvexporter
from kvexporter.metrics.definition import MetricSection, Points, own
from kvexporter.snapshot import ExporterSnapshot

_SELF = "kvexporter itself"
JOURNAL_RESULTS = ("matched", "ignored", "continued", "malformed")


def _build(_: ExporterSnapshot) -> Points:
    return (((kvexporter.__version__, platform.python_version()), 1),)


def _journal_lines(snapshot: ExporterSnapshot) -> Points:
    if not snapshot.journal_lines:
        return ()
    results = dict.fromkeys(JOURNAL_RESULTS, 0) | snapshot.journal_lines
    return [((result,), count) for result, count in results.items()]


def _suppressed(snapshot: ExporterSnapshot) -> Points:
    return [((server.name,), server.counters.suppressed_lines) for server in snapshot.servers if server.has_log]


def _poll_failures(snapshot: ExporterSnapshot) -> Points:
    return [((server.name, *key), count) for server in snapshot.servers for key, count in server.poll_failures.items()]


def _last_poll(snapshot: ExporterSnapshot) -> Points:
    return [((server.name, endpoint), at) for server in snapshot.servers for endpoint, at in server.last_poll.items()]


def _by_name(counts: dict[str, int]) -> Points:
    return [((name,), count) for name, count in counts.items()]


def _maybe(value: float | None) -> Points:
    return () if value is None else (((), value),)


EXPORTER = MetricSection(
    "Exporter",
    "kvexporter's own state. It also exports `python_info` and the usual `process_…` metrics of its own process.",
    (
        own(
            "kvexporter_build_info",
            "info",
            _build,
            "The exporter's version and the Python it runs on, as labels; the value is 1.",
            unit="",
            labels=("version", "pythonversion"),
            source=_SELF,
            absent="",
        ),
        own(
            "kvexporter_collector_success",
            "gauge",
            lambda snapshot: [((name,), int(status.success)) for name, status in snapshot.collectors.items()],
            "Whether this source could be read in its last round: 1, or 0. `kvexporter check` says why not.",
            unit="boolean",
            labels=("collector",),
            source=_SELF,
            absent="for sources that are not in use",
        ),
        own(
            "kvexporter_collector_duration_seconds",
            "gauge",
            lambda snapshot: [((name,), status.duration) for name, status in snapshot.collectors.items()],
            "Time that this source's last round took.",
            unit="seconds",
            labels=("collector",),
            source=_SELF,
            absent="for sources that are not in use",
        ),
        own(
            "kvexporter_journal_lines_total",
            "counter",
            _journal_lines,
            "Log lines read, from journals, files or standard input. matched: says something that is used; ignored: "
            "says nothing; continued: a later piece of a split line; malformed: a journal's entry without a message.",
            unit="lines",
            labels=("result",),
            source="the servers' logs",
            absent="while no log is read",
        ),
        own(
            "kvexporter_journal_lag_seconds",
            "gauge",
            lambda snapshot: _maybe(snapshot.journal_lag),
            "Time between the latest log line, in a journal, a file or standard input, and the moment it was read; 0 "
            "again once a backlog has been read to its end. journald alone delays a lone line by up to half a second.",
            unit="seconds",
            source="the servers' logs",
            absent="before the first line",
        ),
        own(
            "kvexporter_journal_suppressed_lines_total",
            "counter",
            _suppressed,
            "Lines of the server that journald dropped above its rate limit. Above 0, all counts from this server's "
            "log are lower bounds: raise LogRateLimitBurst= of its unit.",
            unit="lines",
            labels=("server",),
            source="journald's own messages in the journal",
            absent="where the server's log cannot be read, and while what it holds from before is still being read",
        ),
        own(
            "kvexporter_journal_gaps_total",
            "counter",
            lambda snapshot: (((), snapshot.journal_gaps),),
            "Times that lines were gone before they were read, from a journal (vacuumed, damaged) or a file (emptied, "
            "deleted), as after a long stop of the exporter. Above 0, counts from logs are lower bounds.",
            unit="gaps",
            source="the servers' logs",
            absent="",
        ),
        own(
            "kvexporter_poll_failures_total",
            "counter",
            _poll_failures,
            "Questions to the server that got no usable answer, by endpoint and reason.",
            unit="requests",
            labels=("server", "endpoint", "reason"),
            source=_SELF,
            absent="before the first failure of that kind",
        ),
        own(
            "kvexporter_last_poll_timestamp_seconds",
            "gauge",
            _last_poll,
            "When the endpoint last gave a usable answer, in unix seconds. An idle server is not asked for its slots, "
            "so that it can go to sleep.",
            unit="seconds",
            labels=("server", "endpoint"),
            source=_SELF,
            absent="before the first answer",
        ),
        own(
            "kvexporter_config_last_reload_successful",
            "gauge",
            lambda snapshot: _maybe(
                None if snapshot.config_reload_successful is None else int(snapshot.config_reload_successful)
            ),
            "Whether the last attempt to read the configuration succeeded: 1, or 0, when the old one stays in force.",
            unit="boolean",
            source=_SELF,
            absent="without a configuration file",
        ),
        own(
            "kvexporter_config_last_reload_success_timestamp_seconds",
            "gauge",
            lambda snapshot: _maybe(snapshot.config_reload_time),
            "When the configuration was last read with success, in unix seconds.",
            unit="seconds",
            source=_SELF,
            absent="without a configuration file",
        ),
        own(
            "kvexporter_dropped_total",
            "counter",
            lambda snapshot: [((kind,), count) for kind, count in snapshot.dropped.items()],
            "Times that something was left out because there was too much of it. server: more than 200 servers; child: "
            "a line of a router's child beyond 64, which then counts as the router's own; slot: more than 1024 slots.",
            unit="times",
            labels=("kind",),
            source=_SELF,
            absent="",
        ),
        own(
            "kvexporter_alerts_sent_total",
            "counter",
            lambda snapshot: _by_name(snapshot.alerts_sent),
            "Alerts that this Alertmanager took, straight from here; one that stays on is sent again every 10 s.",
            unit="alerts",
            labels=("alertmanager",),
            source=_SELF,
            absent="without `alerting` in the configuration",
        ),
        own(
            "kvexporter_alert_send_failures_total",
            "counter",
            lambda snapshot: _by_name(snapshot.alert_send_failures),
            "Posts of alerts to this Alertmanager that failed; each is tried again.",
            unit="requests",
            labels=("alertmanager",),
            source=_SELF,
            absent="without `alerting` in the configuration",
        ),
        own(
            "kvexporter_webhook_alerts_sent_total",
            "counter",
            lambda snapshot: _by_name(snapshot.webhook_alerts_sent),
            "Beginnings and ends of alerts, and further incidents, that this webhook's receiver took.",
            unit="alerts",
            labels=("webhook",),
            source=_SELF,
            absent="without `alerting` in the configuration",
        ),
        own(
            "kvexporter_webhook_failures_total",
            "counter",
            lambda snapshot: _by_name(snapshot.webhook_failures),
            "Posts to this webhook's receiver that failed; each is tried again.",
            unit="requests",
            labels=("webhook",),
            source=_SELF,
            absent="without `alerting` in the configuration",
        ),
        own(
            "kvexporter_store_errors_total",
            "counter",
            lambda snapshot: (((), snapshot.store_errors),),
            "Failed attempts to write counters and positions to the state directory.",
            unit="errors",
            source=_SELF,
            absent="",
        ),
    ),
)
