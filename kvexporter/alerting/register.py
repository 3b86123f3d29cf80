"""The alerts that are on, and those that ended lately: since when, and who was told. Plain data, no clock, no I/O.

It is what must survive a restart, so that nobody is told the same twice and no end is forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from kvexporter.alerting.conditions import Held
from kvexporter.alerting.texts import alert_annotations, alert_labels
from kvexporter.incident_fields import incident_fields
from kvexporter.metrics.exposition import clipped
from kvexporter.snapshot import ServerSnapshot

LATER_SECONDS = 60.0
"""An alert ends so long after the rules would end theirs: Prometheus learns of everything later, and an alert that one
of the two has ended while the other still sends it would be off and on again."""

ENDED_KEPT_SECONDS = 900.0
"""Who cannot be reached for so long is not told of an end any more. Prometheus has the same limit."""

MOST_ALERTS = 1500
"""Of 200 servers with all their alerts on there are 1000."""

Key = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Alert:
    """One alert: on while `ended` is None. Times are unix seconds."""

    labels: dict[str, str]
    annotations: dict[str, str]
    started: float
    held: float
    """When its condition held last, or could not be judged."""
    keep: float
    """Seconds that it goes on after that."""
    ended: float | None = None
    news: str = ""
    incident: dict[str, object] | None = None
    """What it is about, as JSON fields."""
    told: dict[str, str] = field(default_factory=dict)
    """Receiver → the `state` that it knows of."""

    @property
    def key(self) -> Key:
        """What makes it this alert: its labels."""
        return tuple(sorted(self.labels.items()))

    @property
    def over(self) -> float:
        """When the rules end theirs at the earliest, as far as is known."""
        return self.held + self.keep - LATER_SECONDS

    @property
    def state(self) -> str:
        """What a receiver is to know: that it is on, and the latest news; or that it has ended."""
        return "resolved" if self.ended is not None else f"firing {self.news}".rstrip()

    @property
    def id(self) -> str:
        """Name this one time that the alert was on, for receivers that must not take one twice."""
        return f"{self.labels['alertname']}/{self.labels['server']}/{self.started:.3f}"


_alerts = msgspec.json.Decoder(list[Alert])


class Register:
    """All alerts, in the order in which they began."""

    def __init__(self) -> None:
        self._alerts: dict[Key, Alert] = {}

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Those that are on, and those whose end somebody has not been told of yet."""
        return tuple(self._alerts.values())

    @property
    def active(self) -> bool:
        """There are any."""
        return bool(self._alerts)

    def judge(
        self, servers: Iterable[ServerSnapshot], held: Mapping[str, Iterable[Held]], common: Mapping[str, str],
        at: float, host: str,
    ) -> bool:  # fmt: skip
        """Take what holds now, by server; a server that is missing in `held` cannot be judged now. True if that is new.

        `common` are the labels of every alert, `host` is what texts call this host where these do not name it.
        """
        changed = False
        unjudged = set()
        for server in servers:
            if server.name not in held:
                unjudged.add(clipped(server.name))
                continue
            for one in held[server.name]:
                changed |= self._holds(one, server, common, at, host)
        for alert in self._alerts.values():
            if alert.labels["server"] in unjudged:
                alert.held = at
            alert.held = min(alert.held, at)  # the clock may have been set back
            if alert.ended is None and at - alert.held > alert.keep:
                alert.ended = at
                changed = True
        return changed

    def wait(self, at: float) -> None:
        """Nothing can be judged now: what is on goes on."""
        for alert in self._alerts.values():
            alert.held = at

    def _holds(self, held: Held, server: ServerSnapshot, common: Mapping[str, str], at: float, host: str) -> bool:
        own = alert_labels(held, server, common)
        key = tuple(sorted(own.items()))
        alert = self._alerts.get(key)
        new = alert is None or alert.ended is not None
        if alert is None or alert.ended is not None:
            if alert is None and len(self._alerts) >= MOST_ALERTS:
                return False
            ended = alert.ended if alert is not None and alert.ended is not None else held.since
            self._alerts.pop(key, None)
            alert = self._alerts[key] = Alert(own, {}, min(max(held.since, ended), at), at, 0.0)
        new |= held.news != alert.news
        alert.annotations = alert_annotations(held, server, own, at, host)
        alert.held, alert.keep, alert.news = at, held.rule.keep + LATER_SECONDS, held.news
        alert.incident = incident_fields(held.incident) if held.incident is not None else None
        return new

    def forget(self, receivers: Collection[str], at: float) -> bool:
        """Drop alerts that ended, once all `receivers` know it or it is too long ago; True if any was."""
        gone = [
            key
            for key, alert in self._alerts.items()
            if alert.ended is not None
            and (
                all(alert.told.get(receiver) == "resolved" for receiver in receivers)
                or not 0 <= at - alert.ended <= ENDED_KEPT_SECONDS
            )
        ]
        for key in gone:
            del self._alerts[key]
        return bool(gone)

    # ---- over restarts -----------------------------------------------------------------------------------------

    def dump(self) -> bytes:
        """Give all of it as JSON."""
        return msgspec.json.encode(list(self._alerts.values()))

    def restore(self, detail: bytes, at: float) -> None:
        """Take back what was dumped before. Raises ValueError for anything else.

        An alert that was on then goes on, and ends in its time if its condition holds no more.
        """
        try:
            alerts = _alerts.decode(detail)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from None
        for alert in alerts[:MOST_ALERTS]:
            if not alert.labels.keys() >= {"alertname", "server"}:
                raise ValueError("an alert without a name or a server")
            alert.held = at
            alert.started = min(alert.started, at)
            self._alerts.setdefault(alert.key, alert)
