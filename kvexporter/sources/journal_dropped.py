"""Which lines of a unit never came into the journal: those that journald dropped above its rate limit, as it tells."""

from __future__ import annotations

from functools import partial

from kvexporter.facts import LinesSuppressed
from kvexporter.sources.journal_library import JournalUnavailableError, field, open_journal
from kvexporter.sources.journal_selection import JournalSelection, narrowed
from kvexporter.sources.systemd_messages import SUPPRESSED, unit_event

MAX_NOTICES = 10_000
"""The newest ones are looked at; journald writes at most a few for each 30 s."""


def dropped_lines(selection: JournalSelection) -> int:
    """How many lines of the selection journald says it dropped, as far back as the journal goes; 0 if none is told of.

    Never raises.
    """
    groups = narrowed(selection.groups or ((),), ("MESSAGE_ID", SUPPRESSED.decode()))
    if not groups:
        return 0
    try:
        reader = open_journal(selection, groups)
    except JournalUnavailableError:
        return 0
    dropped = 0
    try:
        reader.seek_tail()
        for _ in range(MAX_NOTICES):
            if not reader._previous():
                break
            event = unit_event(partial(field, reader), selection.about)
            if isinstance(event, LinesSuppressed):
                dropped += event.count
    except (OSError, ValueError):
        pass  # damaged further back
    finally:
        reader.close()
    return dropped
