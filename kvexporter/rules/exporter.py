"""Rules on the exporter itself: whether what it says can be relied on."""

from __future__ import annotations

from kvexporter.rules import thresholds as limit
from kvexporter.rules.links import FLEET_DASHBOARD
from kvexporter.rules.rule import HOST_LABELS, AlertRule, RuleGroup, of, of_host, of_server
from kvexporter.rules.spans import in_words, span

JOB = "kvexporter"
"""The job of kvexporter's scrapes in prometheus.yml: only a job's name can tell that it is gone altogether."""

DOWN = AlertRule(
    name="KvexporterDown",
    severity="page",
    when=f"Prometheus has had no answer from kvexporter for {in_words(limit.EXPORTER_DOWN_FOR)}, or has no target of "
    f"the job `{JOB}`.",
    expr=f"""\
{of_host(f'up{{job="{JOB}"}}')} == 0
or
absent(up{{job="{JOB}"}})""",
    summary="kvexporter does not answer",
    description=(
        "Prometheus gets nothing from kvexporter: no other alert on its llama-servers can fire.",
        "The target is {target}.",
        "First: `systemctl status kvexporter` on the host, and the targets' page of Prometheus.",
    ),
    dashboard=FLEET_DASHBOARD,
    labels=HOST_LABELS,
    hold=limit.EXPORTER_DOWN_FOR,
)

JOURNAL = AlertRule(
    name="KvexporterJournalNotRead",
    severity="warning",
    when="A server's log (journal or file) cannot be read, or lines are read more than "
    f"{in_words(limit.JOURNAL_LAG_SECONDS)} late, for {in_words(limit.JOURNAL_FOR)}.",
    expr=f"""\
{of_host('kvexporter_collector_success{collector="journal"}')} == 0
or
{of_host("kvexporter_journal_lag_seconds")} > {limit.JOURNAL_LAG_SECONDS}""",
    summary="{instance}: kvexporter does not get the servers' logs",
    description=(
        "kvexporter on {instance} cannot read a server's log (journal or file) or is far behind: incidents are counted "
        "late or not at all, and prompts that are still to come are not known.",
        "It reads lines {lag} after they were written.",
        "First: `kvexporter check` as the service's user says what is missing: of a journal most often the group "
        "systemd-journal, of a file the right to read it.",
    ),
    dashboard=FLEET_DASHBOARD,
    labels=HOST_LABELS,
    hold=limit.JOURNAL_FOR,
)

COLLECTOR = AlertRule(
    name="KvexporterCollectorFailing",
    severity="warning",
    when=f"A source could not be read for {in_words(limit.COLLECTOR_FOR)}. Not the GPU, which many hosts do not have, "
    f"nor the logs, which have their own alert.",
    expr=of((*HOST_LABELS, "collector"), 'kvexporter_collector_success{collector!="gpu",collector!="journal"}')
    + " == 0",
    summary="{instance}: kvexporter's collector {collector} fails",
    description=(
        "kvexporter on {instance} cannot read its source {collector}: the series that come from it are missing or old.",
        "First: `kvexporter check` on the host says why.",
    ),
    dashboard=FLEET_DASHBOARD,
    labels=(*HOST_LABELS, "collector"),
    hold=limit.COLLECTOR_FOR,
)

LOWER_BOUND = AlertRule(
    name="KvexporterCountsLowerBound",
    severity="info",
    when=f"Log lines were lost before they were read, within the last {in_words(limit.COUNTS_WINDOW)}: dropped by "
    "journald above its rate limit (of a server), or gone from a journal or log file (of all).",
    expr=f"""\
{of_server(f"increase(kvexporter_journal_suppressed_lines_total[{span(limit.COUNTS_WINDOW)}])")} > 0
or
{of_host(f"increase(kvexporter_journal_gaps_total[{span(limit.COUNTS_WINDOW)}])")} > 0""",
    summary="{instance}: counts from the log are only a lower bound",
    description=(
        "Log lines were lost on {instance} before kvexporter could read them, so incidents may be missing from its "
        "counts.",
        "journald dropped {suppressed} lines of {server}, above its rate limit.",
        "Gaps found in journals and log files: {gaps}.",
        "First: set `LogRateLimitBurst=` of the server's unit higher; against gaps, keep journals and rotated files "
        "longer, or let kvexporter run without long stops.",
    ),
    dashboard=FLEET_DASHBOARD,
)

STORE = AlertRule(
    name="KvexporterStoreFailing",
    severity="warning",
    when=f"Writing to the state directory failed within the last {in_words(limit.STORE_WINDOW)}, for "
    f"{in_words(limit.STORE_FOR)}.",
    expr=f"{of_host(f'increase(kvexporter_store_errors_total[{span(limit.STORE_WINDOW)}])')} > 0",
    summary="{instance}: kvexporter cannot keep its counts",
    description=(
        "kvexporter on {instance} cannot write its state directory: what it counts now is lost if it ends.",
        f"Writes that failed in the last {in_words(limit.STORE_WINDOW)}: {{store_errors}}.",
        "First: see whether the disk is full and whether the directory belongs to the service's user.",
    ),
    dashboard=FLEET_DASHBOARD,
    labels=HOST_LABELS,
    hold=limit.STORE_FOR,
)

EXPORTER = RuleGroup(
    name="exporter",
    about="kvexporter itself: whether what it says can be relied on.",
    rules=(DOWN, JOURNAL, COLLECTOR, STORE, LOWER_BOUND),
)
