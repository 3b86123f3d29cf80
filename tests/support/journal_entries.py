"""Entries in the journal export format, field by field."""

from __future__ import annotations

from kvexporter.demo.journal_writer import export_entry
from tests.support.collected_journal import UNIT
from tests.support.journal_files import BOOT_ID, MACHINE_ID

START = 1_796_018_480_000_000
"""Microseconds since 1970: when test entries begin."""


def entry(message: str | bytes | None, at: float = 0.0, **fields: str | bytes) -> bytes:
    """A line of the unit's process 4242, `at` seconds after START; `fields` add or replace, "" drops one."""
    moment = round(at * 1e6)
    all_fields: dict[str, str | bytes] = {
        "__REALTIME_TIMESTAMP": str(START + moment),
        "__MONOTONIC_TIMESTAMP": str(60_000_000 + moment),
        "_BOOT_ID": BOOT_ID,
        "_MACHINE_ID": MACHINE_ID,
        "_TRANSPORT": "stdout",
        "_PID": "4242",
        "_UID": "0",
        "_COMM": "llama-server",
        "_SYSTEMD_UNIT": UNIT,
        "PRIORITY": "6",
    }
    if message is not None:
        all_fields["MESSAGE"] = message
    all_fields.update(fields)
    return export_entry({name: value for name, value in all_fields.items() if value != ""})


def from_systemd(message: str, message_id: bytes, at: float = 0.0, unit: str = UNIT, **fields: str | bytes) -> bytes:
    """What PID 1 says about a unit."""
    return entry(
        message,
        at,
        **{
            "_PID": "1",
            "_COMM": "systemd",
            "_SYSTEMD_UNIT": "init.scope",
            "_TRANSPORT": "journal",
            "UNIT": unit,
            "MESSAGE_ID": message_id,
            **fields,
        },
    )
