"""A unit's stop on request is told from every other end by what a real systemd writes about it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from kvexporter.sources.systemd_messages import message_starts, unit_event
from kvexporter.unit_life import UnitLife
from tests.support.paths import wait_for
from tests.support.real_systemd import RealSystemd

pytestmark = pytest.mark.real_systemd

RUNS = "ExecStart=/bin/sleep infinity"
UNITS = {
    "stopped": RUNS,
    "restarted": RUNS,
    "hanging": "ExecStart=/bin/sh -c 'trap \"\" TERM; while :; do sleep 1; done'\nTimeoutStopSec=1",
    "waiting": "ExecStart=/bin/sh -c 'exit 3'\nRestart=always\nRestartSec=1h",
    "crashed": RUNS,
    "ended": RUNS,
    "looping": "ExecStart=/bin/sh -c 'exit 3'\nRestart=always\nRestartSec=50ms",
    "again": f"{RUNS}\nRestart=always\nRestartSec=50ms",
    "mistyped": "ExecStart=/bin/sh -c 'test -e /run/mistyped && exit 127; exec sleep infinity'",
    "unready": f"ExecStartPre=/bin/sh -c 'test ! -e /run/unready'\n{RUNS}",
    "needing": RUNS,
    "bound": RUNS,
    "requiring": RUNS,
    "part": RUNS,
}
BOUND_UP = {"bound": "BindsTo", "requiring": "Requires", "part": "PartOf"}
ON_REQUEST = {"stopped", "hanging", "waiting", "bound"}


def unit_text(name: str, service: str) -> str:
    needs = "[Unit]\nRequires=needed.service\nAfter=needed.service\n" if name == "needing" else ""
    if name in BOUND_UP:
        needs = f"[Unit]\n{BOUND_UP[name]}=crashing.service\nAfter=crashing.service\n"
    return f"{needs}[Service]\n{service}\n"


@pytest.fixture(scope="module")
def host() -> Iterator[RealSystemd]:
    units = {f"{name}.service": unit_text(name, service) for name, service in UNITS.items()}
    units["needed.service"] = (
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'test ! -e /run/needed'\n"
    )
    units["crashing.service"] = f"[Service]\n{RUNS}\n"
    with RealSystemd(units) as booted:
        booted.systemctl("start", *units, check=False)
        for name in (
            "stopped",
            "hanging",
            "crashed",
            "ended",
            "again",
            "restarted",
            "mistyped",
            "unready",
            "needing",
            *BOUND_UP,
        ):
            booted.wait_state(f"{name}.service", "active")
        booted.run("touch", "/run/mistyped", "/run/unready", "/run/needed")
        booted.systemctl("stop", "stopped.service", "hanging.service", "waiting.service")
        booted.systemctl("restart", "restarted.service")
        for name, signal in (("crashed", "SEGV"), ("ended", "TERM"), ("again", "SEGV"), ("crashing", "SEGV")):
            booted.run("kill", f"-{signal}", booted.property(f"{name}.service", "MainPID"))
        booted.systemctl("stop", "mistyped.service", "unready.service", "needed.service", "needing.service")
        booted.systemctl("start", "mistyped.service", "unready.service", "needing.service", check=False)
        for name, state in (
            ("crashed", "failed"), ("ended", "inactive"), ("looping", "failed"), ("again", "active"),
            ("mistyped", "failed"), ("unready", "failed"), ("needing", "inactive"),
            ("bound", "inactive"), ("requiring", "active"), ("part", "active"),
        ):  # fmt: skip
            booted.wait_state(f"{name}.service", state)
        wait_for("its second start", lambda: booted.property("again.service", "NRestarts") == "1")
        time.sleep(0.5)  # the last messages are on their way
        booted.run("journalctl", "--sync")
        yield booted


def entries_about(host: RealSystemd, unit: str) -> list[dict[str, str]]:
    output = host.run("journalctl", f"UNIT={unit}", "_PID=1", "-o", "json", "--no-pager").stdout
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("name", UNITS)
def test_only_a_stop_that_was_asked_for_is_taken_for_one(host: RealSystemd, name: str) -> None:
    unit = f"{name}.service"
    entries = entries_about(host, unit)
    told = UnitLife()
    for entry in entries:
        event = unit_event(lambda field, of=entry: of[field].encode() if field in of else None, unit)  # type: ignore[misc]
        if event is not None:
            assert entry["MESSAGE"].encode().startswith(message_starts(unit)), "else it would not be looked at"
            told.observe(event, int(entry["__REALTIME_TIMESTAMP"]) / 1e6)
    assert told.stopped_on_request is (name in ON_REQUEST), [entry["MESSAGE"] for entry in entries]


def test_systemd_words_a_stop_for_a_failed_unit_as_one_that_was_asked_for(host: RealSystemd) -> None:
    """So `bound` is among those stopped on request above, and the runbook says so. If this fails, systemd has begun to
    tell the two apart, and so should we.
    """
    own = {"UNIT", "MESSAGE", "INVOCATION_ID", "JOB_ID"}

    def words(name: str) -> list[dict[str, str]]:
        entries = entries_about(host, f"{name}.service")
        return [
            {field: value for field, value in entry.items() if not field.startswith("_") and field not in own}
            for entry in entries
        ]

    def texts(name: str) -> list[str]:
        return [entry["MESSAGE"].replace(name, "it") for entry in entries_about(host, f"{name}.service")]

    assert (words("bound"), texts("bound")) == (words("stopped"), texts("stopped"))
