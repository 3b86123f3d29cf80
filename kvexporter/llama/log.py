"""One line of llama-server's log to one typed event, whatever build wrote it.

Lines are told apart by their shape and fields. Build numbers and the function names in tags mean nothing here: the
names are cut to 12 characters and change with every refactoring.

Text of a request can get into a log (parts of prompts, paths, error texts). So a message is recognised only at its
start, right after the prefixes and the tag that the server itself writes, never in the middle of a line. The one
exception is `mentions_context_error`, which is meant to equal what `grep -c` counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kvexporter.llama import legacy
from kvexporter.llama.endpoints import ENDPOINTS
from kvexporter.llama.events import AllSlotsIdle, Event, HttpRequest, LogLine
from kvexporter.llama.log_grammar import PORT_GROUP, Build, Rule
from kvexporter.llama.log_server import REQUEST_RULES, SERVER_RULES
from kvexporter.llama.log_slot import SLOT_RULES, TIMING_RULES
from kvexporter.llama.log_startup import STARTUP_RULES, STARTUP_WITHOUT_TAG

CONTEXT_ERROR = b"Context size has been exceeded"

_ESCAPE, _NUL = 0x1B, 0

LINE_LIMIT = 8192
"""Bytes. No line that says something is longer; longer ones (requests and templates at high verbosity) are not read."""

# What a line may start with, in this order: the port of a router's child, the time since the start, the level.
_PREFIX = rb"(?:\[ {0,4}(\d{1,5})\] ?)?+(?:\d++\.\d\d\.\d{3}\.\d{3} )?+(?:[IWED] )?+"
# A tag is `slot` or a word such as `srv` and a function's name, or the name alone. Atomic: once a tag is read, a line
# that no rule knows is given up at once instead of being tried with shorter tags.
_SLOT_TAG = rb"(?>slot +[^\s|]{1,64} +id +(\d{1,4}) +\|(?: +task +(?:(\d{1,12})|-\d{1,12}) +\|)? *)"
_SERVER_TAG = rb"(?>(?!slot )(?:[a-z]{2,6} +)?[A-Za-z_~][^\s:|]{0,63} ?: +)"

# What other programs put before a line when it is shown or pasted: journalctl, syslog, docker, docker compose,
# Kubernetes.
_PASTED = re.compile(
    rb"""
    (?:
        (?:[A-Z][a-z]{2}[ ])?                                         # weekday (journalctl -o with-unit)
        (?:
            [A-Z][a-z]{2}[ ][ \d]\d[ ]\d\d:\d\d:\d\d (?:\.\d{1,9})?
          | \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d (?:[.,]\d{1,9})? (?:[ ]?(?:Z|[A-Z]{2,5}|[+-]\d\d:?\d\d))?
          | \d{9,11}\.\d{6}                                           # -o short-unix
          | \[[ ]{0,12}\d{1,12}\.\d{6}\]                               # -o short-monotonic
        )[ ]
        (?: std(?:out|err)[ ][FP][ ] | [^\s\[]{1,255}[ ][^\s\[:]{1,255}(?:\[\d{1,10}\])?:[ ] )?
      | [A-Za-z0-9][\w.-]{0,127}+[ ]++\|[ ]                             # docker compose: the service's name
    )
    """,
    re.VERBOSE,
)
_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]{0,32}[A-Za-z]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\))")
_STRUCTURED = re.compile(rb"(?:\[ {0,4}(\d{1,5})\] ?)?+\s*+(?=\{|(?:INFO|WARN|ERR|VERB|DEBUG) \[)")
# How lines of these forms begin, to be looked at only where no plain line was found.
_OTHER_FORM = re.compile(
    rb"[\s{]|\[ {0,12}\d|(?:INFO|WARN|ERR|VERB|DEBUG) \["
    rb"|[A-Z][a-z]{2} |\d{4}-|\d{9,11}\.|[A-Za-z0-9][\w.-]{0,127}+ ++\| "
)


_other_form_starts = _OTHER_FORM.match


def _join(rules: tuple[Rule, ...], builds: dict[int, Build], first: int) -> tuple[bytes, int]:
    """The alternatives of `rules`, and the number of the next free group; `first` is theirs."""
    group = first
    patterns = []
    for rule in rules:
        # The first letter stands before the group: there the engine sees it before it tries the rule.
        letter = rule.pattern[:1] if rule.pattern[:1].isalnum() else b""
        pattern = letter + rb"(" + rule.pattern[len(letter) :] + rb")"
        builds[group] = rule.build
        group += re.compile(pattern).groups
        patterns.append(pattern)
    return rb"|".join(patterns), group


def _compile() -> tuple[re.Pattern[bytes], dict[int, Build]]:
    """All rules as one pattern, and the builder for the number of the rule's group.

    One pattern, because a call of the regular expression engine costs as much as what it does in a line.
    """
    builds: dict[int, Build] = {}
    slot, group = _join(SLOT_RULES, builds, 4)
    bare, group = _join((*TIMING_RULES, *REQUEST_RULES, *STARTUP_WITHOUT_TAG), builds, group)
    server, group = _join((*SERVER_RULES, *STARTUP_RULES), builds, group)
    pattern = rb"%b(?:%b(?:%b)| *(?:%b)|%b(?:%b))" % (_PREFIX, _SLOT_TAG, slot, bare, _SERVER_TAG, server)
    return re.compile(pattern), builds


_LINE, _BUILDS = _compile()
_match = _LINE.match


_MOST_SEEN = 1024
"""A start prints some hundred lines."""
_seen: dict[int, LogLine | None] = {}
"""What lines say that come over and over in the same words, by their hashes: above all that somebody polls, and what a
server that starts again and again prints. No line is kept itself, as it may be a prompt's."""
_NEW: Any = object()
_LETTERS = b"\\"
"""Above `[` and digits, which begin the lines of builds that print times, and a router's; below small letters."""


def parse_line(raw: bytes) -> LogLine | None:
    """What one line of a log says; None when it says nothing.

    `raw` may be any bytes: not UTF-8, coloured, ending in a carriage return, with or without the prefixes of
    llama-server, its router, a container runtime or journalctl. It never raises.
    """
    (line,) = parse_lines((raw,))
    return line


def parse_lines(raws: Sequence[bytes]) -> list[LogLine | None]:
    """What each of some lines says, as `parse_line` tells it: many at once take two thirds of the time."""
    together = b"\n".join(raws)
    # Looked for once in all of them, for what is rare.
    special = together.find(CONTEXT_ERROR) >= 0 or max(map(len, raws), default=0) > LINE_LIMIT
    odd = together.find(b"\x1b") >= 0 or together.find(b"\0") >= 0
    lines: list[LogLine | None] = []
    take = lines.append
    for raw in raws:
        # This runs for every line there is.
        once = raw < _LETTERS  # with a time or a port before it no line comes twice
        if not once:
            line = _seen.get(hash(raw), _NEW)
            if line is not _NEW:
                take(line)
                continue
        if special and (raw.find(CONTEXT_ERROR) >= 0 or len(raw) > LINE_LIMIT):
            take(_special_line(raw))
            continue
        m = _match(raw)
        if m is not None:
            index: int = m.lastindex  # type: ignore[assignment]  # every alternative is a group
            event, port = _BUILDS[index](m, index), m[PORT_GROUP]
        elif (odd and (_ESCAPE in raw or _NUL in raw)) or _other_form_starts(raw) is not None:
            event, port = _other_form(raw)
        else:
            event = port = None
        line = None if event is None else LogLine(event, False, None if port is None else int(port))
        take(line)
        if not once:
            _remember(raw, event, line)
    return lines


def _remember(raw: bytes, event: Event | None, line: LogLine | None) -> None:
    """Remember a line that may well come again: nothing that tells of one task, and no path that a client made up."""
    if event is None or type(event) is AllSlotsIdle or (type(event) is HttpRequest and event.path in ENDPOINTS):
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen[hash(raw)] = line


def _special_line(raw: bytes) -> LogLine | None:
    """A line that names the error, which is counted whatever it says; or one that is too long to say anything."""
    mentions = CONTEXT_ERROR in raw
    if len(raw) > LINE_LIMIT:
        return LogLine(None, mentions) if mentions else None
    m = _match(raw)
    event = port = None
    if m is not None:
        event, port = _event(m), m[PORT_GROUP]
    elif _ESCAPE in raw or _NUL in raw or _other_form_starts(raw) is not None:
        event, port = _other_form(raw)
    return LogLine(event, mentions, None if port is None else int(port))


def _event(m: re.Match[bytes]) -> Event | None:
    index = m.lastindex or 0  # never 0: every alternative is a group
    return _BUILDS[index](m, index)


def _other_form(raw: bytes) -> tuple[Event | None, bytes | None]:
    """The event and the port of a line that is coloured, pasted or structured, or nothing of it."""
    line = raw
    if _ESCAPE in line or _NUL in line:
        line = _ANSI.sub(b"", line).replace(b"\0", b"")
    pasted = _PASTED.match(line)
    if pasted is not None:
        line = line[pasted.end() :]
    line = line.lstrip(b" \t")
    m = _match(line)
    if m is not None:
        return _event(m), m[PORT_GROUP]
    structured = _STRUCTURED.match(line)
    if structured is None:
        return None, None
    port = structured[1]
    record = legacy.read(line[structured.end() :])
    if record is None:
        return None, port
    message, fields = record
    event = legacy.event(message, fields)
    if event is None:
        m = _match(message.encode("utf-8", errors="replace"))  # --log-jsonl: a plain line inside
        if m is not None:
            event, port = _event(m), port or m[PORT_GROUP]
    return event, port
