"""What an old log comes to, in one word and one sentence. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvexporter.diagnosing.logbook import ServerStory
from kvexporter.incident_words import counted

VerdictCode = Literal["one_oversized_session", "shared_pool", "both", "not_a_context_problem", "too_little_to_tell"]

_INFO_LEVEL = 3
"""Below it neither launches nor releases are logged."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement on one server."""

    code: VerdictCode
    text: str
    """One sentence."""
    found: bool
    """Something is wrong: requests died or were cut short, or the server itself ended badly."""


def verdict_of(story: ServerStory) -> Verdict:
    """Judge what a log told: what died of the pool, what of its own size, and if nothing did, what else is wrong."""
    shared, own = shared_deaths(story), own_deaths(story)
    if shared.incidents and own.incidents:
        return Verdict("both", f"Both: {_shared(story, shared)}; and one oversized session: {_own(story, own)}.", True)
    if shared.incidents:
        return Verdict("shared_pool", f"{_capital(_shared(story, shared))}{_cut_short(story)}.", True)
    if own.incidents:
        return Verdict("one_oversized_session", f"{_sessions(own)}: {_own(story, own)}.", True)
    if story.counters.context_shifts or story.counters.answers_truncated:
        return Verdict("one_oversized_session", f"One oversized session: {_outgrown(story)}.", True)
    if story.counters.error_lines:
        lines = counted(story.counters.error_lines, "line names", "lines name")
        return Verdict(
            "too_little_to_tell", f"Too little to tell: {lines} the error, and none says whose it was.", True
        )
    failed = _server_failures(story)
    if failed:
        text = f"Not a context problem: no request died for want of context, but {failed}."
        return Verdict("not_a_context_problem", text, True)
    if story.requests_ended:
        ended = counted(story.requests_ended, "request")
        text = f"Not a context problem: {ended} ended and none died for want of context{_still_possible(story)}."
        return Verdict("not_a_context_problem", text, False)
    return Verdict("too_little_to_tell", f"Too little to tell: {_why_little(story)}.", False)


@dataclass(frozen=True, slots=True)
class Deaths:
    """Incidents of one kind, and the requests that died in them."""

    incidents: int
    requests: int


def shared_deaths(story: ServerStory) -> Deaths:
    """What died because several requests together outgrew the pool."""
    alone = story.totals.alone
    counts = story.counters
    return Deaths(counts.incidents.get("pool", 0) - alone, counts.requests_failed.get("pool", 0) - alone)


def own_deaths(story: ServerStory) -> Deaths:
    """What died of its own size: larger than its slot, or alone larger than the pool."""
    alone = story.totals.alone
    counts = story.counters
    return Deaths(counts.incidents.get("slot", 0) + alone, counts.requests_failed.get("slot", 0) + alone)


def _shared(story: ServerStory, deaths: Deaths) -> str:
    geometry, ratio = story.geometry, story.geometry.overcommit_ratio
    died = f"{counted(deaths.requests, 'request')} died in {counted(deaths.incidents, 'incident')}"
    if geometry.slots and geometry.slot_context and geometry.capacity and ratio and ratio > 1:
        return (
            f"a shared pool: {geometry.slots} slots are promised {geometry.slot_context:,} tokens each out of one pool "
            f"of {geometry.capacity:,}, {ratio:.2f} times what there is, and {died} when their sum outgrew it"
        )
    return f"a shared pool: {died} when what all slots held together outgrew it"


def _sessions(deaths: Deaths) -> str:
    return "One oversized session" if deaths.requests == 1 else "One oversized session at a time"


def _own(story: ServerStory, deaths: Deaths) -> str:
    window = story.geometry.slot_context
    larger = "was larger" if deaths.requests == 1 else "were each larger"
    text = f"{counted(deaths.requests, 'request')} {larger} than one slot may hold"
    if window is not None:
        text += f" ({window:,} tokens)"
    largest = max(story.refused_sizes, default=None)
    if largest is not None:
        text += f", the largest had {largest:,}" if deaths.requests > 1 else f", it had {largest:,}"
    return f"{text}; nobody else was hurt"


def _outgrown(story: ServerStory) -> str:
    cut, shifts = story.counters.answers_truncated, story.counters.context_shifts
    parts = []
    if cut:
        parts.append(f"{counted(cut, 'answer was', 'answers were')} cut off")
    if shifts:
        parts.append(f"the middle of a session was forgotten {counted(shifts, 'time')}")
    window = story.geometry.slot_context
    at = "" if window is None else f" of {window:,} tokens"
    return f"no request died, but {' and '.join(parts)} where a session reached its own slot's window{at}"


def _cut_short(story: ServerStory) -> str:
    cut = story.counters.answers_truncated
    return f"; besides, {counted(cut, 'answer was', 'answers were')} cut off at a slot's own window" if cut else ""


def _server_failures(story: ServerStory) -> str:
    """How the server itself ended or was started anew, in words; empty if it did not."""
    counts, parts = story.counters, []
    if counts.oom_kills:
        parts.append(f"it was killed for want of memory {counted(counts.oom_kills, 'time')}")
    exits = sum(counts.unit_exits.values())
    if exits:
        how = ", ".join(f"{status} ({number:,})" for status, number in sorted(counts.unit_exits.items()))
        parts.append(f"the server itself ended badly {counted(exits, 'time')}: {how}")
    elif counts.unit_restarts:
        parts.append(f"systemd started it anew {counted(counts.unit_restarts, 'time')}")
    return " and ".join(parts)


def _still_possible(story: ServerStory) -> str:
    ratio = story.geometry.overcommit_ratio
    if story.geometry.shared and ratio is not None and ratio > 1:
        return f", which can still happen: more is promised than there is ({ratio:.2f} times)"
    return ""


def _why_little(story: ServerStory) -> str:
    if story.verbosity is not None and story.verbosity < _INFO_LEVEL:
        return f"at verbosity {story.verbosity} the log shows no requests (start the server with -lv {_INFO_LEVEL})"
    return "the log shows no request that ended, and no error"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
