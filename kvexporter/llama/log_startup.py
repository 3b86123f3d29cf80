"""Lines of a start: the process, its model, its context and its KV cache. Also sleep and the end."""

from __future__ import annotations

from kvexporter.llama.events import (
    AutoParallel,
    CappedToPerSlot,
    CappedToTraining,
    ChildStarting,
    ContextSize,
    Event,
    KvCacheSize,
    KvSelfSize,
    KvUnified,
    Listening,
    ModelLoaded,
    ModelLoading,
    PoolInitialized,
    PoolSized,
    ProcessStarting,
    RecurrentCacheSize,
    Sleeping,
    SlidingWindowCache,
    SlotsInitializing,
    Stopping,
    TrainingContext,
    Verbosity,
    Waking,
)
from kvexporter.llama.log_grammar import Match, mebibytes, rule, text

UNUSED = "unused"
"""The V type of a compressed attention's cache that keeps no V."""


def build_name(number: bytes) -> str | None:
    """`b5541` of `5541`; builds made outside of a git checkout say 0."""
    return f"b{int(number)}" if int(number) else None


def listening(host: bytes, port: bytes, router: bool = False) -> Listening | None:
    """None where the port is none."""
    return Listening(text(host), int(port), router) if 0 < int(port) < 65536 else None


def _starting(m: Match, i: int) -> Event:
    return ProcessStarting(build_name(m[i + 1]))


def _loading(m: Match, i: int) -> Event:
    name = m[i + 1]
    return ModelLoading(None if name is None else text(name))


def _listening(m: Match, i: int) -> Event | None:
    return listening(m[i + 1], m[i + 2])


def _router_listening(m: Match, i: int) -> Event | None:
    return listening(m[i + 1], m[i + 2], router=True)


def _child_starting(m: Match, i: int) -> Event | None:
    name, port = text(m[i + 1]), int(m[i + 2])
    return ChildStarting(name, port) if 0 < port < 65536 else None


def _verbosity(m: Match, i: int) -> Event:
    return Verbosity(int(m[i + 1]))


def _named(m: Match, i: int) -> Event:
    if m[i + 1] is not None:
        return _starting(m, i)
    return Stopping() if m[i + 2] is None else _verbosity(m, i + 1)


def _auto_parallel(m: Match, i: int) -> Event:
    slots, unified = m.group(i + 1, i + 2)
    return AutoParallel(int(slots), unified == b"true")


def _pool_initialized(m: Match, i: int) -> Event:
    slots, context, unified = m.group(i + 1, i + 2, i + 3)
    return PoolInitialized(int(slots), int(context), unified == b"true")


def _pool_sized(m: Match, i: int) -> Event:
    slots, per_slot, tokens = m.group(i + 1, i + 2, i + 3)
    return PoolSized(int(slots), int(per_slot), int(tokens))


def _sliding_window(m: Match, i: int) -> Event:
    other, cells = m.group(i + 1, i + 2)
    return SlidingWindowCache(other is None, int(cells))


def _kv_cache_size(m: Match, i: int) -> Event:
    total, cells, layers, sequences, streams = m.group(i + 1, i + 2, i + 3, i + 4, i + 5)
    k_type, k_size, v_type, v_size = m.group(i + 6, i + 7, i + 8, i + 9)
    return KvCacheSize(
        cells=int(cells),
        layers=int(layers),
        sequences=int(sequences),
        streams=None if streams is None else int(streams),
        total_bytes=mebibytes(total),
        k_type=text(k_type),
        k_bytes=mebibytes(k_size),
        v_type=text(v_type),
        v_bytes=mebibytes(v_size),
    )


def _kv_self_size(m: Match, i: int) -> Event:
    total, k_type, k_size, v_type, v_size = m.group(i + 1, i + 2, i + 3, i + 4, i + 5)
    return KvSelfSize(
        total_bytes=mebibytes(total),
        k_type=text(k_type),
        k_bytes=mebibytes(k_size),
        v_type=UNUSED if v_type is None else text(v_type),
        v_bytes=0 if v_size is None else mebibytes(v_size),
    )


_BUILD = rb"build:? <count> \("
_STOPPING = rb"cleaning up before exit"
_VERBOSITY = rb"verbosity = (\d{1,3}) "
_PARALLEL = rb"n_parallel = <some-slots> and kv_unified = (true|false)\b"
_LISTENING = rb"listening on https?://([^\s/]{1,255}):(\d{1,5})(?: - starting the main loop)?+<end>"
_SIZING = rb"sizing KV pool to n_parallel \* kv_unified_per_slot = <some-slots> \* <count> = <count><fields>"

STARTUP_RULES = (
    rule(rb"initializing \.\.\.<end>", lambda m, i: ProcessStarting()),
    rule(
        rb"initializing, n_slots = <some-slots>, n_ctx_slot = <count>, kv_unified = '(true|false)'<fields>",
        _pool_initialized,
    ),
    rule(rb"initializing slots, n_slots = <some-slots><fields>", lambda m, i: SlotsInitializing(int(m[i + 1]))),
    rule(rb"loading model(?: '([^\x00-\x1f]*)')?+<end>", _loading),
    rule(rb"model loaded<end>", lambda m, i: ModelLoaded()),
    rule(_LISTENING, _listening),
    rule(rb"server is " + _LISTENING, _listening),
    rule(rb"spawning server instance with name=([^\n]{1,800}) on port (\d{1,5})<end>", _child_starting),
    rule(rb"router server is " + _LISTENING, _router_listening),
    rule(rb"HTTP server is listening, hostname: ([^,\s]{1,255}), port: (\d{1,5})<fields>", _listening),
    rule(rb"entering sleeping state<end>", lambda m, i: Sleeping()),
    rule(rb"server is entering sleeping state<end>", lambda m, i: Sleeping()),
    rule(rb"exiting sleeping state<end>", lambda m, i: Waking()),
    rule(rb"server is exiting sleeping state<end>", lambda m, i: Waking()),
    rule(rb"n_ctx += <count><end>", lambda m, i: ContextSize(int(m[i + 1]))),
    rule(rb"n_ctx_train += <count><end>", lambda m, i: TrainingContext(int(m[i + 1]))),
    rule(rb"n_parallel is set to auto, using " + _PARALLEL, _auto_parallel),
    rule(rb"setting " + _PARALLEL, _auto_parallel),
    rule(rb"kv_unified += (true|false)<end>", lambda m, i: KvUnified(m[i + 1] == b"true")),
    rule(rb"creating +(non-)?SWA KV cache, size = +<count> cells<fields>", _sliding_window),
    rule(
        rb"size = +<MiB> \( *<count> cells, *<count> layers, *<slots>(?:/ *<slots>)? seqs\)"
        rb", K \(<type>\): +<MiB>, V \(<type>\): +<MiB>",
        _kv_cache_size,
    ),
    # R and S instead of K and V: a recurrent state, whose cells are sequences.
    rule(
        rb"size = +<MiB> \( *<-> cells, [^()]{0,100}\), R \(",
        lambda m, i: RecurrentCacheSize(mebibytes(m[i + 1])),
    ),
    rule(
        rb"KV self size += +<MiB>, (?:K|c\^KV) \(<type>\): +<MiB>, (?:V \(<type>\): +<MiB>|kv\^T: not used)",
        _kv_self_size,
    ),
    rule(
        rb"the slot context \(<count>\) exceeds the training context of the model \(<count>\)",
        lambda m, i: CappedToTraining(int(m[i + 1]), int(m[i + 2])),
    ),
    rule(
        rb"capping per-slot context \(<count>\) to --kv-unified-per-slot \(<count>\)",
        lambda m, i: CappedToPerSlot(int(m[i + 1]), int(m[i + 2])),
    ),
    rule(_SIZING, _pool_sized),
    rule(rb"--kv-unified-per-slot: " + _SIZING, _pool_sized),
    rule(_BUILD, _starting),
    rule(_STOPPING, lambda m, i: Stopping()),
    rule(_VERBOSITY, _verbosity),
    # Some functions write their own name, uncut, behind the tag.
    rule(rb"<name>: (?:" + _BUILD + rb"|" + _STOPPING + rb"|" + _VERBOSITY + rb")", _named),
)

STARTUP_WITHOUT_TAG = (
    rule(_BUILD, _starting),
    # The first line of builds that no longer print the one above.
    rule(rb"system info: n_threads = ", lambda m, i: ProcessStarting()),
    # Its option looks like a tag, so people cut it off with the tag.
    rule(_SIZING, _pool_sized),
    rule(rb"--kv-unified-per-slot: " + _SIZING, _pool_sized),
)
