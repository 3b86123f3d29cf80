"""What a simulated server says, in the form of b11434 or of b8635: the lines of its log and its answers of /slots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from benchmarks.lead_time_machine import BATCH, Machine, Slot
from benchmarks.lead_time_recording import Fact

SIMILARITY = 0.1
"""A slot is chosen for its cache if more than this part of the prompt is there (--slot-prompt-similarity)."""

_FIRST_LINES = {
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


class Speaker:
    """Adds to a recording's facts what a server says, at its times in seconds."""

    def __init__(self, machine: Machine, facts: list[Fact]) -> None:
        self._machine = machine
        self._facts = facts
        self._newer = machine.dialect == "b11434"
        self._polled = 0.0
        """When /slots was asked for last."""

    # ---- its log ---------------------------------------------------------------------------------------------------

    def started(self, at: float, slots: Sequence[Slot]) -> None:
        """It has started, and waits for requests."""
        for text in _FIRST_LINES[self._machine.dialect]:
            self._line(at, text.format(slots=self._machine.slots, context=self._machine.capacity), "")
        if not self._newer:
            for slot in slots:
                self._line(
                    at, f"slot   load_model: id {slot.id:2} | task -1 | new slot, n_ctx = {self._machine.capacity}"
                )

    def chosen_by_cache(self, at: float, slot: Slot, similarity: float, kept: float) -> None:
        """A request gets the slot whose cache it has most in common with."""
        name = "f_sim_best" if self._newer else "sim_best"
        how = f"LCP similarity, {name} = {similarity:.3f} (> {SIMILARITY:.3f} thold), f_keep = {kept:.3f}"
        self._line(at, f"slot get_availabl: id {slot.id:2} | task -1 | selected slot by {how}")

    def chosen_by_age(self, at: float, slot: Slot) -> None:
        """A request gets the slot that was used longest ago."""
        how = f"LRU, t_last = {round(slot.used_at * 1e6) if slot.used_at >= 0 else -1}"
        self._line(at, f"slot get_availabl: id {slot.id:2} | task -1 | selected slot by {how}")

    def launched(self, at: float, slot: Slot) -> None:
        """A slot has got its request."""
        self._line(at, f"slot launch_slot_: id {slot.id:2} | task {slot.task} | processing task, is_child = 0")

    def prompt_started(self, at: float, slot: Slot) -> None:
        """The first batch with a part of this prompt is made."""
        assert slot.ask is not None
        if self._newer:
            return
        self._line(
            at,
            f"slot update_slots: id {slot.id:2} | task {slot.task} | new prompt, n_ctx_slot = "
            f"{self._machine.capacity}, n_keep = 0, task.n_tokens = {slot.ask.prompt}",
        )
        self._line(
            at,
            f"slot update_slots: id {slot.id:2} | task {slot.task} | n_tokens = {slot.held}, "
            f"memory_seq_rm [{slot.held}, end)",
        )

    def prompt_read(self, at: float, slot: Slot) -> None:
        """A batch with a part of this prompt is done."""
        assert slot.ask is not None
        assert slot.reading_since is not None
        began, progress = slot.reading_since, slot.held / slot.ask.prompt
        if not self._newer:
            text = f"processing progress, n_tokens = {slot.held}, batch.n_tokens = {BATCH}, progress = {progress:.6f}"
            if slot.decoded:
                text = f"processing done, n_tokens = {slot.held}, batch.n_tokens = {BATCH}"
            self._line(at, f"slot update_slots: id {slot.id:2} | task {slot.task} | prompt {text}")
        elif not slot.decoded and at - began >= 3:
            self._line(
                at,
                f"slot print_timing: id {slot.id:2} | task {slot.task} | prompt processing, n_tokens = {slot.held:6}, "
                f"progress = {progress:.2f}, t = {at - began:6.2f} s / 1000.00 tokens per second",
            )

    def answered(self, at: float, slot: Slot) -> None:
        """An answer has grown: newer builds tell its length every three seconds."""
        if self._newer and slot.decoded >= 100 and at - slot.answer_told >= 3:
            slot.answer_told = at
            self._line(
                at,
                f"slot print_timing: id {slot.id:2} | task {slot.task} | n_gen = {slot.decoded:6}, "
                f"tg = {self._machine.answering:6.2f} t/s, tg_3s = {self._machine.answering:6.2f} t/s",
            )

    def purged(self, at: float, slot: Slot, batch: int) -> None:
        """An idle slot's cache goes, to make room for a batch."""
        self._line(at, f"decode: failed to find a memory slot for batch of size {batch}", "W")
        self._line(at, f"srv  try_clear_id: purging slot {slot.id} with {slot.held} tokens", "W")
        self._retries(at, 0, BATCH)

    def released(self, at: float, slot: Slot) -> None:
        """A slot's request has ended."""
        self._line(
            at,
            f"slot      release: id {slot.id:2} | task {slot.task} | stop processing: n_tokens = {slot.held}, "
            "truncated = 0",
        )

    def found_no_room(self, at: float, batch: int, room: int) -> None:
        """All that still fits is placed, then the batch that does not fit is halved down to one token."""
        size = batch - room
        retry = BATCH // 2
        while True:
            self._line(at, f"decode: failed to find a memory slot for batch of size {min(size, retry * 2)}", "W")
            self._retries(at, room, retry)
            if retry == 1:
                break
            retry //= 2
        self._line(at, "decode: failed to find a memory slot for batch of size 1", "W")
        self._line(at, f"srv        decode: Context size has been exceeded. off = {room}, n_batch = 1, ret = 1", "E")

    def failed(self, at: float, slot: Slot) -> None:
        """A slot's request fails."""
        self._line(at, f"srv    send_error: task id = {slot.task}, error: Context size has been exceeded.", "E")

    def _retries(self, at: float, placed: int, batch: int) -> None:
        self._line(
            at,
            "srv        decode: failed to find free space in the KV cache, retrying with smaller batch size, "
            f"off = {placed}, n_batch = {batch}, ret = 1",
            "W",
        )

    def _line(self, at: float, text: str, level: str = "I") -> None:
        if self._newer:
            minutes, seconds = divmod(at, 60)
            micros = int(seconds % 1 * 1e6)
            stamp = f"{int(minutes)}.{int(seconds):02}.{micros // 1000:03}.{micros % 1000:03}"
            text = f"{stamp} {level or 'I'} {text}"
        self._facts.append(Fact(at, text.encode()))

    # ---- its answers -----------------------------------------------------------------------------------------------

    def polled(self, now: float, end: float, slots: Sequence[Slot]) -> None:
        """/slots is asked for every second while a batch is computed; older builds answer between batches only."""
        self._polled = max(self._polled, float(int(now)))
        asked = self._polled + 1
        while asked <= end:
            at = asked if self._newer else end
            self._polled = asked
            self._facts.append(Fact(at, json.dumps([self._shown(slot) for slot in slots]).encode(), asked))
            asked = self._polled + 1 if at == asked else float(int(end)) + 1

    def _shown(self, slot: Slot) -> dict[str, Any]:
        shown: dict[str, Any] = {"id": slot.id, "n_ctx": self._machine.capacity, "is_processing": slot.ask is not None}
        if slot.task < 0:
            return shown
        limit = -1 if slot.ask is None or slot.ask.limit is None else slot.ask.limit
        shown["id_task"] = slot.task
        if self._newer:
            shown["n_prompt_tokens"] = slot.held
            reads = slot.ask is not None
            shown["n_prompt_tokens_processed"] = slot.processed if reads else 0
            shown["n_prompt_tokens_cache"] = slot.reused if reads and slot.reading_since is not None else 0
        shown["params"] = {"n_predict": limit, "max_tokens": limit}
        remaining = limit - slot.decoded if limit >= 0 else -1
        shown["next_token"] = [{"has_next_token": True, "n_remain": remaining, "n_decoded": slot.decoded}]
        return shown
