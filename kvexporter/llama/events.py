"""What one log line of llama-server can say, as typed events.

Token numbers are counts of tokens (cells of the KV cache). `slot` and `task` are llama-server's own numbers; a task
of -1 in the log (the slot has none) is None here. Field names follow llama.cpp's words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ErrorKind = Literal["pool", "slot", "other"]
TimingKind = Literal["prompt", "generation", "total"]


# ---- start-up ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessStarting:
    """The first line of a new process: everything known of the last one is gone."""

    build: str | None = None
    """Such as `b5541`, where the line tells it; distribution builds print nonsense here, so it is only shown."""


@dataclass(frozen=True, slots=True)
class ModelLoading:
    """A model is being loaded (at start, or again after sleep)."""

    model: str | None = None


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """The model is loaded and the server answers."""


@dataclass(frozen=True, slots=True)
class Listening:
    """The HTTP server listens."""

    host: str
    port: int
    router: bool = False


@dataclass(frozen=True, slots=True)
class Stopping:
    """The server is shutting down by itself (`cleaning up before exit`)."""


@dataclass(frozen=True, slots=True)
class Sleeping:
    """The model was unloaded because nobody asked for anything."""


@dataclass(frozen=True, slots=True)
class Waking:
    """A sleeping server is loading its model again."""


@dataclass(frozen=True, slots=True)
class Verbosity:
    """The log level; below 3 neither launches nor releases are logged."""

    level: int


@dataclass(frozen=True, slots=True)
class TrainingContext:
    """The model's training context (`n_ctx_train`), in tokens."""

    tokens: int


@dataclass(frozen=True, slots=True)
class AutoParallel:
    """`-np` was not given and the server chose (`n_parallel is set to auto, using n_parallel = 4 …`)."""

    slots: int
    unified: bool


@dataclass(frozen=True, slots=True)
class PoolInitialized:
    """The one start-up line of newer builds: `initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'`."""

    slots: int
    slot_context: int
    unified: bool


@dataclass(frozen=True, slots=True)
class SlotsInitializing:
    """`initializing slots, n_slots = 4` (older builds)."""

    slots: int


@dataclass(frozen=True, slots=True)
class SlotContext:
    """`new slot n_ctx_slot = 1024` or `new slot, n_ctx = 4096` (older builds, one per slot)."""

    slot: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ContextSize:
    """`llama_context: n_ctx = 4096`: the whole buffer (never n_ctx_per_seq, n_ctx_seq or n_ctx_train)."""

    tokens: int


@dataclass(frozen=True, slots=True)
class KvUnified:
    """`kv_unified = true`, from the library's lines."""

    unified: bool


@dataclass(frozen=True, slots=True)
class SlidingWindowCache:
    """`creating SWA KV cache` or `creating non-SWA KV cache`: which of its two caches the next size line describes."""

    sliding: bool
    cells: int


@dataclass(frozen=True, slots=True)
class KvCacheSize:
    """An attention cache's size line (`llama_kv_cache: size = … (4096 cells, 2 layers, 4/1 seqs), K (f16): …`)."""

    cells: int
    layers: int
    sequences: int
    streams: int | None
    """Number of separate buffers (`4/1`: one shared; `4/4`: one per slot, `cells` each); None on builds before it."""
    total_bytes: int
    k_type: str
    k_bytes: int
    v_type: str
    v_bytes: int


@dataclass(frozen=True, slots=True)
class KvSelfSize:
    """The size line of builds before b5441: `KV self size = 1024.00 MiB, K (f16): 512.00 MiB, V (f16): 512.00 MiB`."""

    total_bytes: int
    k_type: str
    k_bytes: int
    v_type: str
    v_bytes: int


@dataclass(frozen=True, slots=True)
class RecurrentCacheSize:
    """A recurrent state's size line. Its cells are sequences, not tokens: never the pool."""

    total_bytes: int


@dataclass(frozen=True, slots=True)
class CappedToTraining:
    """`the slot context (P) exceeds the training context of the model (T) - capping`."""

    tokens: int
    training: int


@dataclass(frozen=True, slots=True)
class CappedToPerSlot:
    """`capping per-slot context (P) to --kv-unified-per-slot (N)`; P is the pool."""

    tokens: int
    cap: int


@dataclass(frozen=True, slots=True)
class PoolSized:
    """`sizing KV pool to n_parallel * kv_unified_per_slot = 4 * 1024 = 4096`."""

    slots: int
    per_slot: int
    tokens: int


# ---- the life of a task --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskLaunched:
    """A slot took a task."""

    slot: int
    task: int | None
    child: bool = False
    """A further answer to the same prompt (n > 1): it shares its parent's cells."""


@dataclass(frozen=True, slots=True)
class PromptStarted:
    """`new prompt`: the whole prompt's size is known before it is read (builds up to b9150)."""

    slot: int
    task: int | None
    slot_context: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class PromptReused:
    """The cache beyond `tokens` was dropped: what the slot holds is now exactly `tokens` (`memory_seq_rm [P, end)`)."""

    slot: int
    task: int | None
    tokens: int


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """A prompt is being read; `tokens` are held now, `progress` (0 to 1) is the part of the whole prompt."""

    slot: int
    task: int | None
    tokens: int
    progress: float
    step: float
    """Rounding step of `progress` as printed: 0.01 on newer builds, 0.000001 on older ones."""


@dataclass(frozen=True, slots=True)
class PromptDone:
    """The whole prompt is in the cache: `tokens` are held."""

    slot: int
    task: int | None
    tokens: int


@dataclass(frozen=True, slots=True)
class GenerationTick:
    """`n_decoded = 102, tg = 10.51 t/s` or `n_gen = …`: tokens of the answer so far."""

    slot: int
    task: int | None
    decoded: int
    tokens_per_second: float | None


@dataclass(frozen=True, slots=True)
class TimingHeader:
    """An empty `print_timing` line: the untagged timing lines that follow belong to this task (builds to b9229)."""

    slot: int
    task: int | None


@dataclass(frozen=True, slots=True)
class Timing:
    """One of a task's closing timing lines. `slot` is None on untagged lines: they belong to the last TimingHeader."""

    kind: TimingKind
    slot: int | None
    task: int | None
    seconds: float
    tokens: int
    tokens_per_second: float | None
    """None where the log says `nan` or `inf`, and on the total line."""


@dataclass(frozen=True, slots=True)
class Released:
    """`stop processing`: a task ended and its slot is idle; `tokens` is its final size, prompt and answer."""

    slot: int
    task: int | None
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class TaskCancelled:
    """`cancel task`: a client went away, or the task had ended anyway."""

    task: int | None


@dataclass(frozen=True, slots=True)
class AllSlotsIdle:
    """`all slots are idle`."""


# ---- room in the cache ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchUnplaced:
    """A batch found no room. `size` is in tokens; None where the line does not tell it."""

    size: int | None


@dataclass(frozen=True, slots=True)
class BatchRetried:
    """`failed to find free space in the KV cache, retrying with smaller batch size`."""

    offset: int | None
    """Tokens of the batch that were placed before (`i` on older builds, `off` on newer ones)."""
    batch: int
    """The next size to be tried."""


@dataclass(frozen=True, slots=True)
class ContextExceeded:
    """The error that ends a cascade, once: `Context size has been exceeded. off = …, n_batch = 1, ret = 1`."""

    offset: int | None
    cleared: bool
    """The spelling of builds that also drop the cache of every failed slot at once."""


@dataclass(frozen=True, slots=True)
class DecodeFailed:
    """`decode() failed: Context size has been exceeded.`: the echo after an incident on newer builds."""


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """`send_error`: one request failed. kind pool: the KV cache ran out; slot: it is larger than its own slot."""

    task: int | None
    kind: ErrorKind
    prompt_tokens: int | None = None
    slot_context: int | None = None


@dataclass(frozen=True, slots=True)
class SlotPurged:
    """An idle slot's cache was given up because room was needed (`purging slot 0 with 919 tokens`)."""

    slot: int
    tokens: int


@dataclass(frozen=True, slots=True)
class SlotCleared:
    """A slot's cache was dropped (`clearing slot with N tokens`, `clearing prompt with N tokens`)."""

    slot: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ContextShifted:
    """The slot forgot `discarded` tokens of its middle to go on."""

    slot: int
    task: int | None
    discarded: int


# ---- the rest ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An access-log line. `path` is without query; `code` is what the server logged (200 for streams that failed)."""

    method: str
    path: str
    code: int


Event = (
    ProcessStarting
    | ModelLoading
    | ModelLoaded
    | Listening
    | Stopping
    | Sleeping
    | Waking
    | Verbosity
    | TrainingContext
    | AutoParallel
    | PoolInitialized
    | SlotsInitializing
    | SlotContext
    | ContextSize
    | KvUnified
    | SlidingWindowCache
    | KvCacheSize
    | KvSelfSize
    | RecurrentCacheSize
    | CappedToTraining
    | CappedToPerSlot
    | PoolSized
    | TaskLaunched
    | PromptStarted
    | PromptReused
    | PromptProgress
    | PromptDone
    | GenerationTick
    | TimingHeader
    | Timing
    | Released
    | TaskCancelled
    | AllSlotsIdle
    | BatchUnplaced
    | BatchRetried
    | ContextExceeded
    | DecodeFailed
    | RequestFailed
    | SlotPurged
    | SlotCleared
    | ContextShifted
    | HttpRequest
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that says something. Lines that say nothing are None where this is expected."""

    event: Event | None
    mentions_context_error: bool = False
    """The line contains `Context size has been exceeded`, recognised or not: what `grep -c` would count."""
    child_port: int | None = None
    """A router prefixes its children's lines with their port; None on a server of its own."""
