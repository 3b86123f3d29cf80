"""What a webhook's receiver is told, and when: each beginning, each end, and each further incident once. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kvexporter import __version__
from kvexporter.alerting.alertmanager import moment
from kvexporter.alerting.register import Alert

FORMAT = 1
"""Version of the JSON; it changes when a field changes its meaning or goes, not when one is added."""

NEWS_SECONDS = 60.0
"""Further incidents while an alert is on are told at most so often: agents that try again overflow the pool again."""


def is_due(alert: Alert, receiver: str, posted: float | None, at: float) -> bool:
    """Whether a receiver is to be told of an alert now; `posted`: when it was last, in this process's life."""
    known = alert.told.get(receiver)
    if known == alert.state:
        return False
    further = known is not None and known != "resolved" and alert.ended is None
    return not further or posted is None or not 0 <= at - posted < NEWS_SECONDS


def body(alerts: Sequence[Alert], at: float) -> bytes:
    """Give the request's body; docs/alerting.md describes it."""
    return msgspec.json.encode(
        {
            "format": FORMAT,
            "kvexporter": __version__,
            "sent": moment(at),
            "alerts": [
                {
                    "id": alert.id,
                    "status": "firing" if alert.ended is None else "resolved",
                    "labels": alert.labels,
                    "annotations": alert.annotations,
                    "started": moment(alert.started),
                    "ended": None if alert.ended is None else moment(alert.ended),
                    "incident": alert.incident,
                }
                for alert in alerts
            ],
        }
    )
