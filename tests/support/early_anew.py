"""`kvexporter` that begins anew when it is 40 s old, not five minutes: `python -m tests.support.early_anew run …`.

It also gives up a store after 15 s, not a minute; all else is the real program, what takes its place included.
"""

from __future__ import annotations

from types import ModuleType

from kvexporter import beginning_anew, keeper

OPEN = 15.0
ANEW = 40.0

if __name__ == "__main__":
    early: dict[ModuleType, dict[str, float]] = {
        keeper: {"OPEN_SECONDS": OPEN},
        beginning_anew: {"ANEW_SECONDS": ANEW},
    }
    for module, values in early.items():
        for name, value in values.items():
            if not hasattr(module, name):
                raise SystemExit(f"{module.__name__} has no {name} any more")
            setattr(module, name, value)

    from kvexporter.__main__ import main

    main()
