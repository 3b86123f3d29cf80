"""Sizes and speeds of one server's requests, as its log tells them at their end."""

from __future__ import annotations

from kvexporter import histogram
from kvexporter.histogram import Histogram
from kvexporter.llama import events as ev

_Ended = dict[int, tuple[int | None, int]]
"""Slot → (task, tokens)."""


class RequestSizes:
    """Histograms over requests; one observation for each line that tells it."""

    def __init__(self) -> None:
        self.tokens = Histogram(histogram.TOKENS)
        self.prompt_tokens = Histogram(histogram.TOKENS)
        self.prompt_speed = Histogram(histogram.PROMPT_SPEED)
        self.generation_speed = Histogram(histogram.GENERATION_SPEED)
        self._header: tuple[int, int | None] | None = None
        self._generated: _Ended = {}
        self._released: _Ended = {}

    def restart(self) -> None:
        """A new process: halves of requests of the old one stay halves."""
        self._header = None
        self._generated.clear()
        self._released.clear()

    def released(self, event: ev.Released, prompt: int | None) -> None:
        """A request ended; `prompt` is its prompt's size where it was logged."""
        self.tokens.observe(event.tokens)
        if prompt is not None:
            self.prompt_tokens.observe(prompt)
            return
        self._released[event.slot] = (event.task, event.tokens)
        self._derive_prompt(event.slot)

    def timing(self, event: ev.Timing | ev.TimingHeader) -> None:
        """One of a task's closing lines."""
        if isinstance(event, ev.TimingHeader):
            self._header = (event.slot, event.task)
            return
        owner = (event.slot, event.task) if event.slot is not None else self._header
        if event.kind == "prompt" and event.tokens_per_second is not None:
            self.prompt_speed.observe(event.tokens_per_second)
        elif event.kind == "generation":
            if event.tokens_per_second is not None:
                self.generation_speed.observe(event.tokens_per_second)
            if owner is not None:
                self._generated[owner[0]] = (owner[1], event.tokens)
                self._derive_prompt(owner[0])

    def _derive_prompt(self, slot: int) -> None:
        """A task's final size less its answer is its prompt; builds print the two in either order."""
        released, generated = self._released.get(slot), self._generated.get(slot)
        if released is None or generated is None or released[0] != generated[0]:
            return
        del self._released[slot], self._generated[slot]
        # The answer's last token never enters the cache.
        self.prompt_tokens.observe(max(0, released[1] - generated[1] + 1))
