"""Makes `tests.support` importable in every test, whatever folder pytest is started from, and keeps tests apart."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Give the next test the logging that this one found: running a command sets it up for the whole process."""
    root, own = logging.getLogger(), logging.getLogger("kvexporter")
    handlers, levels = root.handlers[:], (root.level, own.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])
