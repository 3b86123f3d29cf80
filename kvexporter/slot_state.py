"""What is known of one slot: what it holds, which task it runs, and how large that one's prompt is.

Every word counts from its own time on; what is older than the latest one is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass

LONG_AGO = -1e18


@dataclass(slots=True)
class SlotState:
    """What is known of one slot."""

    id: int
    tokens: int | None
    """Held now. None: unknown, as right after a launch, when nobody has said what of the old cache is kept."""
    processing: bool = False
    task: int | None = None
    released_task: int | None = None
    """The last task whose release was logged: what polls still show of it is older."""
    carried: int | None = 0
    """Cache that was held when the running task was launched: given back as needed, until its size is told."""
    cached: int | None = None
    """The same, remembered while the task runs."""
    chosen: tuple[float, float, float] | None = None
    """Of the request that it was chosen for and does not run yet: the prompt's size by that of its cache, the part of
    the cache that both have in common, and by which part of it the size may be off."""
    estimated_prompt: int | None = None
    """The whole prompt's size by what it has in common with the slot's cache, as was logged when the slot was chosen:
    known before it is read, and rounded. For what is forecast only."""
    estimated_at_least: int | None = None
    """The same, with its rounding taken off."""
    prompt_tokens: int | None = None
    prompt_at_least: float = 0.0
    prompt_at_most: float = float(2**53)
    """Bounds of the whole prompt's size, from rounded progress figures, where no line tells it."""
    decoded: int = 0
    shifted: int = 0
    remaining: int | None = None
    reused: int | None = None
    """Tokens of its prompt that were there already, as polls of newer builds tell it, and the log of older ones."""
    parent: int | None = None
    """The task that shares its prompt's cells with this one (a request with several answers)."""
    started_at: float = 0.0
    changed_at: float = 0.0
    valued_at: float = LONG_AGO
    """Time of the latest word on how much it holds."""
    polled_at: float = LONG_AGO
    """Time of the latest poll that showed this slot."""
    watched: bool = False
    """Something shows the running task's progress now, so that silence means a stall."""

    def begin(self, task: int | None, at: float) -> None:
        self.processing, self.task = True, task
        self.carried = self.cached = self.tokens
        self.tokens = self.estimated_prompt = self.estimated_at_least = None
        self.prompt_tokens = self.remaining = self.parent = self.reused = None
        self.prompt_at_least, self.prompt_at_most = 0.0, float(2**53)
        self.decoded = self.shifted = 0
        self.started_at = self.changed_at = at
        self.watched = False

    def finish(self, tokens: int | None, at: float) -> None:
        self.processing = False
        self.prompt_tokens = self.remaining = self.parent = None
        self.estimated_prompt = self.estimated_at_least = None
        self.decoded = self.shifted = 0
        self.carried = 0
        self.tokens = tokens
        self.valued_at = max(self.valued_at, at)

    def hold(self, tokens: int, at: float, until: float | None = None) -> None:
        """It holds `tokens` at `at`, or at a time from then `until`; an older word than the latest one says nothing.

        Of two words on overlapping times the larger one is the later one: a running task's tokens grow.
        """
        if at < self.valued_at:
            overlaps = self.processing and until is not None and until >= self.valued_at
            if not overlaps or self.tokens is None or tokens <= self.tokens:
                return
            at = self.valued_at
        if tokens != self.tokens:
            self.changed_at = max(self.changed_at, at)
        self.tokens, self.carried, self.valued_at = tokens, 0, at

    def answer(self, decoded: int, at: float) -> None:
        """The answer has `decoded` tokens; the last one is not in the cache yet."""
        if at < self.valued_at:
            return
        if decoded != self.decoded:
            self.changed_at = max(self.changed_at, at)
        self.decoded = decoded
        prompt = self.prompt_size
        if decoded > 0 and prompt is not None:
            self.hold(max(0, prompt + decoded - 1 - self.shifted), at)

    @property
    def prompt_size(self) -> int | None:
        """The whole prompt's size as told, or within the rounding of the progress figures."""
        if self.prompt_tokens is not None or self.prompt_at_least <= 0:
            return self.prompt_tokens
        return round((self.prompt_at_least + min(self.prompt_at_most, self.prompt_at_least * 1.01)) / 2)

    def launched(self) -> None:
        """The task it was chosen for is launched: what was said then tells its prompt's size by that of the cache."""
        chosen, self.chosen = self.chosen, None
        if chosen is None or not self.cached:
            return
        by_cache, kept, rounding = chosen
        self.estimated_prompt = round(self.cached * by_cache)
        self.estimated_at_least = int(self.cached * by_cache * (1 - rounding))
        if self.reused is None and kept >= 0.5:  # of less, a better one may be fetched from the host's memory
            self.reused = round(self.cached * kept)

    @property
    def expected_prompt(self) -> int | None:
        """The whole prompt's size as told, else by the rounded progress figures, else as estimated; None: unknown.

        Within what the progress figures allow, the estimate is taken, or the middle without one.
        `prompt_size` is for what is held, and errs on the low side.
        """
        if self.prompt_tokens is not None:
            return self.prompt_tokens
        if self.prompt_at_least <= 0:
            return self.estimated_prompt
        if self.estimated_prompt is not None:
            return round(min(max(self.estimated_prompt, self.prompt_at_least), self.prompt_at_most))
        most = min(self.prompt_at_most, 1.5 * self.prompt_at_least)  # the first one per cent alone bounds nothing
        return round((self.prompt_at_least + most) / 2)

    @property
    def prompt_floor(self) -> int:
        """What the whole prompt is at least: not more than it is, as `expected_prompt` may be."""
        if self.prompt_tokens is not None:
            return self.prompt_tokens
        if self.prompt_at_least > 0:
            return int(self.prompt_at_least)  # what is held may be made of its middle, once an answer is written
        if self.decoded > 0:
            return max(0, (self.tokens or 0) - self.decoded + 1)
        return self.estimated_at_least or 0

    @property
    def own_tokens(self) -> int | None:
        """What it holds without the prompt that it shares with its parent."""
        return self.tokens if self.parent is None or self.tokens is None else min(self.tokens, max(0, self.decoded - 1))
