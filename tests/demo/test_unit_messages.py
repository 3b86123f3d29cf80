"""What the demonstration writes in systemd's name is what a real systemd writes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from kvexporter.demo import unit_messages
from kvexporter.facts import UnitExited, UnitFailed, UnitRestartScheduled, UnitStarted, UnitStopped
from kvexporter.sources.systemd_messages import unit_event
from tests.support.paths import wait_for
from tests.support.real_systemd import RealSystemd

UNIT, DESCRIPTION = "llama-crashing.service", "llama-server that does not get up"
MADE = (
    unit_messages.started(UNIT, DESCRIPTION),
    unit_messages.exited(UNIT, 127),
    unit_messages.exited(UNIT, 1),
    unit_messages.failed(UNIT),
    unit_messages.restart_scheduled(UNIT, 1),
    unit_messages.stopped(UNIT, DESCRIPTION),
)


def test_the_exporter_takes_them_for_what_they_are() -> None:
    def get(fields: dict[str, str]) -> Any:
        return unit_event(lambda name: fields[name].encode() if name in fields else None, UNIT)

    assert [get(fields) for fields in MADE] == [
        UnitStarted(),
        UnitExited("exited", "127"),
        UnitExited("exited", "1"),
        UnitFailed("exit-code"),
        UnitRestartScheduled(1),
        UnitStopped(restarting=True),
    ]


@pytest.mark.real_systemd
def test_a_real_systemd_writes_the_same() -> None:
    unit = f"""
        [Unit]
        Description={DESCRIPTION}
        StartLimitIntervalSec=0
        [Service]
        # 127 at the first start, 1 at each later one.
        ExecStart=/bin/sh -c 'test -e /run/started && exit 1; touch /run/started; exit 127'
        Restart=always
        RestartSec=200ms
    """
    with RealSystemd(units={UNIT: unit}) as host:
        host.run("systemctl", "start", UNIT)

        def messages() -> list[dict[str, Any]]:
            time.sleep(0.5)
            host.run("journalctl", "--sync")
            output = host.run("journalctl", f"UNIT={UNIT}", "_PID=1", "-o", "json", "--no-pager").stdout
            found = [json.loads(line) for line in output.splitlines()]
            return found if sum(entry.get("EXIT_STATUS") == "1" for entry in found) else []

        real = wait_for("its restart", messages)
    for made in MADE:
        # The start of a service that ends at once may be told after its end: the first of each is looked for.
        same = [entry for entry in real if entry["MESSAGE"] == made["MESSAGE"]]
        assert same, made["MESSAGE"]
        assert made.items() <= same[0].items()
