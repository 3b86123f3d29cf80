"""A pool in one sentence: the configurations of the two operators' stories, with their own numbers."""

from __future__ import annotations

import pytest

from kvexporter.pool_geometry import Geometry
from kvexporter.reports.pool_words import pool_words


@pytest.mark.parametrize(
    ("geometry", "words", "overcommitted"),
    [
        (Geometry(4, 262144, 262144, True), "(overcommitted 4.00 times): only 65,536 tokens are sure for each", True),
        (Geometry(4, 262144, 1048576, True), "share a pool of 1,048,576: it cannot run out", False),
        (Geometry(4, 65536, 262144, False), "4 slots of 65,536 tokens, each with a buffer of its own", False),
        (Geometry(1, 12288, 12288, False), "1 slot of 12,288 tokens", False),
        (Geometry(4, 4096), "whether they share it is not known from outside", False),
        (Geometry(None, None, 16384), "an unknown number of slots, a pool of 16,384", False),
    ],
)
def test_a_pool_is_told_with_what_it_means(geometry: Geometry, words: str, overcommitted: bool) -> None:
    said = pool_words(geometry)
    assert said is not None
    assert words in said.text
    assert said.overcommitted == overcommitted


def test_the_remedy_names_the_window_and_the_pool_that_would_do() -> None:
    said = pool_words(Geometry(4, 262144, 262144, True))
    assert said is not None
    assert said.remedy == "tell its clients a window of 65,536 tokens, or give it a pool of -c 1048576"


def test_nothing_known_says_nothing() -> None:
    assert pool_words(Geometry()) is None
