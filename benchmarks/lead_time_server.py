"""A llama-server in simulated time: what it would log and answer, in the form of b11434 or of b8635.

It knows slots, a shared pool, batches of 2048, prompts that are read in the order of the slots while the others'
answers wait for the batch, and the error when a batch finds no room. A request gets the slot whose cache it has most in
common with, or the one that was used longest ago; caches that have to go are kept in the host's memory and fetched from
there. Clients are generators: they give seconds to wait, or an Ask whose outcome they get back.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Literal

BATCH = 2048
COMPACTED = 0.95
"""Clients that were told a window compact before their prompt is larger than this part of it: its answer needs room."""
SIMILARITY = 0.1
"""A slot is chosen for its cache if more than this part of the prompt is there (--slot-prompt-similarity)."""
SLICE = 0.25
"""Answers advance by so many seconds at a time while no prompt is read."""

FIRST_LINES = {
    "b11434": (
        "srv  llama_server: initializing ...",
        "cmn  common_param: common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)",
        "srv    load_model: loading model 'tiny.gguf'",
        "srv    load_model: initializing, n_slots = {slots}, n_ctx_slot = {context}, kv_unified = 'true'",
        "srv  llama_server: model loaded",
        "srv  llama_server: listening on http://127.0.0.1:8080",
    ),
    "b8635": (
        "build: 8635 (0000000) with GNU 12.2.0 for Linux x86_64",
        "main: loading model",
        "srv    load_model: loading model 'tiny.gguf'",
        "llama_context: n_ctx         = {context}",
        "llama_context: kv_unified    = true",
        "llama_kv_cache: size =   48.00 MiB ({context:6} cells,   2 layers,  {slots}/1 seqs), "
        "K (f16):   24.00 MiB, V (f16):   24.00 MiB",
        "srv    load_model: initializing slots, n_slots = {slots}",
        "main: model loaded",
        "main: server is listening on http://127.0.0.1:8080",
    ),
}

Dialect = Literal["b11434", "b8635"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a client, in tokens."""

    prompt: int
    answer: int
    """As long as it will be."""
    limit: int | None = None
    """As the client asked for; None: no limit."""
    cached: int = 0
    """The beginning of the prompt that the client's last request and its answer had as well."""
    begins: bool = False
    """The build-up to an overflow begins with its launch, whatever runs beside it."""


Client = Generator[float | Ask, bool, None]


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of the log, or an answer of /slots."""

    at: float
    body: bytes
    asked: float | None = None
    """When /slots was asked for; None: a line."""


@dataclass(slots=True)
class Recording:
    """What one run gave."""

    facts: list[Fact] = field(default_factory=list)
    began: float | None = None
    """When the build-up began: with the launch that was said to begin it, else with the one from which on the running
    requests needed more than the pool."""
    failed_at: float | None = None
    """When the first request failed."""
    ended: float = 0.0
    peak: float = 0.0
    """Highest fill of running requests."""
    beyond_window_at: float | None = None
    """When the first prompt was launched that no client sends which keeps within the window that a slot is sure of."""


@dataclass(slots=True)
class _Slot:
    id: int
    client: Client | None = None
    """Whose conversation the cache holds."""
    ask: Ask | None = None
    task: int = -1
    held: int = 0
    """As long as its prompt waits to be read, all of the cache that it was launched with."""
    reused: int = 0
    processed: int = 0
    """Of the prompt, in batches that are done, as /slots tells it."""
    decoded: int = 0
    reading_since: float | None = None
    answer_told: float = 0.0
    used_at: float = -1.0
    """When its last request ended."""

    @property
    def unread(self) -> int:
        if self.ask is None or self.decoded:
            return 0
        return self.ask.prompt - (self.reused if self.reading_since is None else self.held)

    def common(self, client: Client, ask: Ask) -> int:
        """Tokens at the beginning that the cache and a request's prompt have in common."""
        return min(ask.cached, self.held, ask.prompt) if self.client is client else 0


@dataclass(frozen=True, slots=True)
class Machine:
    """Sizes and speeds of a server."""

    capacity: int
    slots: int
    reading: float
    """Tokens of prompts a second, with an empty cache."""
    answering: float
    """Tokens a second of one answer."""
    dialect: Dialect = "b11434"


class SimulatedServer:
    """One run of a server with its clients."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self.recording = Recording()
        self._machine = machine
        self._random = random.Random(seed)
        self._slots = [_Slot(number) for number in range(machine.slots)]
        self._queue: deque[tuple[Client, Ask]] = deque()
        self._waiting: list[tuple[float, int, Client]] = []
        self._now = 0.0
        self._polled = 0.0
        self._tasks = 0
        self._order = 0
        self._begun = False
        self._saved: dict[Client, int] = {}
        """Caches in the host's memory, by whose conversation they hold: tokens."""

    def run(self, clients: list[Client], until: float) -> Recording:
        """Serve these clients until a request fails, they have ended, or the time is over."""
        for text in FIRST_LINES[self._machine.dialect]:
            self._line(text.format(slots=self._machine.slots, context=self._machine.capacity), "")
        if self._machine.dialect == "b8635":
            for slot in self._slots:
                self._line(f"slot   load_model: id {slot.id:2} | task -1 | new slot, n_ctx = {self._machine.capacity}")
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
            self._line(f"slot launch_slot_: id {slot.id:2} | task {slot.task} | processing task, is_child = 0")
            if self._machine.dialect == "b11434":
                for other in idle:
                    self._save(other)
                    other.held = 0

    def _choose(self, idle: list[_Slot], client: Client, ask: Ask) -> _Slot:
        """The slot for a request, with what of the cache it goes on with."""
        slot = max(idle, key=lambda slot: slot.common(client, ask))
        common = slot.common(client, ask)
        similarity = common / ask.prompt
        if similarity > SIMILARITY:
            name = "f_sim_best" if self._machine.dialect == "b11434" else "sim_best"
            kept = common / slot.held
            how = f"LCP similarity, {name} = {similarity:.3f} (> {SIMILARITY:.3f} thold), f_keep = {kept:.3f}"
        else:
            slot = min(idle, key=lambda slot: (slot.used_at, -slot.id))
            common, kept = slot.common(client, ask), 0.0
            how = f"LRU, t_last = {round(slot.used_at * 1e6) if slot.used_at >= 0 else -1}"
        self._line(f"slot get_availabl: id {slot.id:2} | task -1 | selected slot by {how}")
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

    def _save(self, slot: _Slot) -> None:
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
        parts: list[tuple[_Slot, int]] = []
        left = BATCH - len(answering)
        for slot in reading:
            part = min(left, slot.unread)
            if part <= 0:
                break
            if slot.reading_since is None:
                slot.reading_since, slot.held = self._now, slot.reused
                self._prompt_started(slot)
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
        self._pass(seconds)
        for slot in answering:
            slot.decoded += steps
            slot.held += steps
            self._told_answer(slot)
        for slot, part in parts:
            slot.processed += part
            self._told_prompt(slot)
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
                self._line(f"decode: failed to find a memory slot for batch of size {batch}", "W")
                self._line(f"srv  try_clear_id: purging slot {slot.id} with {slot.held} tokens", "W")
                self._line(
                    "srv        decode: failed to find free space in the KV cache, retrying with smaller batch size, "
                    f"off = 0, n_batch = {BATCH}, ret = 1",
                    "W",
                )
                slot.held = 0

    def _told_answer(self, slot: _Slot) -> None:
        if self._machine.dialect == "b11434" and slot.decoded >= 100 and self._now - slot.answer_told >= 3:
            slot.answer_told = self._now
            self._line(
                f"slot print_timing: id {slot.id:2} | task {slot.task} | n_gen = {slot.decoded:6}, "
                f"tg = {self._machine.answering:6.2f} t/s, tg_3s = {self._machine.answering:6.2f} t/s"
            )

    def _prompt_started(self, slot: _Slot) -> None:
        assert slot.ask is not None
        if self._machine.dialect == "b8635":
            self._line(
                f"slot update_slots: id {slot.id:2} | task {slot.task} | new prompt, n_ctx_slot = "
                f"{self._machine.capacity}, n_keep = 0, task.n_tokens = {slot.ask.prompt}"
            )
            self._line(
                f"slot update_slots: id {slot.id:2} | task {slot.task} | n_tokens = {slot.held}, "
                f"memory_seq_rm [{slot.held}, end)"
            )

    def _told_prompt(self, slot: _Slot) -> None:
        assert slot.ask is not None
        assert slot.reading_since is not None
        began, progress = slot.reading_since, slot.held / slot.ask.prompt
        if slot.unread <= 0:
            slot.decoded = 1
            slot.answer_told = self._now
        if self._machine.dialect == "b8635":
            text = f"processing progress, n_tokens = {slot.held}, batch.n_tokens = {BATCH}, progress = {progress:.6f}"
            if slot.decoded:
                text = f"processing done, n_tokens = {slot.held}, batch.n_tokens = {BATCH}"
            self._line(f"slot update_slots: id {slot.id:2} | task {slot.task} | prompt {text}")
        elif not slot.decoded and self._now - began >= 3:
            self._line(
                f"slot print_timing: id {slot.id:2} | task {slot.task} | prompt processing, n_tokens = {slot.held:6}, "
                f"progress = {progress:.2f}, t = {self._now - began:6.2f} s / 1000.00 tokens per second"
            )

    def _finish(self, slot: _Slot) -> None:
        client = slot.client
        self._release(slot)
        if client is not None:
            self._go_on(client, True)

    def _release(self, slot: _Slot) -> None:
        self._line(
            f"slot      release: id {slot.id:2} | task {slot.task} | stop processing: n_tokens = {slot.held}, "
            "truncated = 0"
        )
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
        """All that still fits is placed, then the batch that does not fit is halved down to one token."""
        self.recording.failed_at = self._now
        self.recording.peak = 1.0
        size = batch - room
        retry = BATCH // 2
        while True:
            self._line(f"decode: failed to find a memory slot for batch of size {min(size, retry * 2)}", "W")
            self._line(
                "srv        decode: failed to find free space in the KV cache, retrying with smaller batch size, "
                f"off = {room}, n_batch = {retry}, ret = 1",
                "W",
            )
            if retry == 1:
                break
            retry //= 2
        self._line("decode: failed to find a memory slot for batch of size 1", "W")
        self._line(f"srv        decode: Context size has been exceeded. off = {room}, n_batch = 1, ret = 1", "E")
        for slot in self._slots:
            if slot.ask is not None:
                self._line(f"srv    send_error: task id = {slot.task}, error: Context size has been exceeded.", "E")
                self._release(slot)

    # ---- what it says ------------------------------------------------------------------------------------------

    def _line(self, text: str, level: str = "I") -> None:
        if self._machine.dialect == "b11434":
            minutes, seconds = divmod(self._now, 60)
            micros = int(seconds % 1 * 1e6)
            stamp = f"{int(minutes)}.{int(seconds):02}.{micros // 1000:03}.{micros % 1000:03}"
            text = f"{stamp} {level or 'I'} {text}"
        self.recording.facts.append(Fact(self._now, text.encode()))

    def _pass(self, seconds: float) -> None:
        """Time passes in which a batch is computed; older builds answer between batches only."""
        end = self._now + seconds
        self._polled = max(self._polled, float(int(self._now)))
        asked = self._polled + 1
        while asked <= end:
            at = asked if self._machine.dialect == "b11434" else end
            self._polled = asked
            self.recording.facts.append(Fact(at, self._slots_body(), asked))
            asked = self._polled + 1 if at == asked else float(int(end)) + 1
        self._now = end

    def _slots_body(self) -> bytes:
        return json.dumps([self._shown(slot) for slot in self._slots]).encode()

    def _shown(self, slot: _Slot) -> dict[str, Any]:
        shown: dict[str, Any] = {"id": slot.id, "n_ctx": self._machine.capacity, "is_processing": slot.ask is not None}
        if slot.task < 0:
            return shown
        limit = -1 if slot.ask is None or slot.ask.limit is None else slot.ask.limit
        shown["id_task"] = slot.task
        if self._machine.dialect == "b11434":
            shown["n_prompt_tokens"] = slot.held
            reads = slot.ask is not None
            shown["n_prompt_tokens_processed"] = slot.processed if reads else 0
            shown["n_prompt_tokens_cache"] = slot.reused if reads and slot.reading_since is not None else 0
        shown["params"] = {"n_predict": limit, "max_tokens": limit}
        remaining = limit - slot.decoded if limit >= 0 else -1
        shown["next_token"] = [{"has_next_token": True, "n_remain": remaining, "n_decoded": slot.decoded}]
        return shown
