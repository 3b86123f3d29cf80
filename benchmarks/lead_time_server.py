"""A llama-server in simulated time: which requests it takes when, and what becomes of its pool.

It knows slots, a shared pool, batches of 2048, prompts that are read in the order of the slots while the others'
answers wait for the batch, and the error when a batch finds no room. A request gets the slot whose cache it has most in
common with, or the one that was used longest ago; caches that have to go are kept in the host's memory and fetched from
there.
"""

from __future__ import annotations

import random
from collections import deque

from benchmarks.lead_time_client import COMPACTED, Ask, Client
from benchmarks.lead_time_dialect import SIMILARITY, Speaker
from benchmarks.lead_time_machine import BATCH, Machine, Slot
from benchmarks.lead_time_recording import Recording

SLICE = 0.25
"""Answers advance by so many seconds at a time while no prompt is read."""


class SimulatedServer:
    """One run of a server with its clients."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self.recording = Recording()
        self._speaker = Speaker(machine, self.recording.facts)
        self._machine = machine
        self._random = random.Random(seed)
        self._slots = [Slot(number) for number in range(machine.slots)]
        self._queue: deque[tuple[Client, Ask]] = deque()
        self._waiting: list[tuple[float, int, Client]] = []
        self._now = 0.0
        self._tasks = 0
        self._order = 0
        self._begun = False
        self._saved: dict[Client, int] = {}
        """Caches in the host's memory, by whose conversation they hold: tokens."""

    def run(self, clients: list[Client], until: float) -> Recording:
        """Serve these clients until a request fails, they have ended, or the time is over."""
        self._speaker.started(self._now, self._slots)
        for client in clients:
            self._go_on(client, None)
        while self._now < until and self.recording.failed_at is None:
            self._wake()
            self._launch()
            if any(slot.ask is not None for slot in self._slots):
                self._compute()
            elif self._waiting:
                self._now = max(self._now, min(self._waiting)[0])
            else:
                break
        self.recording.ended = self._now
        return self.recording

    # ---- clients -----------------------------------------------------------------------------------------------

    def _go_on(self, client: Client, outcome: bool | None) -> None:
        try:
            wish = next(client) if outcome is None else client.send(outcome)
        except StopIteration:
            return
        if isinstance(wish, Ask):
            self._queue.append((client, wish))
        else:
            self._order += 1
            self._waiting.append((self._now + wish, self._order, client))

    def _wake(self) -> None:
        due = sorted(entry for entry in self._waiting if entry[0] <= self._now)
        self._waiting = [entry for entry in self._waiting if entry[0] > self._now]
        for _, _, client in due:
            self._go_on(client, None)

    def _launch(self) -> None:
        idle = [slot for slot in self._slots if slot.ask is None]
        while self._queue and idle:
            client, ask = self._queue.popleft()
            slot = self._choose(idle, client, ask)
            idle.remove(slot)
            self._tasks += self._random.randint(1, 5)
            slot.client, slot.ask, slot.task = client, ask, self._tasks
            slot.decoded, slot.processed, slot.reading_since = 0, 0, None
            slot.answer_told = self._now
            if ask.prompt > COMPACTED * self._machine.capacity / self._machine.slots:
                self.recording.beyond_window_at = self.recording.beyond_window_at or self._now
            if ask.begins:
                self.recording.began, self._begun = self._now, True
            self._look_ahead()
            self._speaker.launched(self._now, slot)
            if self._machine.dialect == "b11434":
                for other in idle:
                    self._save(other)
                    other.held = 0

    def _choose(self, idle: list[Slot], client: Client, ask: Ask) -> Slot:
        """The slot for a request, with what of the cache it goes on with."""
        slot = max(idle, key=lambda slot: slot.common(client, ask))
        common = slot.common(client, ask)
        similarity = common / ask.prompt
        if similarity > SIMILARITY:
            kept = common / slot.held
            self._speaker.chosen_by_cache(self._now, slot, similarity, kept)
        else:
            slot = min(idle, key=lambda slot: (slot.used_at, -slot.id))
            common, kept = slot.common(client, ask), 0.0
            self._speaker.chosen_by_age(self._now, slot)
        if kept < 0.5:
            self._save(slot)
            saved = self._saved.get(client, 0)
            better = min(ask.cached, saved, ask.prompt)
            others = sum(other.held for other in self._slots if other is not slot)
            if better > common and better >= 0.25 * saved and saved <= self._machine.capacity - others:
                slot.held, common = saved, better
        self._saved.pop(client, None)
        slot.reused = min(common, ask.prompt - 1)
        return slot

    def _save(self, slot: Slot) -> None:
        if slot.client is not None and slot.held:
            self._saved[slot.client] = slot.held

    # ---- batches -----------------------------------------------------------------------------------------------

    def _compute(self) -> None:
        machine = self._machine
        held = self._held()
        answering = [slot for slot in self._slots if slot.ask is not None and slot.decoded > 0]
        reading = [slot for slot in self._slots if slot.ask is not None and slot.decoded == 0]
        step = (1 + held / 400_000) / machine.answering
        steps = 1
        if not reading:
            ends = min(slot.ask.answer - slot.decoded for slot in answering if slot.ask is not None)
            steps = max(1, min(int(SLICE / step), ends))
        parts: list[tuple[Slot, int]] = []
        left = BATCH - len(answering)
        for slot in reading:
            part = min(left, slot.unread)
            if part <= 0:
                break
            if slot.reading_since is None:
                slot.reading_since, slot.held = self._now, slot.reused
                self._speaker.prompt_started(self._now, slot)
            parts.append((slot, part))
            left -= part
        tokens = sum(part for _, part in parts)
        held = self._held()
        self._purge(tokens + len(answering))
        room = machine.capacity - held
        if tokens + len(answering) > room:
            self._fail(tokens + len(answering), room)
            return
        steps = min(steps, room // max(1, len(answering)))
        seconds = tokens * (1 + held / 200_000) / machine.reading + steps * step
        for slot, part in parts:
            slot.held += part
        self.recording.peak = max(self.recording.peak, (held + tokens + steps * len(answering)) / machine.capacity)
        self._speaker.polled(self._now, self._now + seconds, self._slots)
        self._now += seconds
        for slot in answering:
            slot.decoded += steps
            slot.held += steps
            self._speaker.answered(self._now, slot)
        for slot, part in parts:
            slot.processed += part
            if slot.unread <= 0:
                slot.decoded = 1
                slot.answer_told = self._now
            self._speaker.prompt_read(self._now, slot)
        for slot in answering:
            if slot.ask is not None and slot.decoded >= slot.ask.answer:
                self._finish(slot)

    def _held(self) -> int:
        """Tokens of running requests."""
        return sum(slot.held for slot in self._slots if slot.ask is not None)

    def _purge(self, batch: int) -> None:
        """Make room for a batch by the caches of idle slots, one after the other."""
        for slot in self._slots:
            if sum(other.held for other in self._slots) + batch <= self._machine.capacity:
                return
            if slot.ask is None and slot.held:
                self._speaker.purged(self._now, slot, batch)
                slot.held = 0

    def _finish(self, slot: Slot) -> None:
        client = slot.client
        self._release(slot)
        if client is not None:
            self._go_on(client, True)

    def _release(self, slot: Slot) -> None:
        self._speaker.released(self._now, slot)
        slot.ask, slot.used_at = None, self._now
        if self.recording.failed_at is None:
            self._look_ahead()

    def _look_ahead(self) -> None:
        """Note since when the running requests need more than there is; nobody but the simulation knows it."""
        needed = sum(slot.ask.prompt + slot.ask.answer - 1 for slot in self._slots if slot.ask is not None)
        if self._begun:
            return
        if needed <= self._machine.capacity:
            self.recording.began = None
        elif self.recording.began is None:
            self.recording.began = self._now

    def _fail(self, batch: int, room: int) -> None:
        """A batch finds no room: all requests fail."""
        self.recording.failed_at = self._now
        self.recording.peak = 1.0
        self._speaker.found_no_room(self._now, batch, room)
        for slot in self._slots:
            if slot.ask is not None:
                self._speaker.failed(self._now, slot)
                self._release(slot)
