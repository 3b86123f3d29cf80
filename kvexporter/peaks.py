"""How the peaks of a sawtooth rise: slots are given back between two turns of an agent, and each turn is longer.

What matters of such a fill is its peaks. Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST_PEAKS = 64
"""Kept; the older half is thinned when there are more, so that the oldest ones reach far back."""

DIP = 0.2
"""A fall by this part ends a peak …"""

LEAST_DIP = 0.01
"""… if it is at least this part of the pool."""

GROUPS = 4
"""The last peaks are compared in so many groups of equal number, by the highest of each."""

WINDOWS = (64, 48, 32, 24, 16, 12)
"""How many of the last peaks are compared, the most first."""

MOST_STEP = 0.6
"""No step from group to group is more than this part of the whole rise."""

LATEST = 4
"""The last peaks among whose requests there must be a large one."""

AHEAD = 1.5
"""A rise is followed no further ahead than so many times the time that it was watched for."""


@dataclass(slots=True)
class _Peak:
    at: float
    tokens: int
    largest: int = 0
    """Of the largest prompt among those that needed them, of those that may be a turn of a conversation."""


class PeakTrend:
    """The peaks of one pool's fill, and when they will reach its capacity."""

    def __init__(self) -> None:
        self._peaks: list[_Peak] = []
        self._rising = True
        self._high = _Peak(0.0, 0)
        self._low = 0

    def observe(self, needed: int, largest: int, capacity: int, at: float) -> None:
        """From `at` on the running requests need `needed` tokens; `largest` is a conversation's largest prompt."""
        if self._rising:
            if needed > self._high.tokens:
                self._high = _Peak(at, needed, largest)
            elif needed < self._high.tokens - _dip(self._high.tokens, capacity):
                self._add(self._high)
                self._rising, self._low = False, needed
        elif needed < self._low:
            self._low = needed
        elif needed > self._low + _dip(needed, capacity):
            self._rising, self._high = True, _Peak(at, needed, largest)

    def seconds_to_full(self, capacity: int, window: int, now: float) -> float | None:
        """Seconds from `now` until the peaks reach the capacity; None while they do not rise, or too few were seen.

        A rise has to show in the highest peak of each of four groups, the last of which is the highest ever seen. And
        one of the latest requests must be larger than `window`: clients that keep within what a slot is sure of send
        no more, and as long as none does the pool cannot run out.
        """
        peaks = self._peaks
        if self._rising and peaks and self._high.tokens > peaks[-1].tokens:
            peaks = [*peaks, self._high]  # not over yet, and higher already
        if max((peak.largest for peak in peaks[-LATEST:]), default=0) <= window:
            return None
        for size in WINDOWS:
            if len(peaks) < size:
                continue
            highest = _highest(peaks[-size:])
            if highest is None or highest[-1].tokens < max(peak.tokens for peak in peaks):
                continue
            full_at, watched = _reaches(highest, capacity), peaks[-1].at - peaks[-size].at
            if full_at - now <= AHEAD * watched and now - peaks[-1].at <= watched:
                return max(0.0, full_at - now)
        return None

    def _add(self, peak: _Peak) -> None:
        self._peaks.append(peak)
        if len(self._peaks) > MOST_PEAKS:
            old, new = self._peaks[: MOST_PEAKS // 2], self._peaks[MOST_PEAKS // 2 :]
            thinned = [max(old[i : i + 2], key=lambda peak: peak.tokens) for i in range(0, len(old), 2)]
            self._peaks = thinned + new


def _dip(tokens: int, capacity: int) -> float:
    return max(DIP * tokens, LEAST_DIP * capacity)


def _highest(peaks: list[_Peak]) -> list[_Peak] | None:
    """The highest of each group, if they rise by steps; None unless the groups' means and largest requests do too."""
    size = len(peaks) // GROUPS
    groups = [peaks[i * size : (i + 1) * size] for i in range(GROUPS)]
    highest = [max(group, key=lambda peak: peak.tokens) for group in groups]
    steps = [b.tokens - a.tokens for a, b in pairwise(highest)]
    # One large request that comes once is no trend.
    if min(steps) <= 0 or max(steps) > MOST_STEP * sum(steps) or not _rise([peak.at for peak in highest]):
        return None
    means = [sum(peak.tokens for peak in group) for group in groups]
    # Nor are requests that are large together by chance: of conversations that grow, the largest one grows too.
    largest = [max(peak.largest for peak in group) for group in groups]
    return highest if _rise(means) and _rise(largest) else None


def _rise(values: Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _reaches(peaks: list[_Peak], capacity: int) -> float:
    """When the line of least squares through rising peaks reaches the capacity."""
    middle_at = sum(peak.at for peak in peaks) / len(peaks)
    middle = sum(peak.tokens for peak in peaks) / len(peaks)
    slope = sum((peak.at - middle_at) * (peak.tokens - middle) for peak in peaks) / sum(
        (peak.at - middle_at) ** 2 for peak in peaks
    )
    return middle_at + (capacity - middle) / slope
