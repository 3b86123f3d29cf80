"""A diagnosis in rows and sentences, the same for text and for Markdown. Pure."""

from __future__ import annotations

from kvexporter.incident_words import counted
from kvexporter.reports.diagnosis import MOST_CLIENTS, Diagnosis
from kvexporter.reports.findings import printable
from kvexporter.reports.incident_table import UNKNOWN, moment, number

Row = tuple[str, str]
"""What it is, and its value."""


def title(diagnosis: Diagnosis) -> str:
    """The server, its build and its model."""
    story = diagnosis.story
    parts = [story.name]
    if story.build is not None:
        parts.append(f"build {story.build}")
    if story.model is not None:
        parts.append(story.model)
    return printable(", ".join(parts))


def period(diagnosis: Diagnosis) -> str:
    """From when to when its lines are; empty where that is not known."""
    story = diagnosis.story
    if story.first is None or story.last is None or not story.has_times:
        return ""
    first, last = (moment(at, since_start=story.since_start) for at in (story.first, story.last))
    return f"Lines from {first} to {last}"


def pool_rows(diagnosis: Diagnosis) -> list[Row]:
    """How the pool is cut."""
    geometry = diagnosis.story.geometry
    ratio = geometry.overcommit_ratio
    shared = {None: "whether it is shared is not known", True: "shared by all slots", False: "not shared"}
    times = "" if ratio is None else f", {ratio:.2f} times what there is"
    return [
        ("slots", f"{number(geometry.slots)}, each of up to {number(geometry.slot_context, ',')} tokens"),
        ("pool", f"{number(geometry.capacity, ',')} tokens, {shared[geometry.shared]}"),
        ("promised", f"{number(geometry.promised, ',')} tokens{times}"),
        ("sure for each slot", f"{number(geometry.guaranteed, ',')} tokens"),
        ("known from", geometry.source or UNKNOWN),
    ]


def count_rows(diagnosis: Diagnosis) -> list[Row]:
    """What the log counted."""
    story = diagnosis.story
    counts = story.counters
    rows = [
        ("pool ran out", _incidents(diagnosis, "pool")),
        ("own slot's limit", _incidents(diagnosis, "slot")),
        ("lines naming the error", f"{counts.error_lines:,}"),
        ("recoveries", f"{counts.recoveries:,}"),
        ("idle caches given up", f"{counts.purges:,}"),
        ("context shifts", f"{counts.context_shifts:,}"),
        ("answers cut off", f"{counts.answers_truncated:,}"),
        ("requests cancelled", f"{counts.requests_cancelled:,}"),
        ("restarts", number(counts.unit_restarts, ",")),
    ]
    if counts.unit_exits:
        exits = ", ".join(f"{status} ({times:,})" for status, times in sorted(counts.unit_exits.items()))
        rows.append(("ended badly with", printable(exits)))
    if counts.oom_kills:
        rows.append(("killed for memory", f"{counts.oom_kills:,}"))
    return rows


def size_rows(diagnosis: Diagnosis) -> list[Row]:
    """How large the requests were, against a slot's window."""
    sizes, window = diagnosis.request_tokens, diagnosis.story.geometry.slot_context
    rows = [("requests ended", f"{sizes.count:,}")]
    for name, size in (("half of them up to", sizes.p50), ("95% of them up to", sizes.p95), ("largest", sizes.largest)):
        of_window = f", {size / window:.0%} of a slot's window" if size is not None and window else ""
        rows.append((name, f"{number(size, ',')} tokens{of_window}"))
    refused = diagnosis.story.refused_sizes
    if refused:
        rows.append(("largest refused", f"{max(refused):,} tokens"))
    return rows


def client_rows(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """Address, requests, failed ones."""
    rows = [(c.address, f"{c.requests:,}", f"{c.failed:,}") for c in diagnosis.clients[:MOST_CLIENTS]]
    rest = diagnosis.clients[MOST_CLIENTS:]
    if rest:
        asked, failed = sum(c.requests for c in rest), sum(c.failed for c in rest)
        rows.append((f"{len(rest):,} more", f"{asked:,}", f"{failed:,}"))
    return rows


def incidents_title(diagnosis: Diagnosis) -> str:
    """How many incidents are shown, of how many."""
    shown, total = len(diagnosis.story.incidents), sum(diagnosis.story.counters.incidents.values())
    if shown == total:
        return "Incidents"
    return f"The latest {shown} of {total:,} incidents" if shown else f"{counted(total, 'incident')}, none shown"


def totals_sentence(diagnosis: Diagnosis) -> str:
    """What all incidents had in common; empty where there is only one."""
    totals = diagnosis.story.totals
    if sum(diagnosis.story.counters.incidents.values()) < 2:
        return ""
    parts = []
    if totals.adding_up:
        parts.append(f"in {totals.adding_up:,} the excess is exactly the batch that found no room")
    if totals.biggest:
        slot, times = max(totals.biggest.items(), key=lambda item: (item[1], -item[0]))
        parts.append(f"slot {slot} held most in {times:,}")
    return f"Of all incidents, {', and '.join(parts)}." if parts else ""


def sentence(text: str) -> str:
    """With a capital letter, and without what could steer a terminal."""
    return printable(text[:1].upper() + text[1:])


def flag_lines(flags: tuple[str, ...], width: int) -> list[str]:
    """Flags as lines of at most so many columns that a shell takes for one."""
    lines: list[str] = []
    for option in _options(flags):
        if lines and len(lines[-1]) + len(option) + 3 <= width:
            lines[-1] += f" {option}"
        else:
            lines.append(option)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _incidents(diagnosis: Diagnosis, cause: str) -> str:
    counts = diagnosis.story.counters
    times = counted(counts.incidents.get(cause, 0), "time")
    return f"{times}, {counted(counts.requests_failed.get(cause, 0), 'request')} died"


def _options(flags: tuple[str, ...]) -> list[str]:
    """Each option with its value."""
    options: list[str] = []
    for flag in flags:
        if options and not flag.startswith("-"):
            options[-1] += f" {flag}"
        else:
            options.append(flag)
    return options
