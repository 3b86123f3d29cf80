"""How long before the first failed request an overflow is warned of, and how often a healthy pool is, for nothing.

Simulated and real overflows of five kinds, and healthy runs that fill up to 95 % of the pool; by the fill alone, with
demand, and with everything; straight from the daemon and through Prometheus.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.lead_time_judge import LONG_BUILD_UP, POLICIES, Seen, Verdict, judge, through_prometheus, watched
from benchmarks.lead_time_real import real_runs
from benchmarks.lead_time_runs import KINDS, simulated_runs
from benchmarks.measure import Row, median_of

OVERFLOWS, REAL, HEALTHY = 40, 10, 20
SEED = 61
"""Of none of the runs that the forecast was tuned with (1 to 4, 11, 12, 31 to 36)."""

EARLY_SHARE = 0.95
EVERYTHING = "(c) everything"

_WAYS: dict[str, Callable[[Seen, int], Seen]] = {
    "straight": lambda seen, number: seen,
    "through Prometheus": through_prometheus,
}


@dataclass(frozen=True, slots=True)
class _Judged:
    """What one set of conditions did in all runs, seen one way."""

    overflows: list[Verdict]
    healthy: list[Verdict]

    @property
    def long(self) -> list[Verdict]:
        return [verdict for verdict in self.overflows if verdict.build_up > LONG_BUILD_UP]


def rows(*, short: bool) -> Iterator[Row]:
    """Rows of the table. In its short form two real runs and a few simulated ones, by which nothing is judged."""
    count = (5, 1, 5) if short else (OVERFLOWS, REAL, HEALTHY)
    runs = [*simulated_runs(count[0], count[2], SEED), *real_runs(count[1], SEED)]
    seen = [(run, watched(run)) for run in runs]
    for way, view in _WAYS.items():
        views = [(run, view(what, number)) for number, (run, what) in enumerate(seen)]
        for name, (warn, page) in POLICIES.items():
            verdicts = [judge(run, what, warn, page) for run, what in views]
            judged = _Judged(
                [verdict for verdict in verdicts if verdict.run.overflows],
                [verdict for verdict in verdicts if not verdict.run.overflows],
            )
            yield from _rows(f"{name}, {way}", judged, goal=name == EVERYTHING and not short)
            if name == EVERYTHING:
                _explain(way, judged)


def _rows(name: str, judged: _Judged, *, goal: bool) -> Iterator[Row]:
    warned = [verdict.lead for verdict in judged.overflows if verdict.lead is not None]
    yield Row(f"{name}: warned before the first failure", _share(len(warned), len(judged.overflows)))
    yield Row("… median lead of those", f"{median_of(warned):.0f} s" if warned else "none")
    early, long = sum(verdict.early for verdict in judged.long), len(judged.long)
    yield Row(
        "… with a third of the build-up left, where it was over 30 s",
        _share(early, long),
        f"{EARLY_SHARE:.0%}" if goal else "",
        early >= EARLY_SHARE * long if goal else None,
    )
    if goal:
        missed = [verdict for verdict in judged.long if not verdict.early]
        like = sum(verdict.like_healthy for verdict in missed)
        yield Row("… of those missed, runs that could still have become healthy ones then", f"{like} of {len(missed)}")
    false = sum(verdict.warnings for verdict in judged.healthy)
    pages = sum(verdict.pages for verdict in judged.healthy)
    yield Row(
        f"… false warnings, pages in {len(judged.healthy)} healthy runs",
        f"{false}, {pages}",
        "1, 0" if goal else "",
        false <= 1 and not pages if goal else None,
    )


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "0 of 0"


def _explain(way: str, judged: _Judged) -> None:
    """By kind, on stderr: which part of each build-up was left."""
    for origin in ("simulated", "real"):
        for kind in KINDS:
            left = [
                "none" if verdict.lead is None else f"{verdict.lead / max(verdict.build_up, 1e-9):.2f}"
                for verdict in judged.overflows
                if verdict.run.kind == kind and verdict.run.origin == origin
            ]
            if left:
                print(f"  {EVERYTHING}, {way}, {origin}, {kind}: {' '.join(left)}", file=sys.stderr)
