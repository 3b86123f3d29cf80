"""When would each set of conditions have warned in a run, straight from the daemon and through Prometheus?

A run's facts go through the parser and the model at their own times. The daemon looks at its model every second;
Prometheus scrapes every 15 s and evaluates every 15 s, at phases drawn by run, what the latest scrape has brought.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.lead_time_recording import Fact
from benchmarks.lead_time_runs import HEALTHY_PEAK, Run
from kvexporter.intake import LogIntake, take_answer
from kvexporter.rules.thresholds import OVERCOMMIT_RATIO, POOL_PAGE, POOL_WARN, POOL_WARN_KEEP, PoolCondition
from kvexporter.server import Server
from kvexporter.snapshot import PoolSnapshot
from kvexporter.sources.api_target import DEADLINES

SCRAPE = EVALUATION = 15.0
LONG_BUILD_UP = 30.0

Conditions = tuple[PoolCondition, ...]
Seen = list[tuple[float, PoolSnapshot | None]]
"""The pool as it was shown, second by second; None where it must not be warned of."""


def _only(conditions: Conditions, *names: str) -> Conditions:
    """Those conditions that ask for nothing but these numbers."""
    numbers = ("committed_ratio", "demand_ratio", "seconds_to_full", "fill_ratio", "fill_peak_ratio")
    return tuple(
        condition
        for condition in conditions
        if all(getattr(condition, number) is None or number in names for number in numbers)
    )


FILL = ("fill_ratio", "fill_peak_ratio")
DEMAND = (*FILL, "committed_ratio", "demand_ratio")

POLICIES: dict[str, tuple[Conditions, Conditions]] = {
    "fill of 85 % alone": ((PoolCondition(fill_ratio=0.85),), (PoolCondition(fill_ratio=0.95),)),
    "(a) fill alone": (_only(POOL_WARN, *FILL), _only(POOL_PAGE, *FILL)),
    "(b) with demand": (_only(POOL_WARN, *DEMAND), _only(POOL_PAGE, *DEMAND)),
    "(c) everything": (POOL_WARN, POOL_PAGE),
}
"""Name → when it warns, when it pages. The first one is what many set up by hand, for comparison."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one set of conditions did in one run."""

    run: Run
    warned_at: float | None
    """First time within the build-up (overflows) or at all (healthy runs)."""
    warnings: int
    pages: int
    """Times that they began, with the rules' time of keeping on."""
    paged_at: float | None = None
    like_healthy: bool = False
    """With a third of the build-up left it could still have become a healthy run."""

    @property
    def build_up(self) -> float:
        recording = self.run.recording
        assert recording.failed_at is not None
        assert recording.began is not None
        return recording.failed_at - recording.began

    @property
    def lead(self) -> float | None:
        """Seconds before the first failure; None: not warned before it."""
        failed = self.run.recording.failed_at
        return None if failed is None or self.warned_at is None else failed - self.warned_at

    @property
    def early(self) -> bool:
        """A third of the build-up was left."""
        return self.lead is not None and self.lead >= self.build_up / 3


def watched(run: Run) -> Seen:
    """The pool as the model shows it, every second up to the run's end."""
    server = Server(run.kind, poll_interval=1.0)
    intake = LogIntake(lambda port, pid: server)
    recording = run.recording
    end = recording.failed_at if recording.failed_at is not None else recording.ended
    seen: Seen = []
    second = 1.0
    for fact in _with_timeouts(recording.facts):
        while fact.at > second and second < end:
            seen.append((second, _shown(server, second)))
            second += 1.0
        if fact.at >= end:
            break
        if fact.asked is None:
            intake.line(fact.body, fact.at)
        elif fact.body:
            take_answer(server, "slots", fact.body, fact.at, fact.asked)
        else:
            server.poll_failed("slots", "timeout", fact.at)
    return seen


def _with_timeouts(facts: Sequence[Fact]) -> list[Fact]:
    """The facts in order, and an empty answer where the daemon gives up waiting for one and says so.

    The daemon then asks again and waits longer; that this one is answered when the batch is done comes to the same.
    """
    late = [fact for fact in facts if fact.asked is not None and fact.at - fact.asked > DEADLINES["slots"]]
    given_up = [Fact(fact.asked + DEADLINES["slots"], b"", fact.asked) for fact in late if fact.asked is not None]
    return sorted([*facts, *given_up], key=lambda fact: fact.at)


def _shown(server: Server, at: float) -> PoolSnapshot | None:
    server.tick(at, quiet=1.0)
    shown = server.snapshot(at)
    ratio = shown.geometry.overcommit_ratio
    return shown.pool if ratio is not None and ratio > OVERCOMMIT_RATIO else None


def through_prometheus(seen: Seen, seed: int) -> Seen:
    """The same as it is seen at the evaluations: each sees the latest scrape."""
    phases = random.Random(seed)
    scrape, evaluation = phases.uniform(0, SCRAPE), phases.uniform(0, EVALUATION)
    shown: Seen = []
    latest: PoolSnapshot | None = None
    for at, pool in seen:
        if at >= scrape:
            latest, scrape = pool, scrape + SCRAPE
        if at >= evaluation:
            shown.append((at, latest))
            evaluation += EVALUATION
    return shown


def judge(run: Run, seen: Seen, warn: Conditions, page: Conditions) -> Verdict:
    """Apply conditions to what was seen of a run."""
    began = run.recording.began or 0.0 if run.overflows else 0.0
    met = [at for at, pool in seen if _met(warn, pool)]
    pages = [at for at, pool in seen if _met(page, pool)]
    return Verdict(
        run,
        next((at for at in met if at >= began), None),
        _episodes(met),
        _episodes(pages),
        next((at for at in pages if at >= began), None),
        run.overflows and like_healthy(run, seen),
    )


def like_healthy(run: Run, seen: Seen) -> bool:
    """Whether all that was seen until a third of the build-up was left can be the beginning of a healthy run.

    It can if the fill was never above that of healthy runs, and what the running requests are known to need is not
    either: then all goes well if their answers end now and prompts of untold size are as large as they are known to be.
    Of agents, also no prompt may have been larger than clients send that were told the window: then each may compact
    before its next turn. The same holds for whatever a forecaster makes of these facts, so one that warns here warns of
    that healthy run too.
    """
    recording = run.recording
    if recording.failed_at is None or recording.began is None:
        return False
    third_left = recording.failed_at - (recording.failed_at - recording.began) / 3
    pools = [pool for at, pool in seen if at <= third_left and pool is not None]
    if not pools:
        return True
    if max(pool.fill_ratio or 0.0 for pool in pools) > HEALTHY_PEAK[1]:
        return False
    beyond = recording.beyond_window_at
    if run.kind == "slow agents" and beyond is not None and beyond <= third_left:
        return False
    return (pools[-1].committed_ratio or 0.0) <= HEALTHY_PEAK[1]


def _met(conditions: Conditions, pool: PoolSnapshot | None) -> bool:
    return pool is not None and any(condition.met_by(pool) for condition in conditions)


def _episodes(times: Sequence[float]) -> int:
    return sum(not i or at - times[i - 1] > POOL_WARN_KEEP for i, at in enumerate(times))
