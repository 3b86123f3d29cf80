"""What the running requests will need of the pool, and when it will be full if it goes on like this.

Works from the slots as the log and `/slots` show them, at the times of those words, so the same code runs live and on
recordings. No clock, no I/O; what is kept is bounded, and is rebuilt after a restart. docs/forecast.md has it in words.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

from kvexporter.conversations import Conversations
from kvexporter.peaks import PeakTrend
from kvexporter.pool_geometry import Geometry
from kvexporter.slot_state import SlotState

SAMPLE_SECONDS = 0.5
"""The slots are looked at so often."""

SPEED_SECONDS = 30.0
"""Speeds are means over this time: on a slow machine a batch of 2048 takes ten seconds."""

LEAST_SECONDS = 3.0
"""No speed from less than this time of reading or of answering."""

SILENCE_SECONDS = 30.0
"""Without a word for so long nothing is known of what requests do now."""

LATEST_REQUESTS = 16
"""A request of untold size is compared with so many …"""

SOME_REQUESTS = 4
"""… or with at least so many; of fewer the smallest counts."""

USUAL = 0.7
"""It is taken to be as large as this part of them are at most: to be warned in vain costs less than not to be."""

UNTOLD_SECONDS = 5.0
"""What is untold so long after its launch waits for others: of a prompt that is read the size is told after 3 s."""

COMPACTED = 0.95
"""Clients that were told the window that a slot is sure of compact before their prompt is larger than this part of it,
for its answer needs room too."""

CLOCK_STEP_SECONDS = 60.0
"""Times that go back further than late lines do: the clock was set."""


def committed_tokens(slots: Iterable[SlotState], context: int | None) -> int:
    """Tokens that the running requests will hold once their prompts are read, with their answers as they are now."""
    return _needed(slots, context, limits=False)


def demand_tokens(slots: Iterable[SlotState], context: int | None) -> int:
    """The same with the answers of those requests that limit them written up to that limit."""
    return _needed(slots, context, limits=True)


def can_overflow(geometry: Geometry) -> bool:
    """Whether the pool can be full before each slot is: it is shared, and more is promised than there is."""
    ratio = geometry.overcommit_ratio
    return geometry.shared is True and ratio is not None and ratio > 1


class Forecast:
    """Seconds until one server's pool is full. Facts come with rising times; a step back begins anew."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """The cache is new, or the clock was set: what was seen says nothing any more."""
        self._speeds = _Speeds()
        self._requests = _Sizes()
        self._trend = PeakTrend()
        self._conversations = Conversations()
        self._last: float | None = None
        self._ran = True
        """Something ran at the last look, or there was none yet."""

    def observe(self, slots: Iterable[SlotState], geometry: Geometry, at: float) -> None:
        """The slots are like this at `at`. Looks at them twice a second at most."""
        if self._last is not None and at < self._last + SAMPLE_SECONDS:
            if at >= self._last - CLOCK_STEP_SECONDS:
                return
            self.restart()
        self._last = at
        if not geometry.capacity:
            return
        running = [state for state in slots if state.processing]
        if not running and not self._ran:
            return  # as at the look before: nothing has come to what is known
        self._ran = bool(running)
        self._speeds.sample(running, at)
        sizes = [_whole(state, geometry.slot_context, limits=False) for state in running]
        self._requests.sample(running, sizes)
        needed = committed_tokens(running, geometry.slot_context)
        self._conversations.sample(running, sizes, at)
        # What goes on with nothing is no conversation that grows; where nobody tells, it may be one.
        growing = (state.prompt_floor for state in running if state.reused != 0)
        self._trend.observe(needed, max(growing, default=0), geometry.capacity, at)

    def seconds_to_full(self, slots: Iterable[SlotState], held: int, geometry: Geometry, now: float) -> float | None:
        """Seconds from `now` on; None where it is not filling, too little is known, or the pool cannot overflow."""
        if self._last is None or not geometry.capacity or not can_overflow(geometry):
            return None
        window = round(COMPACTED * (geometry.guaranteed or 0))
        left = (
            self._by_what_runs(slots, geometry.capacity - held, geometry.slot_context, now),
            self._trend.seconds_to_full(geometry.capacity, window, now),
            self._conversations.seconds_to_full(geometry.capacity, window, geometry.slot_context, now),
        )
        return min((seconds for seconds in left if seconds is not None), default=None)

    def _by_what_runs(self, slots: Iterable[SlotState], room: int, context: int | None, now: float) -> float | None:
        """If the prompts are read to their ends, and each answer gets as long again as it is, at the speeds of now.

        A prompt whose size nobody has told for some seconds, as it waits for others, is taken to be of the usual size,
        unless it goes on with a conversation that is in the cache.
        """
        if self._last is None or now - self._last > SILENCE_SECONDS:
            return None
        reading, answering = self._speeds.reading(now), self._speeds.answering(now)
        usual = self._requests.usual
        unread = 0
        answers: list[int] = []
        for state in slots:
            if not state.processing:
                continue
            held = state.tokens or 0
            bound = max(0, context - held) if context is not None else held
            if state.decoded > 0:
                answers.append(min(bound, state.decoded, state.decoded if state.remaining is None else state.remaining))
            elif state.parent is None:
                size = state.expected_prompt
                if size is None and now - state.started_at >= UNTOLD_SECONDS and (not held or state.reused == 0):
                    size = usual  # else it goes on with what is there, and how far nobody knows
                unread += min(bound, max(0, (size or 0) - held))
        return _seconds_until(room, unread, reading, sorted(answers), answering)


def _needed(slots: Iterable[SlotState], context: int | None, *, limits: bool) -> int:
    total = 0
    families: set[int | None] = set()
    children: list[SlotState] = []
    for state in slots:
        if not state.processing:
            continue
        if state.parent is not None:
            children.append(state)
            continue
        total += _whole(state, context, limits=limits)
        families.add(state.task)
    for state in children:
        if state.parent in families:
            total += _within(max(0, state.decoded - 1) + (_to_come(state) if limits else 0), context)
        else:
            # With its parent gone, one of the answers still holds the prompt.
            total += _whole(state, context, limits=limits)
            families.add(state.parent)
    return total


def _whole(state: SlotState, context: int | None, *, limits: bool) -> int:
    held = state.tokens or 0
    if state.decoded == 0 or state.tokens is None:
        held = max(held, (state.expected_prompt or 0) + max(0, state.decoded - 1))
    return _within(held + (_to_come(state) if limits else 0), context)


def _to_come(state: SlotState) -> int:
    """What the answer may still get, up to its limit; the last token never enters the cache."""
    if not state.remaining:
        return 0
    return state.remaining if state.decoded > 0 else state.remaining - 1


def _within(tokens: int, context: int | None) -> int:
    return tokens if context is None else min(tokens, context)


def _seconds_until(
    room: int, unread: int, reading: float | None, answers: list[int], answering: float | None
) -> float | None:
    """When growth fills `room`: `unread` tokens at the speed `reading`, each of `answers` (rising) at `answering`."""
    if room <= 0:
        return 0.0
    ends = [(tokens / answering, answering) for tokens in answers if tokens] if answering else []
    if unread and reading:
        ends.append((unread / reading, reading))
    ends.sort()
    speed = sum(part for _, part in ends)
    passed = 0.0
    left = float(room)
    for end, part in ends:
        grown = speed * (end - passed)
        if grown >= left:
            return passed + left / speed
        left -= grown
        passed = end
        speed -= part
    return None


class _Sizes:
    """How large requests usually are, by the latest ones whose size is known."""

    def __init__(self) -> None:
        self._latest: OrderedDict[tuple[int, int | None, float], int] = OrderedDict()
        """(slot, task, start) → tokens, as they were seen last."""

    def sample(self, running: list[SlotState], sizes: list[int]) -> None:
        """Look at the running requests, whose sizes as far as they are known are `sizes`."""
        for state, size in zip(running, sizes, strict=True):
            if state.parent is None and (state.decoded > 0 or state.expected_prompt is not None):
                self._latest[state.id, state.task, state.started_at] = size
        while len(self._latest) > LATEST_REQUESTS:
            self._latest.popitem(last=False)

    @property
    def usual(self) -> int:
        """Tokens of a request: of two or three the smallest, as they say little; 0 while fewer are known."""
        known = sorted(self._latest.values())
        if len(known) < SOME_REQUESTS:
            return known[0] if len(known) > 1 else 0
        place = USUAL * (len(known) - 1)
        below, part = known[int(place)], place % 1
        return round(below + part * (known[min(int(place) + 1, len(known) - 1)] - below))


class _Speeds:
    """How fast prompts are read (all together) and answers written (each), as means over the last half minute."""

    def __init__(self) -> None:
        self.at = -SPEED_SECONDS
        self._slots: dict[int, tuple[int | None, int, int]] = {}
        """Slot → (task, tokens, of these the answer's), as it was seen last."""
        self._reads = False
        self._answers = 0
        self._sums = (0, 0.0, 0, 0.0)
        """Tokens read, seconds in which prompts were read, tokens answered, seconds of answering slots together."""
        self._history: deque[tuple[float, tuple[int, float, int, float]]] = deque(maxlen=int(SPEED_SECONDS * 2) + 2)

    def sample(self, slots: Iterable[SlotState], at: float) -> None:
        """Look at the slots as they are at `at`."""
        read, reading, answered, answering = self._sums
        passed = max(0.0, at - self.at)
        reading += passed if self._reads else 0.0
        answering += passed * self._answers
        seen: dict[int, tuple[int | None, int, int]] = {}
        self._reads, self._answers = False, 0
        for state in slots:
            if not state.processing or state.tokens is None:
                continue
            before = self._slots.get(state.id)
            if before is not None and before[0] == state.task:
                grown = max(0, state.tokens - before[1])
                written = min(grown, max(0, state.decoded - before[2]))
                read += grown - written
                answered += written
            seen[state.id] = (state.task, state.tokens, state.decoded)
            if state.decoded > 0:
                self._answers += 1
            else:
                self._reads = True
        self._slots = seen
        self._sums = (read, reading, answered, answering)
        self.at = at
        self._history.append((at, self._sums))
        while at - self._history[0][0] > SPEED_SECONDS:
            self._history.popleft()

    def reading(self, now: float) -> float | None:
        """Tokens a second of all prompts together, while prompts are read."""
        return self._speed(0, now)

    def answering(self, now: float) -> float | None:
        """Tokens a second of one answer."""
        return self._speed(2, now)

    def _speed(self, which: int, now: float) -> float | None:
        first = next((sums for at, sums in self._history if now - at <= SPEED_SECONDS), None)
        if first is None:
            return None
        tokens, seconds = self._sums[which] - first[which], self._sums[which + 1] - first[which + 1]
        return tokens / seconds if seconds >= LEAST_SECONDS and tokens > 0 else None
