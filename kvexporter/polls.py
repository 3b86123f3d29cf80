"""How one server's endpoints have answered: when last, how often not, and what is too old to be shown."""

from __future__ import annotations

from collections import Counter

from kvexporter.facts import Endpoint, PollReason
from kvexporter.polling import METRICS_EVERY

MISSED_POLLS = 3
"""So many poll intervals without an answer make a polled value too old to show."""

SLACK_SECONDS = 1.0
"""An answer may take this long."""

DECODE_SECONDS = 10.0
"""While a long prompt is read an answer may take this much longer, until it is given up, which is told as a timeout."""


class PollHistory:
    """Answers and failures by endpoint. `interval` (seconds) is what age is measured by."""

    def __init__(self, interval: float) -> None:
        self.last: dict[str, float] = {}
        """Endpoint → time of its last good answer."""
        self.failures: Counter[tuple[str, str]] = Counter()
        """(endpoint, reason) → count."""
        self.patience = MISSED_POLLS * interval + SLACK_SECONDS
        self._metrics_patience = MISSED_POLLS * METRICS_EVERY * interval + SLACK_SECONDS
        self.failing: dict[str, PollReason] = {}
        """Endpoint → why its latest answer was none; without those whose latest answer was good."""

    def answered(self, endpoint: Endpoint, at: float) -> None:
        """The endpoint gave what it should."""
        self.last[endpoint] = at
        self.failing.pop(endpoint, None)

    def failed(self, endpoint: Endpoint, reason: PollReason) -> None:
        """The endpoint did not."""
        self.failures[endpoint, reason] += 1
        self.failing[endpoint] = reason

    def fresh(self, endpoint: Endpoint, now: float) -> bool:
        """The last good answer is young enough to be shown."""
        last = self.last.get(endpoint)
        patience = self._metrics_patience if endpoint == "metrics" else self.patience
        return last is not None and now - last <= patience

    def regular(self, endpoint: Endpoint, now: float) -> bool:
        """Its answers are young enough, or it never gave any: so none are missed."""
        return endpoint not in self.last or self.fresh(endpoint, now)

    def lost(self, endpoint: Endpoint, now: float, *, decoding: bool = False) -> bool:
        """Answers have stopped coming, and not because of a long decode, in which older builds answer nothing.

        `decoding`: the log shows that a prompt is being read.
        """
        if self.regular(endpoint, now):
            return False
        reason = self.failing.get(endpoint)
        if reason is None and decoding:
            return now - self.last[endpoint] > self.patience + DECODE_SECONDS
        return reason != "timeout"
