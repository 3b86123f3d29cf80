"""Sizes and speeds of one server's requests, as its log tells them at their end."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvexporter import histogram
from kvexporter.histogram import Histogram
from kvexporter.llama import events as ev
from kvexporter.llama.slots import MOST_SLOTS

_Ended = dict[int, tuple[int | None, int]]
"""Slot → (task, tokens)."""


def _tokens() -> Histogram:
    return Histogram(histogram.TOKENS)


@dataclass(slots=True)
class RequestSizes:
    """Histograms over requests; one observation for each line that tells it."""

    tokens: Histogram = field(default_factory=_tokens)
    prompt_tokens: Histogram = field(default_factory=_tokens)
    prompt_speed: Histogram = field(default_factory=lambda: Histogram(histogram.PROMPT_SPEED))
    generation_speed: Histogram = field(default_factory=lambda: Histogram(histogram.GENERATION_SPEED))
    header: tuple[int, int | None] | None = None
    """(slot, task) that untagged timing lines belong to."""
    half_generated: _Ended = field(default_factory=dict)
    half_released: _Ended = field(default_factory=dict)

    def restart(self) -> None:
        """A new process: halves of requests of the old one stay halves."""
        self.header = None
        self.half_generated.clear()
        self.half_released.clear()

    def released(self, event: ev.Released, prompt: int | None) -> None:
        """A request ended; `prompt` is its prompt's size where it was logged."""
        self.tokens.observe(event.tokens)
        if prompt is not None:
            self.prompt_tokens.observe(prompt)
            return
        if len(self.half_released) < MOST_SLOTS or event.slot in self.half_released:
            self.half_released[event.slot] = (event.task, event.tokens)
        self._derive_prompt(event.slot)

    def timing(self, event: ev.Timing | ev.TimingHeader) -> None:
        """One of a task's closing lines."""
        if isinstance(event, ev.TimingHeader):
            self.header = (event.slot, event.task)
            return
        owner = (event.slot, event.task) if event.slot is not None else self.header
        if event.kind == "prompt" and event.tokens_per_second is not None:
            self.prompt_speed.observe(event.tokens_per_second)
        elif event.kind == "generation":
            if event.tokens_per_second is not None:
                self.generation_speed.observe(event.tokens_per_second)
            if owner is not None:
                if len(self.half_generated) < MOST_SLOTS or owner[0] in self.half_generated:
                    self.half_generated[owner[0]] = (owner[1], event.tokens)
                self._derive_prompt(owner[0])

    def _derive_prompt(self, slot: int) -> None:
        """A task's final size less its answer is its prompt; builds print the two in either order."""
        released, generated = self.half_released.get(slot), self.half_generated.get(slot)
        if released is None or generated is None or released[0] != generated[0]:
            return
        del self.half_released[slot], self.half_generated[slot]
        # The answer's last token never enters the cache.
        self.prompt_tokens.observe(max(0, released[1] - generated[1] + 1))
