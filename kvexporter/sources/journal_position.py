"""Where in a journal reading starts: at a cursor, at the beginning of the unit's current invocation, or at its head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvexporter.sources.journal_library import LowLevelReader, field, open_journal
from kvexporter.sources.journal_selection import JournalSelection, MatchGroup, narrowed

StartKind = Literal["cursor", "gap", "invocation", "head"]

MAX_EQUAL_STAMPS = 100_000
"""Entries of one microsecond looked through for a moved one: more than journald stores in one."""
MAX_BACK = 1_000
"""Entries looked at, newest first, for one that tells its invocation."""

SKIPS = (0.0, 0.001, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)
"""Seconds beyond a damaged place at which reading is tried again."""


@dataclass(frozen=True, slots=True)
class JournalStart:
    """Where reading starts."""

    kind: StartKind
    """cursor: right after the cursor's entry; gap: that entry is gone, so at the next one still there (entries between
    may be lost); invocation: first entry of the unit's current run; head: oldest entry."""
    cursor_refused: bool = False
    """The given cursor is no cursor, so reading starts as if none had been given."""


def seek_after(reader: LowLevelReader, cursor: str) -> tuple[bool, bool]:
    """Position the reader right after the cursor's entry.

    Returns (exact, on_unread): exact when the entry is still there; on_unread when the reader stands ON an entry that
    has not been read yet, the first later one. ValueError when the text is no cursor.
    """
    if not cursor or "\0" in cursor or not cursor.isascii():
        raise ValueError("not a journal cursor")
    reader.seek_cursor(cursor)
    if reader._next():
        if reader.test_cursor(cursor):
            return True, False
        if _seek_moved(reader, cursor):
            return True, False
        reader.seek_cursor(cursor)
        return False, reader._next()
    return False, False


def _seek_moved(reader: LowLevelReader, cursor: str) -> bool:
    """Find the cursor's entry where a flush from /run to /var has copied it to.

    The copy has another file and number (s=, i=) but the same boot, times and content hash (b=, m=, t=, x=).
    """
    parts = [part for part in cursor.split(";") if part[:2] in ("b=", "m=", "t=", "x=")]
    if len(parts) != 4:
        return False
    place = ";".join(parts)
    try:
        stamp = cursor_stamp(place)
        reader.seek_cursor(place)
        for _ in range(MAX_EQUAL_STAMPS):
            if not reader._next() or reader._get_realtime() > stamp:
                return False
            if reader.test_cursor(place):
                return True
    except (OSError, ValueError):
        pass
    return False


def seek_beyond(reader: LowLevelReader, cursor: str) -> bool:
    """Position the reader on the next entry that can be read after the cursor's time; False when there is none yet.

    For the case that what follows the cursor is damaged. Tries later and later moments, so more than what is damaged
    may be passed over. ValueError when the cursor has no time, OSError when nothing later can be read either.
    """
    stamp = cursor_stamp(cursor)
    failure: OSError | None = None
    for seconds in SKIPS:
        try:
            reader.seek_realtime(stamp + max(1, round(seconds * 1e6)))
            return reader._next()
        except OSError as error:
            failure = error
    raise failure or OSError("nothing to read")


def current_run_start(selection: JournalSelection) -> str | None:
    """Cursor of the first entry of what runs now (or ran last); None when reading should start at the head.

    A run is told by, in this order: the container's id (its lines carry the invocation of Docker's daemon, not of the
    container), systemd's invocation id, and without both the process id within its boot, or the boot alone.
    JournalUnavailableError when the journal cannot be opened.
    """
    if not selection.groups:
        return None  # a whole folder is what was given: all of it counts
    first: tuple[int, str] | None = None
    for fields in _newest_run(selection):
        found = _first_entry(selection, narrowed(selection.groups, *fields))
        if found is not None and (first is None or found[0] < first[0]):
            first = found
    return None if first is None else first[1]


def _first_entry(selection: JournalSelection, groups: tuple[MatchGroup, ...]) -> tuple[int, str] | None:
    """Time and cursor of the oldest entry of the groups."""
    if not groups:
        return None
    reader = open_journal(selection, groups)
    try:
        reader.seek_head()
        return (reader._get_realtime(), reader._get_cursor()) if reader._next() else None
    except OSError:
        return None  # damaged there: the other fields, or else the head, still lead to everything
    finally:
        reader.close()


def _newest_run(selection: JournalSelection) -> tuple[MatchGroup, ...]:
    """What tells the entries of the newest entry's run, as alternatives; none when nothing does."""
    reader = open_journal(selection)
    fallback: tuple[MatchGroup, ...] = ()
    try:
        reader.seek_tail()
        for _ in range(MAX_BACK):
            if not reader._previous():
                break
            invocation = _text(reader, "USER_INVOCATION_ID" if selection.user_unit is not None else "INVOCATION_ID")
            if _own_line(reader, selection):
                for name in ("CONTAINER_ID_FULL", "CONTAINER_ID"):
                    if container := _text(reader, name):
                        return (((name, container),),)
                invocation = _text(reader, "_SYSTEMD_INVOCATION_ID")
                fallback = fallback or _process_of(reader)
            if invocation:
                # systemd's messages name the invocation they are about in another field than the unit's own lines.
                names = ("_SYSTEMD_INVOCATION_ID", "INVOCATION_ID", "USER_INVOCATION_ID")
                return tuple(((name, invocation),) for name in names)
    except OSError:
        pass
    finally:
        reader.close()
    return fallback


def _process_of(reader: LowLevelReader) -> tuple[MatchGroup, ...]:
    """The current entry's process in its boot, as far as it tells them."""
    group = tuple((name, value) for name in ("_PID", "_BOOT_ID") if (value := _text(reader, name)))
    return (group,) if group else ()


def _own_line(reader: LowLevelReader, selection: JournalSelection) -> bool:
    """Whether the unit itself wrote it: journald's and systemd-coredump's messages carry their own invocations."""
    if selection.about is None:
        return True
    name = "_SYSTEMD_UNIT" if selection.unit is not None else "_SYSTEMD_USER_UNIT"
    return field(reader, name) == selection.about.encode()


def cursor_stamp(cursor: str) -> int:
    """The time in a cursor, microseconds since 1970. ValueError when it has none."""
    for part in cursor.split(";"):
        if part.startswith("t="):
            return int(part[2:], 16)
    raise ValueError("the cursor has no time")


def _text(reader: LowLevelReader, name: str) -> str | None:
    value = field(reader, name)
    return None if value is None else value.decode("ascii", "replace")
