"""`kvexporter` with alerts that end after seconds instead of minutes: `python -m tests.support.quick_alerts run …`.

Only how long alerts go on, stay valid and are posted again is shorter; all else is the real program.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

from kvexporter.alerting import alertmanager, conditions, receiver, register, texts
from kvexporter.rules import pool

WINDOW = 4
LATER = 2.0
VALID = 15.0

if __name__ == "__main__":
    quick: dict[ModuleType, dict[str, object]] = {
        conditions: {
            "INCIDENT_WINDOW": WINDOW,
            "PRESSURE_WINDOW": WINDOW,
            "FILLING_UP": replace(pool.FILLING_UP, keep=WINDOW),
            "ALMOST_FULL": replace(pool.ALMOST_FULL, keep=WINDOW),
        },
        texts: {"INCIDENT_WINDOW": WINDOW},
        register: {"LATER_SECONDS": LATER},
        alertmanager: {"VALID_SECONDS": VALID, "AGAIN_SECONDS": 2.0},
        receiver: {"LOOK_SECONDS": 0.5},
    }
    for module, values in quick.items():
        for name, value in values.items():
            if not hasattr(module, name):
                raise SystemExit(f"{module.__name__} has no {name} any more")
            setattr(module, name, value)

    from kvexporter.cli import main

    main()
