"""Alerts of an exporter whose store answers late: those that it holds go on beside those that have begun since."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from kvexporter.alerting.alerter import Alerter
from kvexporter.config_alerting import AlertingConfig
from tests.support.asking import run
from tests.support.snapshots import FOUR_AGENTS, FULL

DIED = replace(FULL, incidents=(FOUR_AGENTS,))
OTHER = replace(DIED, name="other")
AT = FOUR_AGENTS.ended + 10.0


class Kept:
    """The store's side, which has `alerts` once it is open and keeps nothing before."""

    def __init__(self) -> None:
        self.alerts: bytes | None = None
        self.open = True
        self.written: bytes | None = None

    def keep_alerts(self, detail: bytes) -> None:
        if self.open:
            self.written = detail


def servers(detail: bytes | None) -> list[tuple[str, str]]:
    assert detail is not None
    alerts = msgspec.json.decode(detail)
    return sorted((alert["labels"]["server"], alert["labels"]["alertname"]) for alert in alerts)


def test_what_an_earlier_exporter_kept_and_what_has_begun_since_go_on_and_are_kept_together() -> None:
    async def test() -> None:
        before = Kept()
        first = Alerter(before, lambda: AT)
        first.configure(AlertingConfig())
        first.step([DIED], {"main"})
        kept = before.written
        await first.aclose()

        store = Kept()
        store.open = False
        alerter = Alerter(store, lambda: AT + 5.0)
        alerter.configure(AlertingConfig())
        alerter.step([OTHER], {"other"})
        assert store.written is None
        store.open, store.alerts = True, kept
        alerter.take_up()
        alerter.step([replace(OTHER, incidents=())], None)  # the servers' logs are read anew
        await alerter.aclose()

        main, other = servers(kept), [("other", name) for _, name in servers(kept)]
        assert ("main", "LlamaContextExceeded") in main
        assert servers(store.written) == sorted(main + other)

    run(test())
