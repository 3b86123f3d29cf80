"""What one log line of llama-server can say, as typed events.

Token numbers are counts of tokens (cells of the KV cache). `slot` and `task` are llama-server's own numbers; a task
of -1 in the log (the slot has none) is None here. Field names follow llama.cpp's words.

They are msgspec's structs, which are made in an eighth of a frozen dataclass's time, and go from the reading process to
the daemon as they are: a backlog has millions.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ErrorKind = Literal["pool", "slot", "other"]
TimingKind = Literal["prompt", "generation", "total"]


class Said(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """What a line says. Between processes it is an array: its name, then its fields."""


# ---- start-up ------------------------------------------------------------------------------------------------------


class ProcessStarting(Said, frozen=True):
    """The first line of a new process: everything known of the last one is gone."""

    build: str | None = None
    """Such as `b5541`, where the line tells it; distribution builds print nonsense here, so it is only shown."""


class ModelLoading(Said, frozen=True):
    """A model is being loaded (at start, or again after sleep)."""

    model: str | None = None


class ModelLoaded(Said, frozen=True):
    """The model is loaded and the server answers."""


class Listening(Said, frozen=True):
    """The HTTP server listens."""

    host: str
    port: int
    router: bool = False


class ChildStarting(Said, frozen=True):
    """A router starts a process for a model, whose lines it will prefix with this port."""

    name: str
    """The model's, as clients ask for it."""
    port: int


class Stopping(Said, frozen=True):
    """The server is shutting down by itself (`cleaning up before exit`)."""


class Sleeping(Said, frozen=True):
    """The model was unloaded because nobody asked for anything."""


class Waking(Said, frozen=True):
    """A sleeping server is loading its model again."""


class Verbosity(Said, frozen=True):
    """The log level; below 3 neither launches nor releases are logged."""

    level: int


class TrainingContext(Said, frozen=True):
    """The model's training context (`n_ctx_train`), in tokens."""

    tokens: int


class AutoParallel(Said, frozen=True):
    """`-np` was not given and the server chose (`n_parallel is set to auto, using n_parallel = 4 …`)."""

    slots: int
    unified: bool


class PoolInitialized(Said, frozen=True):
    """The one start-up line of newer builds: `initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'`."""

    slots: int
    slot_context: int
    unified: bool


class SlotsInitializing(Said, frozen=True):
    """`initializing slots, n_slots = 4` (older builds)."""

    slots: int


class SlotContext(Said, frozen=True):
    """`new slot n_ctx_slot = 1024` or `new slot, n_ctx = 4096` (older builds, one per slot)."""

    slot: int
    tokens: int


class ContextSize(Said, frozen=True):
    """`llama_context: n_ctx = 4096`: the whole buffer (never n_ctx_per_seq, n_ctx_seq or n_ctx_train)."""

    tokens: int


class KvUnified(Said, frozen=True):
    """`kv_unified = true`, from the library's lines."""

    unified: bool


class SlidingWindowCache(Said, frozen=True):
    """`creating SWA KV cache` or `creating non-SWA KV cache`: which of its two caches the next size line describes."""

    sliding: bool
    cells: int


class KvCacheSize(Said, frozen=True):
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


class KvSelfSize(Said, frozen=True):
    """The size line of builds before b5441: `KV self size = 1024.00 MiB, K (f16): 512.00 MiB, V (f16): 512.00 MiB`."""

    total_bytes: int
    k_type: str
    k_bytes: int
    v_type: str
    v_bytes: int


class RecurrentCacheSize(Said, frozen=True):
    """A recurrent state's size line. Its cells are sequences, not tokens: never the pool."""

    total_bytes: int


class CappedToTraining(Said, frozen=True):
    """`the slot context (P) exceeds the training context of the model (T) - capping`."""

    tokens: int
    training: int


class CappedToPerSlot(Said, frozen=True):
    """`capping per-slot context (P) to --kv-unified-per-slot (N)`; P is the pool."""

    tokens: int
    cap: int


class PoolSized(Said, frozen=True):
    """`sizing KV pool to n_parallel * kv_unified_per_slot = 4 * 1024 = 4096`."""

    slots: int
    per_slot: int
    tokens: int


# ---- the life of a task --------------------------------------------------------------------------------------------


class SlotChosen(Said, frozen=True):
    """A slot is about to take a request whose prompt begins as its cache does (`selected slot by LCP similarity`).

    The common beginning is the part `similarity` of the prompt, and the part `kept` of the cache: so the cache's size
    tells the prompt's. A slot that is chosen for other reasons (`by LRU`) has next to nothing in common with it.
    """

    slot: int
    similarity: float
    """0 to 1."""
    kept: float
    """0 to 1."""
    step: float
    """Rounding step of both as printed."""


class TaskLaunched(Said, frozen=True):
    """A slot took a task."""

    slot: int
    task: int | None
    child: bool = False
    """A further answer to the same prompt (n > 1): it shares its parent's cells."""


class PromptStarted(Said, frozen=True):
    """`new prompt`: the whole prompt's size is known before it is read (builds up to b9150)."""

    slot: int
    task: int | None
    slot_context: int
    prompt_tokens: int


class PromptReused(Said, frozen=True):
    """The cache beyond `tokens` was dropped: what the slot holds is now exactly `tokens` (`memory_seq_rm [P, end)`)."""

    slot: int
    task: int | None
    tokens: int


class PromptProgress(Said, frozen=True):
    """A prompt is being read; `tokens` are held now, `progress` (0 to 1) is the part of the whole prompt."""

    slot: int
    task: int | None
    tokens: int
    progress: float
    step: float
    """Rounding step of `progress` as printed: 0.01 on newer builds, 0.000001 on older ones."""


class PromptDone(Said, frozen=True):
    """The whole prompt is in the cache: `tokens` are held."""

    slot: int
    task: int | None
    tokens: int


class GenerationTick(Said, frozen=True):
    """`n_decoded = 102, tg = 10.51 t/s` or `n_gen = …`: tokens of the answer so far."""

    slot: int
    task: int | None
    decoded: int
    tokens_per_second: float | None


class TimingHeader(Said, frozen=True):
    """An empty `print_timing` line: the untagged timing lines that follow belong to this task (builds to b9229)."""

    slot: int
    task: int | None


class Timing(Said, frozen=True):
    """One of a task's closing timing lines. `slot` is None on untagged lines: they belong to the last TimingHeader."""

    kind: TimingKind
    slot: int | None
    task: int | None
    seconds: float
    tokens: int
    tokens_per_second: float | None
    """None where the log says `nan` or `inf`, and on the total line."""


class Released(Said, frozen=True):
    """`stop processing`: a task ended and its slot is idle; `tokens` is its final size, prompt and answer."""

    slot: int
    task: int | None
    tokens: int
    truncated: bool


class TaskCancelled(Said, frozen=True):
    """`cancel task`: a client went away, or the task had ended anyway."""

    task: int | None


class AllSlotsIdle(Said, frozen=True):
    """`all slots are idle`."""


# ---- room in the cache ---------------------------------------------------------------------------------------------


class BatchUnplaced(Said, frozen=True):
    """A batch found no room. `size` is in tokens; None where the line does not tell it."""

    size: int | None


class BatchRetried(Said, frozen=True):
    """`failed to find free space in the KV cache, retrying with smaller batch size`."""

    offset: int | None
    """Tokens of the batch that were placed before (`i` on older builds, `off` on newer ones)."""
    batch: int
    """The next size to be tried."""


class ContextExceeded(Said, frozen=True):
    """The error that ends a cascade, once: `Context size has been exceeded. off = …, n_batch = 1, ret = 1`."""

    offset: int | None
    cleared: bool
    """The spelling of builds that also drop the cache of every failed slot at once."""


class DecodeFailed(Said, frozen=True):
    """`decode() failed: Context size has been exceeded.`: the echo after an incident on newer builds."""


class RequestFailed(Said, frozen=True):
    """`send_error`: one request failed. kind pool: the KV cache ran out; slot: it is larger than its own slot."""

    task: int | None
    kind: ErrorKind
    prompt_tokens: int | None = None
    slot_context: int | None = None


class SlotPurged(Said, frozen=True):
    """An idle slot's cache was given up because room was needed (`purging slot 0 with 919 tokens`)."""

    slot: int
    tokens: int


class SlotCleared(Said, frozen=True):
    """A slot's cache was dropped (`clearing slot with N tokens`, `clearing prompt with N tokens`)."""

    slot: int
    tokens: int


class ContextShifted(Said, frozen=True):
    """The slot forgot `discarded` tokens of its middle to go on."""

    slot: int
    task: int | None
    discarded: int
    kept: int | None = None
    """What it holds afterwards; None where the line does not tell it."""


# ---- the rest ------------------------------------------------------------------------------------------------------


class HttpRequest(Said, frozen=True):
    """An access-log line. `path` is without query; `code` is what the server logged (200 for streams that failed)."""

    method: str
    path: str
    code: int


Event = (
    ProcessStarting
    | ModelLoading
    | ModelLoaded
    | Listening
    | ChildStarting
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
    | SlotChosen
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


class LogLine(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """One line that says something. Lines that say nothing are None where this is expected."""

    event: Event | None
    mentions_context_error: bool = False
    """The line contains `Context size has been exceeded`, recognised or not: what `grep -c` would count."""
    child_port: int | None = None
    """A router prefixes its children's lines with their port; None on a server of its own."""
