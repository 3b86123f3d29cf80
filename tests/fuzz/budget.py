"""How long the fuzz tests run: a few examples under pytest, as many as the minutes give under `python -m tests.fuzz`.

Set by the environment, because hypothesis takes its settings when a test is defined.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONG = "KVEXPORTER_FUZZ_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("KVEXPORTER_FUZZ_EXAMPLES", "25"))
STEPS = 60 if LONG else 25
"""Rules that a stateful test runs one after the other."""


def fuzz_settings(share: float = 1.0) -> settings:
    """The settings of one test that gets this share of the examples; no deadline, for machines are shared."""
    return settings(
        max_examples=max(5, int(EXAMPLES * share)),
        stateful_step_count=STEPS,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
