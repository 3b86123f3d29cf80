"""Which sizes count, and their percentiles."""

from __future__ import annotations

import pytest

from kvexporter.request_sizes import percentile, size_facts
from kvexporter.snapshot import Cause, Incident


def incident(cause: Cause, tokens: int | None) -> Incident:
    return Incident(cause, 0.0, 0.0, (), 1, 4096, None, None, None, None, None, request_tokens=tokens)


def test_a_percentile_is_the_smallest_size_that_holds_so_many_requests() -> None:
    hundred = list(range(1, 101))
    assert [percentile(hundred, percent) for percent in (50, 95, 100)] == [50, 95, 100]
    assert percentile([7], 95) == 7
    assert percentile([1, 2, 3], 50) == 2
    with pytest.raises(ValueError):
        percentile([], 50)


def test_sizes_are_sorted_and_summed_up() -> None:
    facts = size_facts([300, 100, 200])
    assert (facts.sizes, facts.p50, facts.p95, facts.largest) == ((100, 200, 300), 200, 300, 300)


def test_a_refused_request_counts_with_what_it_would_have_held() -> None:
    facts = size_facts([0, 100], [incident("slot", 5000), incident("slot", None), incident("pool", 9999)])
    assert facts.sizes == (100, 5000)


def test_without_a_size_nothing_is_known() -> None:
    facts = size_facts([0])
    assert (facts.sizes, facts.p50, facts.p95, facts.largest) == ((), None, None, None)
    assert facts.fitting(100) is None
