"""How a pool was meant against how it is."""

from __future__ import annotations

import pytest

from kvexporter.pool_geometry import Geometry
from kvexporter.reports.findings import exit_status
from kvexporter.reports.verify_words import Expected, compare

OPTION_B = Geometry(4, 262_144, 1_048_576, True)
SHARED = Geometry(4, 262_144, 262_144, True)


def status(expected: Expected, found: Geometry) -> int:
    findings, unknown = compare("main", expected, found)
    assert unknown == []
    return exit_status(findings)


@pytest.mark.parametrize(
    ("expected", "found", "exit_with"),
    [
        (Expected(), OPTION_B, 0),
        (Expected(262_144, 4, 1_048_576), OPTION_B, 0),
        (Expected(262_144, 4), SHARED, 1),
        (Expected(262_144, 4, overcommit=True), SHARED, 0),
        (Expected(slots=4), SHARED, 0),
        (Expected(slots=3), OPTION_B, 1),
        (Expected(pool=1_048_500), OPTION_B, 0),
        (Expected(pool=1_047_000), OPTION_B, 1),
        (Expected(6_100, 3), Geometry(3, 6_144, 18_432, False), 0),
        (Expected(12_288, 1), Geometry(1, 12_288, 12_288, False), 0),
    ],
)
def test_the_pool_is_compared_with_what_was_meant(expected: Expected, found: Geometry, exit_with: int) -> None:
    assert status(expected, found) == exit_with


def test_what_cannot_be_known_is_named_and_neither_right_nor_wrong() -> None:
    findings, unknown = compare("main", Expected(4096, 4, 16_384), Geometry(4, 4096))
    assert unknown == ["the pool"]
    assert exit_status(findings) == 0
    assert any("whether the window is sure is not known" in finding.text for finding in findings)
    assert compare("main", Expected(4096, 4), Geometry())[1] == ["the slots", "the window of each slot"]
