"""What is left of a server's snapshot while its log is being caught up with.

What a log of times past tells is not shown as if it were now, nor do counters jump while somebody scrapes them.
"""

from __future__ import annotations

from dataclasses import replace

from kvexporter.snapshot import Counters, ServerSnapshot


def without_the_past(snapshot: ServerSnapshot) -> ServerSnapshot:
    """Leave out all that the log alone tells of tasks and events; shape, build and process are as good as ever."""
    return replace(
        snapshot,
        catching_up=True,
        has_log=False,
        requests_processing=None,
        slots=(),
        pool=None,
        fill_seconds=None,
        fill_history=(),
        counters=Counters(),
        last_incident=None,
        incidents=(),
        open_incident=None,
        pressure_at=None,
        cascade_since=None,
        request_tokens=None,
        request_prompt_tokens=None,
        prompt_speed=None,
        generation_speed=None,
    )
