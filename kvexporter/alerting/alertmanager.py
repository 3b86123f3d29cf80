"""What an Alertmanager is told, and when: its API v2. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from kvexporter.alerting.register import Alert

PATH = "/api/v2/alerts"

AGAIN_SECONDS = 10.0
"""An alert that is on is posted again so often."""

ENDING_SECONDS = 2.0
"""One whose condition holds no more is posted again so often until it ends: Prometheus ends its own in this time, and
Alertmanager takes the end for the alert's until it hears of it again. A message sent in between would tell of an end
that is none."""

VALID_SECONDS = 240.0
"""An alert that is not posted again ends by itself after this time; as with Prometheus, which has four minutes too."""


def is_due(alert: Alert, receiver: str, posted: float | None, at: float) -> bool:
    """Whether a receiver is to be told of an alert now; `posted`: when it was last, in this process's life."""
    if alert.told.get(receiver) != alert.state:
        return True
    again = ENDING_SECONDS if at - alert.over >= ENDING_SECONDS else AGAIN_SECONDS
    return alert.ended is None and (posted is None or not 0 <= at - posted < again)


def body(alerts: Sequence[Alert], at: float) -> bytes:
    """Give the request's body."""
    return msgspec.json.encode(
        [
            {
                "labels": alert.labels,
                "annotations": {name: text for name, text in alert.annotations.items() if text},
                "startsAt": moment(min(alert.started, at)),
                "endsAt": moment(at + VALID_SECONDS if alert.ended is None else max(alert.ended, alert.started)),
            }
            for alert in alerts
        ]
    )


def moment(at: float) -> str:
    """Write unix seconds as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
