"""Which sound ways there are to cut a KV cache for measured requests, and what each costs. Pure arithmetic.

Used by `plan` (all of them) and by `diagnose` and the page (those that mend what was found).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from kvexporter.llama.kv_types import bytes_per_element
from kvexporter.pool_geometry import Geometry

Option = Literal["as_is", "split", "capped", "grown_q8", "grown_f16", "grown_q4", "queue"]
"""capped: each slot's part guaranteed by --kv-unified-per-slot; grown: every slot the whole window, at 8, 16 or 4 bit;
queue: one slot, the others wait."""


@dataclass(frozen=True, slots=True)
class SizingFacts:
    """What is known of a server. None: unknown, and what needs it is unknown too."""

    slots: int
    slot_context: int | None = None
    """Window of a slot today, in tokens."""
    capacity: int | None = None
    """Cells of the whole buffer today."""
    shared: bool | None = None
    context_train: int | None = None
    """The model's training context: no window is above it."""
    kv_bytes_per_token: float | None = None
    """Today's, with today's cache types."""
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    """As -ctk and -ctv name them; None: unknown (not: f16)."""
    memory_bytes: int | None = None
    """Memory that the KV cache may take in all: what it takes today and what is free beside it."""
    planned_slots: int | None = None
    """Slots to plan for, where they are to be others than today's."""


@dataclass(frozen=True, slots=True)
class RequestSizeFacts:
    """Measured sizes of whole requests (prompt and answer), in tokens."""

    sizes: tuple[int, ...] = ()
    """All of them, ascending; empty when only the percentile was given."""
    p50: int | None = None
    p95: int | None = None
    largest: int | None = None

    def fitting(self, window: int) -> float | None:
        """Share (0 to 1) of the measured requests that fit into `window` tokens; None without measured ones."""
        if not self.sizes:
            return None
        return sum(size <= window for size in self.sizes) / len(self.sizes)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to start the server."""

    option: Option
    title: str
    flags: tuple[str, ...]
    """Ready to paste, e.g. ("-c", "1048576", "-np", "4", "-kvu", …)."""
    slots: int
    window: int
    """Tokens one slot may hold."""
    guaranteed: int
    """Tokens a slot is sure of; the window unless overcommitted."""
    pool: int
    """Cells of the whole buffer, rounded as the server rounds."""
    overcommitted: bool
    kv_bytes: int | None
    memory_left: int | None
    """Negative: it does not fit."""
    fits: float | None
    """Share of the measured requests that fit into the guaranteed window."""
    why: str
    """One plain sentence: what it gives and what it costs."""
    flags_any_build: tuple[str, ...] = ()
    """The same windows and memory on builds without --kv-unified-per-slot; empty where `flags` do for all builds."""
    cache_type: str | None = None
    """The cache type that the flags ask for; None: today's stays."""


def configurations(facts: SizingFacts, sizes: RequestSizeFacts) -> tuple[Configuration, ...]:
    """Every sound way to cut the cache, and today's, which may be unsound: then it is `overcommitted`.

    The 95th percentile of the sizes decides a cap; the whole window is today's, or more where the largest request needs
    more. There can be several of an option, with other windows or cache types, each after what gives up less than it.
    Nothing proposed is overcommitted, nor a window above the training context. What does not fit into memory is kept,
    with a negative `memory_left`. Raises ValueError for fewer than one slot.
    """
    slots = facts.slots if facts.planned_slots is None else facts.planned_slots
    if slots < 1 or facts.slots < 1:
        raise ValueError(f"expected at least 1 slot, found {min(slots, facts.slots)}")
    plan = _Plan(facts, sizes, slots)
    today = tuple(plan.as_is())
    proposed = (*plan.split(), *plan.capped(), *plan.grown(), *plan.queue())
    # A pool of fewer cells than slots makes windows of nothing.
    sound = (each for each in proposed if each.window > 0 and each.pool <= _MOST_CELLS)
    return (*today, *(each for each in sound if not plan.is_today(each)))


_CELLS = 256
"""What the server rounds a buffer's cells up to."""
_MOST_CELLS = 2**31 - 1
"""The largest `-c`."""
_GROWN: tuple[tuple[Option, str], ...] = (("grown_f16", "f16"), ("grown_q8", "q8_0"), ("grown_q4", "q4_0"))
_NAMES = {"f16": "16 bit", "q8_0": "8 bit", "q4_0": "4 bit"}
_UNQUANTIZED = ("f32", "f16", "bf16")


class _Plan:
    """The facts of one call, and what follows from them for all options."""

    def __init__(self, facts: SizingFacts, sizes: RequestSizeFacts, slots: int) -> None:
        self._facts = facts
        self._sizes = sizes
        self._slots = slots
        today = Geometry(facts.slots, facts.slot_context, facts.capacity, facts.shared and facts.slots > 1)
        self._guaranteed_today = today.guaranteed
        self._overcommitted_today = bool(today.shared and (today.overcommit_ratio or 0) > 1)
        self._needed = self._bounded(sizes.p95) if sizes.p95 else None
        """Window that holds the 95th percentile, as far as the model was trained for it."""
        known = [size for size in (facts.slot_context, sizes.p95, sizes.largest) if size]
        self._whole = self._bounded(max(known)) if known else None
        """Window that takes nothing away from anyone."""

    def is_today(self, proposed: Configuration) -> bool:
        """Whether it gives what the server has anyway. What is overcommitted today is never proposed."""
        facts = self._facts
        same = (proposed.slots, proposed.window, proposed.pool) == (facts.slots, facts.slot_context, facts.capacity)
        return same and proposed.cache_type in (None, self._type_today())

    def as_is(self) -> Iterator[Configuration]:
        facts = self._facts
        if facts.slot_context is None or facts.capacity is None or self._guaranteed_today is None:
            return
        if self._overcommitted_today:
            why = (
                f"nothing changes: {facts.slots} slots are promised {facts.slot_context:,} tokens each and only "
                f"{self._guaranteed_today:,} are sure, so all running requests die when their sum reaches the pool"
            )
        else:
            why = f"nothing changes: each slot is sure of {self._guaranteed_today:,} tokens"
        yield self._configuration(
            "as_is", "as it is", (), facts.slots, facts.slot_context, facts.capacity, why,
            guaranteed=self._guaranteed_today, overcommitted=self._overcommitted_today,
        )  # fmt: skip

    def split(self) -> Iterator[Configuration]:
        """Today's buffer divided, and where that is too little for most requests a larger one."""
        if self._slots == 1:
            return
        facts = self._facts
        window = 0
        if facts.capacity is not None:
            part = _padded(_padded(facts.capacity) // self._slots)
            window = self._bounded(part)
            if facts.shared is not False or facts.slots != self._slots:
                more = part * self._slots > _padded(facts.capacity)
                gain = "its parts are rounded up" if more else "no more memory than today"
                yield self._split("split", _padded(facts.capacity), part, window, gain)
        if self._needed is not None and self._needed > window:
            total = self._needed * self._slots
            part, title = _padded(_padded(total) // self._slots), "split, larger" if window else "split"
            yield self._split(title, total, part, self._needed, "sized for most requests")

    def _split(self, title: str, context: int, part: int, window: int, gain: str) -> Configuration:
        why = f"each slot has its own {window:,} tokens and a longer session fails early and alone; {gain}"
        flags = ("-c", str(context), "-np", str(self._slots))
        return self._configuration("split", title, flags, self._slots, window, part * self._slots, why)

    def capped(self) -> Iterator[Configuration]:
        window = self._needed
        if window is None and self._guaranteed_today is not None and self._overcommitted_today:
            # Without measured sizes a step between what is sure today and what is promised.
            window = self._bounded(min(2 * self._guaranteed_today, self._facts.slot_context or self._guaranteed_today))
        if window is None or self._slots == 1:
            return
        why = f"each slot is sure of {window:,} tokens out of one buffer; clients must be told that window"
        yield self._unified("capped", "unified, capped", window, None, why)
        if window == self._whole or self._type_today() is None:
            return
        for cache_type, name in _NAMES.items():
            if cache_type != self._type_today():
                title = f"unified, capped, {name}"
                yield self._unified("capped", title, window, cache_type, f"{why}; {_cost(cache_type)}")

    def grown(self) -> Iterator[Configuration]:
        window = self._whole
        if window is None:
            return
        for option, cache_type in _GROWN:
            if cache_type == self._type_today() and self._slots > 1 and window == self._needed:
                continue  # the capped one
            why = f"each slot is sure of the whole {window:,} tokens; {_cost(cache_type)}"
            title = f"whole window, {_NAMES[cache_type]}"
            if self._slots > 1:
                yield self._unified(option, title, window, cache_type, why)
            else:
                yield self._alone(option, title, window, cache_type, why)

    def queue(self) -> Iterator[Configuration]:
        """One slot as today, and at 8 bit; nothing new where there is one slot already."""
        window = self._whole
        if window is None or self._slots == 1:
            return
        why = f"one request at a time has all {window:,} tokens, the others wait in a queue"
        yield self._alone("queue", "one slot, queue", window, None, why)
        if self._type_today() != "q8_0":
            yield self._alone("queue", "one slot, queue, 8 bit", window, "q8_0", f"{why}; {_cost('q8_0')}")

    def _unified(self, option: Option, title: str, window: int, cache_type: str | None, why: str) -> Configuration:
        total = self._slots * window
        types = _type_flags(cache_type)
        flags = ("-c", str(total), "-np", str(self._slots), "-kvu", "--kv-unified-per-slot", str(window), *types)
        split = ("-c", str(total), "-np", str(self._slots), *types)
        return self._configuration(
            option, title, flags, self._slots, window, _padded(total), why, cache_type=cache_type, flags_any_build=split
        )

    def _alone(self, option: Option, title: str, window: int, cache_type: str | None, why: str) -> Configuration:
        flags = ("-c", str(window), "-np", "1", *_type_flags(cache_type))
        return self._configuration(option, title, flags, 1, window, _padded(window), why, cache_type=cache_type)

    def _configuration(
        self,
        option: Option,
        title: str,
        flags: tuple[str, ...],
        slots: int,
        window: int,
        pool: int,
        why: str,
        *,
        guaranteed: int | None = None,
        overcommitted: bool = False,
        cache_type: str | None = None,
        flags_any_build: tuple[str, ...] = (),
    ) -> Configuration:
        sure = window if guaranteed is None else guaranteed
        each = self._bytes_per_token(cache_type)
        kv_bytes = None if each is None else round(each * pool)
        memory = self._facts.memory_bytes
        left = None if memory is None or kv_bytes is None else memory - kv_bytes
        notes = [why, *self._shortfall(sure)]
        if left is not None and left < 0:
            notes.append("it does not fit into the memory there is")
        return Configuration(
            option, title, flags, slots, window, sure, pool, overcommitted, kv_bytes, left, self._sizes.fitting(sure),
            "; ".join(notes), flags_any_build, cache_type,
        )  # fmt: skip

    def _shortfall(self, sure: int) -> Iterator[str]:
        p95, trained = self._sizes.p95, self._facts.context_train
        if p95 and p95 > sure:
            limit = f", the model was trained on no more than {trained:,}" if trained and sure >= trained else ""
            yield f"too little for the 95th percentile of {p95:,} tokens{limit}"

    def _bounded(self, tokens: int) -> int:
        """A window for so many tokens: whole cells' blocks, within the training context."""
        window = _padded(tokens)
        return min(window, self._facts.context_train) if self._facts.context_train else window

    def _type_today(self) -> str | None:
        """The cache type of both K and V; None if they differ or are not known."""
        k, v = self._facts.cache_type_k, self._facts.cache_type_v
        return k.lower() if k is not None and v is not None and k.lower() == v.lower() else None

    def _bytes_per_token(self, cache_type: str | None) -> Fraction | None:
        """Bytes per token with another cache type for K and V; None: today's. K and V are taken to be equally wide."""
        facts = self._facts
        if facts.kv_bytes_per_token is None:
            return None
        today = Fraction(facts.kv_bytes_per_token)
        if cache_type is None:
            return today
        if facts.cache_type_k is None or facts.cache_type_v is None:
            return None
        k, v, new = (bytes_per_element(name) for name in (facts.cache_type_k, facts.cache_type_v, cache_type))
        return None if k is None or v is None or new is None else today * 2 * new / (k + v)


def _padded(tokens: int) -> int:
    return -(-tokens // _CELLS) * _CELLS


def _type_flags(cache_type: str | None) -> tuple[str, ...]:
    """Types for K and V. A quantized V needs flash attention, which is not left to the server's own choice."""
    if cache_type is None:
        return ()
    flash = () if cache_type in _UNQUANTIZED else ("-fa", "on")
    return ("-ctk", cache_type, "-ctv", cache_type, *flash)


def _cost(cache_type: str) -> str:
    """What a cache type costs besides memory."""
    if cache_type == "f16":
        return "its cache of 16 bit loses no quality"
    loss = "a little" if cache_type == "q8_0" else "noticeable"
    return f"its cache of {_NAMES[cache_type]} costs {loss} quality and needs flash attention"
