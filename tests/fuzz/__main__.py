"""Fuzzing for long: `python -m tests.fuzz --minutes 60`. Says how it goes, and every falsifying example it finds.

Runs the very tests that pytest runs, round after round with many examples. Hypothesis keeps what it found in
`.hypothesis`, so a failing example is tried first the next time, by pytest too.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import traceback
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path

ROUND = 1000
"""Examples of a test in one round; tests take shares of it."""


def targets(only: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every fuzz test by name; what does not need hypothesis is left out."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.fuzz.{file.stem}")
        for name, value in vars(module).items():
            if only not in f"{file.stem}.{name}":
                continue
            if getattr(value, "is_hypothesis_test", False):
                yield f"{file.stem}.{name}", value
            elif isinstance(value, type) and issubclass(value, unittest.TestCase) and name.startswith("Test"):
                yield f"{file.stem}.{name}", getattr(value("runTest"), "runTest")  # noqa: B009


def main() -> int:
    """Run until the minutes are over; exit status 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default="", help="part of a test's name")
    options = parser.parse_args()
    os.environ.setdefault("KVEXPORTER_FUZZ_EXAMPLES", str(ROUND))  # before the tests are defined
    began, rounds, findings = time.monotonic(), 0, set()
    tests = list(targets(options.only))
    while time.monotonic() - began < options.minutes * 60:
        rounds += 1
        for name, test in tests:
            if time.monotonic() - began > options.minutes * 60:
                break
            started = time.monotonic()
            try:
                test()
                outcome = "ok"
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                outcome = "FOUND " + type(error).__name__
                findings.add(name)
                traceback.print_exc(file=sys.stdout)
            minutes, took = (time.monotonic() - began) / 60, time.monotonic() - started
            print(f"{minutes:7.1f} min  round {rounds}  {name}: {outcome} ({took:.0f} s)", flush=True)
    print(f"{rounds} rounds; found something in: {', '.join(sorted(findings)) or 'nothing'}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
