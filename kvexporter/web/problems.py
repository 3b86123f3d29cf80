"""What kvexporter could not read, why, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvexporter.facts import GpuReason, PollReason
from kvexporter.reports.findings import Finding
from kvexporter.reports.gpu_check import REMEDIES as GPU_REMEDIES
from kvexporter.reports.poll_words import REASONS as POLL_REASONS
from kvexporter.rules import thresholds as limit
from kvexporter.snapshot import CollectorStatus, ExporterSnapshot, ServerSnapshot
from kvexporter.web.amounts import duration

_CHECK = "`kvexporter check` on its host says more"
_REMEDIES = {
    "discovery": "let kvexporter read /proc (no hidepid, no ProcSubset=pid in its unit)",
    "store": "make room on the disk and let kvexporter write its folder; until then counts do not survive a restart",
}
_NO_GPU = ("no_gpu", "not_supported")
"""A host without a GPU lacks nothing."""


def exporter_problems(snapshot: ExporterSnapshot) -> list[Finding]:
    """What concerns all servers alike."""
    found = [problem for name, status in snapshot.collectors.items() for problem in _collector(name, status)]
    if snapshot.config_reload_successful is False:
        remedy = "`kvexporter --config.check` names file, line and key; then reload it with SIGHUP"
        found.append(
            Finding("problem", "configuration", "it could not be read anew, so the old one stays in force", remedy)
        )
    if snapshot.journal_lag is not None and snapshot.journal_lag > limit.JOURNAL_LAG_SECONDS:
        text = f"the journal is read {duration(snapshot.journal_lag)} late: what is shown is of then"
        found.append(Finding("warning", "journal", text, "wait while old entries are caught up with"))
    if snapshot.journal_gaps:
        text = f"log lines were gone before they were read ({snapshot.journal_gaps} times): counts are lower bounds"
        found.append(
            Finding(
                "warning",
                "journal",
                text,
                "give the journal more room (SystemMaxUse= in journald.conf), and keep rotated files longer",
            )
        )
    for kind, times in snapshot.dropped.items():
        if times:
            found.append(Finding("warning", "bounds", f"there are too many of kind {kind}: some are left out", ""))
    return found


def server_problems(server: ServerSnapshot) -> list[Finding]:
    """What is not known of one server, and why."""
    found = []
    if server.catching_up:
        text = "what its log holds from before is still being read: requests that died are counted in a moment"
        found.append(Finding("ok", server.name, text))
    elif not server.has_log:
        text = "its log is not read: requests that died for want of context are not counted"
        remedy = f"run it as a systemd service, or name its entries with journal.matches; {_CHECK}"
        found.append(Finding("warning", server.name, text, remedy))
    if server.counters.suppressed_lines:
        text = f"journald dropped {server.counters.suppressed_lines:,} lines of it: counts are lower bounds"
        found.append(Finding("warning", server.name, text, "raise LogRateLimitBurst= of its unit"))
    return found + list(_endpoints(server))


def _collector(name: str, status: CollectorStatus) -> Iterator[Finding]:
    if status.success:
        return
    reason = status.reason or "it could not be read"
    remedy = _REMEDIES.get(name, _CHECK)
    if name == "gpu":
        code, _, reason = reason.partition(": ")
        if code in _NO_GPU:
            return
        remedy = GPU_REMEDIES.get(cast(GpuReason, code), _CHECK)
    yield Finding("problem", name, reason or name, remedy)


def _endpoints(server: ServerSnapshot) -> Iterator[Finding]:
    if server.state in ("down", "loading"):
        return  # that is said, and explains it
    told = set()
    for endpoint, reason in server.failing.items():
        text, remedy = POLL_REASONS.get(cast(PollReason, reason), (f"fails ({reason})", _CHECK))
        if reason == "unsupported":
            text, remedy = _unsupported(endpoint)
        if reason == "loading" or not text or reason in told:
            continue
        if reason != "unsupported":
            told.add(reason)  # a server that answers nothing answers none of them
        yield Finding("warning", server.name, f"/{endpoint} {text}", remedy)


def _unsupported(endpoint: str) -> tuple[str, str]:
    if endpoint == "metrics":
        return "is off: its own totals and waiting requests are not shown", "start it with --metrics"
    if endpoint == "slots":
        return (
            "is off: between the lines of its log the slots' tokens are estimates",
            "start it without --no-slots (older builds: with --slots)",
        )
    return "is off", ""
