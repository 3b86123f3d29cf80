"""How a pool is cut, and what that means for its clients, in one sentence. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kvexporter.pool_geometry import Geometry


@dataclass(frozen=True, slots=True)
class PoolWords:
    """What to say of a pool."""

    text: str
    overcommitted: bool = False
    """More is promised than there is: requests can die."""
    remedy: str = ""


def pool_words(geometry: Geometry) -> PoolWords | None:
    """Say what is known of a pool; None when that is nothing."""
    slots, window, capacity = geometry.slots, geometry.slot_context, geometry.capacity
    if slots is None and capacity is None:
        return None
    ratio, guaranteed, promised = geometry.overcommit_ratio, geometry.guaranteed, geometry.promised
    if geometry.shared is None or window is None or ratio is None or slots is None or promised is None:
        return PoolWords(_partly(geometry))
    if slots == 1:
        return PoolWords(f"1 slot of {window:,} tokens in a pool of {capacity:,}, its own: nobody can take it away")
    if not geometry.shared:
        return PoolWords(f"{slots} slots of {window:,} tokens, each with a buffer of its own: the pool cannot run out")
    text = f"{slots} slots of up to {window:,} tokens share a pool of {capacity:,} (overcommitted {ratio:.2f} times"
    if ratio <= 1:
        return PoolWords(f"{slots} slots of up to {window:,} tokens share a pool of {capacity:,}: it cannot run out")
    return PoolWords(
        f"{text}): only {guaranteed:,} tokens are sure for each, and when the sum reaches the pool all running "
        "requests die",
        overcommitted=True,
        remedy=f"tell its clients a window of {guaranteed:,} tokens, or give it a pool of -c {promised}",
    )


def _partly(geometry: Geometry) -> str:
    """What is known where that is not enough to say whether the pool can run out."""
    slots = "an unknown number of slots" if geometry.slots is None else f"{geometry.slots} slots"
    window = "" if geometry.slot_context is None else f" of up to {geometry.slot_context:,} tokens"
    pool = "a pool of unknown size" if geometry.capacity is None else f"a pool of {geometry.capacity:,}"
    if geometry.shared is None:
        return f"{slots}{window}, {pool}; whether they share it is not known from outside, only its log tells"
    return f"{slots}{window}, {pool}, {'shared' if geometry.shared else 'with a buffer each'}"
