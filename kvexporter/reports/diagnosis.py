"""What an old log tells of one server, put together for the three forms in which it is shown. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kvexporter.diagnosing.logbook import ServerStory
from kvexporter.incident_words import counted
from kvexporter.lint.options_history import FLASH_ATTENTION_TAKES_A_VALUE
from kvexporter.reports.advice import GROWTH, Advice, Configure, advice_for, outgrown, percentile
from kvexporter.reports.verdict import Verdict, verdict_of
from kvexporter.sizing import configurations

MOST_CLIENTS = 10


@dataclass(frozen=True, slots=True)
class RequestTokens:
    """Sizes of whole requests, prompt and answer."""

    count: int
    """Requests that ended, those that were refused included."""
    p50: int | None
    p95: int | None
    largest: int | None
    """Of those that held tokens at all; None without one."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who asked for completions."""

    address: str
    requests: int
    failed: int


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One server."""

    story: ServerStory
    request_tokens: RequestTokens
    clients: tuple[Client, ...]
    """Those with the most requests first; empty where the log does not tell them."""
    verdict: Verdict
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
    """What limits how far all this can be trusted, or may be misread."""


def diagnose(story: ServerStory, configure: Configure = configurations) -> Diagnosis:
    """Judge one server's log."""
    verdict = verdict_of(story)
    advice = advice_for(story, verdict, configure)
    sizes = tuple(size for size in sorted(story.request_sizes) for _ in range(story.request_sizes[size]))
    return Diagnosis(
        story=story,
        request_tokens=RequestTokens(
            story.requests_ended, percentile(sizes, 50), percentile(sizes, 95), sizes[-1] if sizes else None
        ),
        clients=_clients(story),
        verdict=verdict,
        advice=advice,
        notes=tuple(_notes(story, advice)),
    )


def _clients(story: ServerStory) -> tuple[Client, ...]:
    asked: dict[str, list[int]] = {}
    for (address, failed), number in story.clients.items():
        counts = asked.setdefault(address, [0, 0])
        counts[0] += number
        counts[1] += number if failed else 0
    found = [Client(address, requests, failed) for address, (requests, failed) in asked.items()]
    return tuple(sorted(found, key=lambda client: (-client.requests, client.address)))


def _flash_stands_alone(build: str | None) -> bool:
    number = (build or "").removeprefix("b")
    return number.isascii() and number.isdigit() and int(number) < FLASH_ATTENTION_TAKES_A_VALUE


def _notes(story: ServerStory, advice: tuple[Advice, ...]) -> list[str]:
    notes = []
    counts, totals = story.counters, story.totals
    if counts.suppressed_lines:
        dropped = counted(counts.suppressed_lines, "line")
        notes.append(f"journald dropped {dropped} of this unit, so all counts are lower bounds")
    if story.gap:
        notes.append("some entries could not be read, so all counts are lower bounds")
    incidents = sum(counts.incidents.values())
    if story.shape_changed is not None and incidents:
        after = counted(totals.since_shape, "incident") if totals.since_shape else "no incident"
        notes.append(f"the pool was cut differently for a time: since it was last changed there was {after}")
    if totals.not_adding_up:
        which = counted(totals.not_adding_up, "incident")
        notes.append(f"in {which} the numbers do not add up: lines are missing, or a build counts otherwise")
    if advice and outgrown(story):
        notes.append(
            "how large the sessions that reached their slot's window would have become is not known: "
            f"{GROWTH} times that window is a guess"
        )
    if _flash_stands_alone(story.build) and any("-fa" in each.flags for each in advice):
        notes.append(f"build {story.build} takes -fa without a value: leave the word after it away")
    if story.verbosity is not None and story.verbosity < 3:
        notes.append(f"at verbosity {story.verbosity} the log shows neither launches nor releases of requests")
    if not story.has_times:
        notes.append("this log does not tell when its lines were written")
    elif story.since_start:
        notes.append("times are seconds since the server's start: a bare log tells no others")
    return notes
