"""Which alerts' conditions hold, by the thresholds of the shipped rules, and what is new about that."""

from __future__ import annotations

from kvexporter.demo.commentary import Reading
from kvexporter.incident_words import counted
from kvexporter.rules import thresholds as limit
from kvexporter.rules.pool import ALMOST_FULL, CONTEXT_EXCEEDED, FILLING_UP, OVERCOMMITTED
from kvexporter.rules.rule import AlertRule
from kvexporter.rules.server import CRASH_LOOPING
from kvexporter.rules.spans import in_words
from kvexporter.snapshot import PoolSnapshot

RULES: tuple[AlertRule, ...] = (CONTEXT_EXCEEDED, ALMOST_FULL, FILLING_UP, OVERCOMMITTED, CRASH_LOOPING)


def conditions(reading: Reading, at: float) -> dict[str, str]:
    """Alerts whose condition holds at `at` (unix seconds), by name, and why."""
    held: dict[str, str] = {}
    if reading.incident_at is not None and at - reading.incident_at < limit.INCIDENT_WINDOW:
        held[CONTEXT_EXCEEDED.name] = f"{counted(reading.requests_failed, 'request')} died so far"
    if (reading.overcommit or 0) > limit.OVERCOMMIT_RATIO:
        held |= _pool(reading)
    codes = " and ".join(reading.exits)
    if reading.restarts >= limit.CRASH_RESTARTS and codes:
        held[CRASH_LOOPING.name] = f"systemd restarted it {counted(reading.restarts, 'time')}, exit status {codes}"
    return held


def _pool(reading: Reading) -> dict[str, str]:
    held = {OVERCOMMITTED.name: f"{reading.overcommit:g} times the pool is promised"}
    pool = PoolSnapshot(
        processing_tokens=0,
        idle_tokens=None,
        fill_ratio=reading.fill,
        resident_ratio=None,
        fill_peak_ratio=reading.peak,
        committed_ratio=reading.committed,
        demand_ratio=reading.demand,
        seconds_to_full=reading.seconds_to_full,
    )
    known = (
        ("its fill is", reading.fill),
        ("with all prompts read it will be", reading.committed),
    )
    why = ", ".join(f"{what} {value:.0%}" for what, value in known if value is not None)
    if reading.seconds_to_full is not None:
        why += f", full in {reading.seconds_to_full:.0f} s if it goes on like this"
    for rule, signs in ((ALMOST_FULL, limit.POOL_PAGE), (FILLING_UP, limit.POOL_WARN)):
        if any(sign.met_by(pool) for sign in signs):
            held[rule.name] = why
    return held


class AlertNews:
    """What to say of the alerts as they come and go."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], float] = {}

    def news(self, server: str, reading: Reading, at: float) -> list[str]:
        """The lines to say about a server now; `at` in unix seconds."""
        lines = []
        held = conditions(reading, at)
        for rule in RULES:
            key = (server, rule.name)
            if rule.name in held:
                if key not in self._until:
                    waits = f"; fires after {in_words(rule.hold)} of that" if rule.hold else ""
                    lines.append(f"  ! {server}: {rule.name} ({rule.severity}): {held[rule.name]}{waits}")
                # As the rule: it goes on for a while, because a fill is a sawtooth.
                self._until[key] = at + rule.keep
            elif key in self._until and at >= self._until[key]:
                del self._until[key]
                lines.append(f"    {server}: {rule.name} is over")
        return lines
