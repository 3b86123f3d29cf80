"""Every kind of line, in the spelling of every build that changed it. Sample lines are invented or from the field."""

from __future__ import annotations

import pytest

from kvexporter.llama.events import (
    AllSlotsIdle,
    AutoParallel,
    BatchRetried,
    BatchUnplaced,
    CappedToPerSlot,
    CappedToTraining,
    ChildStarting,
    ContextExceeded,
    ContextShifted,
    ContextSize,
    DecodeFailed,
    Event,
    GenerationTick,
    HttpRequest,
    KvCacheSize,
    KvSelfSize,
    KvUnified,
    Listening,
    LogLine,
    ModelLoaded,
    ModelLoading,
    PoolInitialized,
    PoolSized,
    ProcessStarting,
    PromptDone,
    PromptProgress,
    PromptReused,
    PromptStarted,
    RecurrentCacheSize,
    Released,
    RequestFailed,
    Sleeping,
    SlidingWindowCache,
    SlotChosen,
    SlotCleared,
    SlotContext,
    SlotPurged,
    SlotsInitializing,
    Stopping,
    TaskCancelled,
    TaskLaunched,
    Timing,
    TimingHeader,
    TrainingContext,
    Verbosity,
    Waking,
)
from kvexporter.llama.log import parse_line

MIB = 1024 * 1024

START: list[tuple[str, Event]] = [
    ("build: 5541 (f5cd27b7) with cc (Debian 12.2.0-14) 12.2.0 for x86_64-linux-gnu", ProcessStarting("b5541")),
    ("build: 0 (unknown) with cc (Debian 12.2.0-14) 12.2.0 for x86_64-linux-gnu", ProcessStarting(None)),
    (
        "0.00.116.135 I srv          load: spawning server instance with name=org/qwen:Q4 on port 40881",
        ChildStarting("org/qwen:Q4", 40881),
    ),
    ("system info: n_threads = 1, n_threads_batch = 1, total_threads = 2", ProcessStarting(None)),
    ("0.00.004.876 I srv  llama_server: initializing ...", ProcessStarting(None)),
    (
        "0.00.002.460 I cmn  common_param: common_params_print_info: build 11434 (deadbee) with GNU 12.2.0 for Linux",
        ProcessStarting("b11434"),
    ),
    ("0.00.094.293 I log_info: verbosity = 3 (adjust with the `-lv N` CLI arg)", Verbosity(3)),
    (
        "0.00.006.233 I cmn  common_param: common_params_print_info: verbosity = 2 (adjust with the `-lv N` CLI arg)",
        Verbosity(2),
    ),
    ("main: loading model", ModelLoading(None)),
    ("srv    load_model: loading model 'tiny.gguf'", ModelLoading("tiny.gguf")),
    ("0.00.011.663 I srv    load_model: loading model '/models/it's.gguf'", ModelLoading("/models/it's.gguf")),
    ("main: model loaded", ModelLoaded()),
    ("0.00.021.174 I srv  llama_server: model loaded", ModelLoaded()),
    (
        "main: HTTP server is listening, hostname: 127.0.0.1, port: 18462, http threads: 6",
        Listening("127.0.0.1", 18462),
    ),
    (
        "main: server is listening on http://127.0.0.1:18462 - starting the main loop",
        Listening("127.0.0.1", 18462),
    ),
    ("main: server is listening on https://[::1]:8443", Listening("[::1]", 8443)),
    ("main: router server is listening on http://0.0.0.0:8080", Listening("0.0.0.0", 8080, router=True)),
    ("0.00.021.196 I srv  llama_server: listening on http://127.0.0.1:18631", Listening("127.0.0.1", 18631)),
    ("srv    operator(): operator(): cleaning up before exit...", Stopping()),
    ("0.01.751.719 I srv    operator(): operator(): cleaning up before exit...", Stopping()),
    ("que    start_loop: entering sleeping state", Sleeping()),
    ("srv  handle_sleep: server is entering sleeping state", Sleeping()),
    ("0.09.896.607 I que    start_loop: exiting sleeping state", Waking()),
    ("0.09.896.615 I srv  handle_sleep: server is exiting sleeping state", Waking()),
]

GEOMETRY: list[tuple[str, Event]] = [
    ("srv          init: initializing slots, n_slots = 4", SlotsInitializing(4)),
    ("slot         init: id  0 | task -1 | new slot n_ctx_slot = 2048", SlotContext(0, 2048)),
    ("slot   load_model: id 31 | task -1 | new slot, n_ctx = 4096", SlotContext(31, 4096)),
    (
        "0.09.100.001 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 131072, kv_unified = 'true'",
        PoolInitialized(4, 131072, unified=True),
    ),
    (
        "srv    load_model: initializing, n_slots = 2, n_ctx_slot = 4096, kv_unified = 'false'",
        PoolInitialized(2, 4096, unified=False),
    ),
    ("main: setting n_parallel = 4 and kv_unified = true", AutoParallel(4, unified=True)),
    ("main: setting n_parallel = 4 and kv_unified = true (add -kvu to disable this)", AutoParallel(4, unified=True)),
    (
        "main: n_parallel is set to auto, using n_parallel = 4 and kv_unified = true",
        AutoParallel(4, unified=True),
    ),
    (
        "0.00.020.001 W srv    load_model: the slot context (1048576) exceeds the training context of the model "
        "(262144) - capping",
        CappedToTraining(1048576, 262144),
    ),
    (
        "0.00.020.001 I srv    load_model: capping per-slot context (4096) to --kv-unified-per-slot (1024)",
        CappedToPerSlot(4096, 1024),
    ),
    (
        "0.00.010.000 I srv  llama_server: --kv-unified-per-slot: sizing KV pool to n_parallel * kv_unified_per_slot = "
        "4 * 1024 = 4096",
        PoolSized(4, 1024, 4096),
    ),
    ("llama_new_context_with_model: n_ctx      = 8192", ContextSize(8192)),
    ("llama_init_from_model: n_ctx         = 32768", ContextSize(32768)),
    ("llama_context: n_ctx         = 4096", ContextSize(4096)),
    ("0.00.015.000 I llama_context: n_ctx                 = 4096", ContextSize(4096)),
    ("llama_context: kv_unified    = true", KvUnified(True)),
    ("llama_context: kv_unified            = false", KvUnified(False)),
    ("print_info: n_ctx_train      = 262144", TrainingContext(262144)),
    ("llm_load_print_meta: n_ctx_train      = 32768", TrainingContext(32768)),
    (
        "llama_new_context_with_model: KV self size  = 1024.00 MiB, K (f16):  512.00 MiB, V (f16):  512.00 MiB",
        KvSelfSize(1024 * MIB, "f16", 512 * MIB, "f16", 512 * MIB),
    ),
    (
        "llama_new_context_with_model: KV self size  = 1166.50 MiB, c^KV (q8_0): 1166.50 MiB, kv^T: not used",
        KvSelfSize(1166 * MIB + MIB // 2, "q8_0", 1166 * MIB + MIB // 2, "unused", 0),
    ),
    (
        "llama_kv_cache_unified: size =  512.00 MiB (  4096 cells,  32 layers,  1 seqs), "
        "K (f16):  256.00 MiB, V (f16):  256.00 MiB",
        KvCacheSize(4096, 32, 1, None, 512 * MIB, "f16", 256 * MIB, "f16", 256 * MIB),
    ),
    (
        "llama_kv_cache_unified: size =    2.00 MiB (  4096 cells,   2 layers,  4/ 1 seqs), "
        "K (f16):    1.00 MiB, V (f16):    1.00 MiB",
        KvCacheSize(4096, 2, 4, 1, 2 * MIB, "f16", MIB, "f16", MIB),
    ),
    (
        "llama_kv_cache: size =    2.00 MiB (  1024 cells,   2 layers,  4/4 seqs), "
        "K (q8_0):    1.50 MiB, V (q4_0):    0.50 MiB",
        KvCacheSize(1024, 2, 4, 4, 2 * MIB, "q8_0", MIB + MIB // 2, "q4_0", MIB // 2),
    ),
    ("llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells", SlidingWindowCache(False, 8192)),
    ("llama_kv_cache_iswa: creating     SWA KV cache, size = 1536 cells", SlidingWindowCache(True, 1536)),
    (
        "llama_memory_recurrent: size =   62.50 MiB (     4 cells,  40 layers,  4 seqs), "
        "R (f32):    2.50 MiB, S (f32):   60.00 MiB",
        RecurrentCacheSize(62 * MIB + MIB // 2),
    ),
    (
        "llama_memory_recurrent: size =   62.50 MiB (     4 cells,  40 layers,  4 seqs, 0 rs_seq), "
        "R (f32):    2.50 MiB, S (f32):   60.00 MiB",
        RecurrentCacheSize(62 * MIB + MIB // 2),
    ),
]

TASK: list[tuple[str, Event]] = [
    (
        "slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, sim_best = 0.643 (> 0.100 thold), "
        "f_keep = 0.871",
        SlotChosen(0, 0.643, 0.871, 0.001),
    ),
    (
        "868.50.896.345 I slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, f_sim_best = 0.998 "
        "(> 0.100 thold), f_keep = 1.000",
        SlotChosen(0, 0.998, 1.0, 0.001),
    ),
    ("slot launch_slot_: id  1 | task 3 | processing task", TaskLaunched(1, 3)),
    ("slot launch_slot_: id  1 | task 3 | processing task, is_child = 0", TaskLaunched(1, 3, child=False)),
    ("slot launch_slot_: id  1 | task 3 | processing task, is_child = 1", TaskLaunched(1, 3, child=True)),
    (
        "slot update_slots: id  0 | task 3 | prompt tokenized, n_ctx_slot = 1024, n_keep = 0, n_prompt_tokens = 900",
        PromptStarted(0, 3, 1024, 900),
    ),
    (
        "slot update_slots: id  0 | task 3 | new prompt, n_ctx_slot = 1024, n_keep = -1, n_prompt_tokens = 900",
        PromptStarted(0, 3, 1024, 900),
    ),
    (
        "slot update_slots: id  3 | task 6 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 900",
        PromptStarted(3, 6, 4096, 900),
    ),
    ("slot update_slots: id  0 | task 3 | kv cache rm [512, end)", PromptReused(0, 3, 512)),
    ("slot update_slots: id  0 | task 3 | n_past = 24, memory_seq_rm [24, end)", PromptReused(0, 3, 24)),
    ("slot update_slots: id  0 | task 3 | n_tokens = 2048, memory_seq_rm [2048, end)", PromptReused(0, 3, 2048)),
    (
        "0.00.509.000 I slot   operator(): id  3 | task 6 | cached n_tokens = 10961, memory_seq_rm [10961, end)",
        PromptReused(3, 6, 10961),
    ),
    (
        "slot update_slots: id  1 | task 5 | prompt processing progress, n_past = 900, n_tokens = 901, "
        "progress = 0.280000",
        PromptProgress(1, 5, 900, 0.28, 1e-6),
    ),
    (
        "slot update_slots: id  0 | task 1879 | prompt processing progress, n_tokens = 4096, batch.n_tokens = 2048, "
        "progress = 0.468328",
        PromptProgress(0, 1879, 4096, 0.468328, 1e-6),
    ),
    (
        "0.31.985.068 I slot print_timing: id  2 | task 9 | prompt processing, n_tokens =  18432, progress = 0.62, "
        "t =  11.40 s / 1616.84 tokens per second",
        PromptProgress(2, 9, 18432, 0.62, 0.01),
    ),
    ("slot update_slots: id  1 | task 5 | prompt done, n_past = 900, n_tokens = 901", PromptDone(1, 5, 900)),
    (
        "slot update_slots: id  1 | task 5 | prompt processing done, n_tokens = 4287, batch.n_tokens = 512",
        PromptDone(1, 5, 4287),
    ),
    (
        "slot print_timing: id  0 | task 4 | n_decoded =    102, tg =  10.51 t/s",
        GenerationTick(0, 4, 102, 10.51),
    ),
    (
        "slot print_timing: id  0 | task 4 | n_decoded =    102, tg =  10.51 t/s, tg_3s =  11.00 t/s",
        GenerationTick(0, 4, 102, 10.51),
    ),
    (
        "0.40.000.000 I slot print_timing: id  0 | task 4 | n_gen =    512, tg =  24.10 t/s, tg_3s =  22.75 t/s",
        GenerationTick(0, 4, 512, 24.1),
    ),
    ("slot print_timing: id  0 | task 4 | n_gen =    512, tg =  -nan t/s", GenerationTick(0, 4, 512, None)),
    ("slot print_timing: id  0 | task 4 | ", TimingHeader(0, 4)),
    ("slot print_timing: id  0 | task 4 |", TimingHeader(0, 4)),
    ("slot print_timing: id  0 | task -1 | ", TimingHeader(0, None)),
    (
        "prompt eval time =     131.50 ms /    53 tokens (    2.48 ms per token,   403.33 tokens per second)",
        Timing("prompt", None, None, 0.1315, 53, 403.33),
    ),
    (
        "       eval time =    1809.25 ms /   222 tokens (    8.15 ms per token,   122.70 tokens per second)",
        Timing("generation", None, None, 1.80925, 222, 122.7),
    ),
    ("      total time =    1940.75 ms /   275 tokens", Timing("total", None, None, 1.94075, 275, None)),
    (
        "slot print_timing: id  1 | task 2 | prompt eval time =       9.50 ms /   200 tokens "
        "(    0.05 ms per token, 20865.94 tokens per second)",
        Timing("prompt", 1, 2, 0.0095, 200, 20865.94),
    ),
    (
        "0.00.382.727 I slot print_timing: id  1 | task 2 |        eval time =       5.50 ms /    20 tokens "
        "(    0.29 ms per token,  3454.55 tokens per second)",
        Timing("generation", 1, 2, 0.0055, 20, 3454.55),
    ),
    (
        "0.00.382.747 I slot print_timing: id  1 | task 2 |       total time =      15.00 ms /   220 tokens",
        Timing("total", 1, 2, 0.015, 220, None),
    ),
    (
        "prompt eval time =       0.00 ms /     0 tokens (    -nan ms per token,     -nan tokens per second)",
        Timing("prompt", None, None, 0.0, 0, None),
    ),
    (
        "       eval time =       0.00 ms /     1 tokens (    0.00 ms per token,      inf tokens per second)",
        Timing("generation", None, None, 0.0, 1, None),
    ),
    (
        "prompt eval time =       0.00 ms /     0 tokens (-nan(ind) ms per token, -nan(ind) tokens per second)",
        Timing("prompt", None, None, 0.0, 0, None),
    ),
    (
        "slot      release: id  3 | task 6 | stop processing: n_past = 959, truncated = 0",
        Released(3, 6, 959, truncated=False),
    ),
    (
        "slot      release: id  3 | task 7 | stop processing: n_past = 788, truncated = 1",
        Released(3, 7, 788, truncated=True),
    ),
    (
        "215.59.717.035 I slot      release: id  0 | task 17934 | stop processing: n_tokens = 78554, truncated = 0",
        Released(0, 17934, 78554, truncated=False),
    ),
    (
        "slot      release: id  3 | task -1 | stop processing: n_past = 959, truncated = 0",
        Released(3, None, 959, truncated=False),
    ),
    ("srv          stop: cancel task, id_task = 4711", TaskCancelled(4711)),
    ("srv  cancel_tasks: cancel task, id_task = 98", TaskCancelled(98)),
    ("0.01.229.075 W srv          stop: cancel task, id_task = -1", TaskCancelled(None)),
    ("srv  update_slots: all slots are idle", AllSlotsIdle()),
    ("0.20.000.000 I srv  update_slots: all slots are idle", AllSlotsIdle()),
]

RETRY_LONG = "retrying with smaller batch size - try increasing it via the context size or enable defragmentation"

PRESSURE: list[tuple[str, Event]] = [
    ("decode: failed to find KV cache slot for ubatch of size 512", BatchUnplaced(512)),
    ("decode: failed to find a memory slot for batch of size 1024", BatchUnplaced(1024)),
    ("0.01.224.330 W decode: failed to find a memory slot for batch of size 4", BatchUnplaced(4)),
    ("52.17.408.129 E init_batch: failed to prepare attention ubatches", BatchUnplaced(None)),
    ("E find_slot: n_tokens = 600 > size = 512", BatchUnplaced(600)),
    (
        "update_slots : failed to find free space in the KV cache, retrying with smaller n_batch = 256",
        BatchRetried(None, 256),
    ),
    (
        f"srv  update_slots: failed to find free space in the KV cache, {RETRY_LONG}, i = 12, n_batch = 256, ret = 1",
        BatchRetried(12, 256),
    ),
    (
        "srv  update_slots: failed to find free space in the KV cache, retrying with smaller batch size, "
        "i = 0, n_batch = 1024, ret = 1",
        BatchRetried(0, 1024),
    ),
    (
        "29.22.825.917 W srv        decode: failed to find free space in the KV cache, "
        "retrying with smaller batch size, off = 2012, n_batch = 64, ret = 1",
        BatchRetried(2012, 64),
    ),
    ("srv  try_purge_id: purging slot 2 with 9120 tokens", SlotPurged(2, 9120)),
    ("0.10.000.000 W srv  try_clear_id: purging slot 0 with 919 tokens", SlotPurged(0, 919)),
    ("slot   clear_slot: id  1 | task -1 | clearing slot with 4120 tokens", SlotCleared(1, 4120)),
    ("slot prompt_clear: id  0 | task -1 | clearing prompt with 1025 tokens", SlotCleared(0, 1025)),
    (
        "slot update_slots: id  3 | task 77 | slot context shift, n_keep = 0, n_left = 2047, n_discard = 1023",
        ContextShifted(3, 77, 1023, 1024),
    ),
    (
        "slot   operator(): id  0 | task 5 | slot context shift, n_keep = 1, n_left = 4090, n_discard = 2045",
        ContextShifted(0, 5, 2045, 2046),
    ),
    (
        "slot   operator(): id  0 | task 5 | slot context shift, n_keep = 8188, n_left = 3, n_discard = 0",
        ContextShifted(0, 5, 0, 8191),
    ),
]

FAILED: list[tuple[str, Event]] = [
    (
        "srv  update_slots: failed to decode the batch: KV cache is full - try increasing it via the context size, "
        "i = 3, n_batch = 1, ret = 1",
        ContextExceeded(3, cleared=False),
    ),
    (
        "srv  update_slots: Context size has been exceeded., i = 0, n_batch = 1, ret = 1",
        ContextExceeded(0, cleared=False),
    ),
    (
        "srv  update_slots: Context size has been exceeded. i = 7, n_batch = 1, ret = 1",
        ContextExceeded(7, cleared=False),
    ),
    (
        "0.41.118.220 E srv        decode: Context size has been exceeded. off = 2, n_batch = 1, ret = 1",
        ContextExceeded(2, cleared=True),
    ),
    ("0.01.236.251 E srv  update_slots: decode() failed: Context size has been exceeded.", DecodeFailed()),
    ("srv    send_error: task id = 311, error: Context size has been exceeded.", RequestFailed(311, "pool")),
    ("srv    send_error: task id = -1, error: Context size has been exceeded.", RequestFailed(None, "pool")),
    (
        "srv    send_error: task id = 311, error: Input prompt is too big compared to KV size. "
        "Please try increasing KV size.",
        RequestFailed(311, "pool"),
    ),
    (
        "srv    send_error: task id = 2017, error: the request exceeds the available context size. "
        "try increasing the context size or enable context shift",
        RequestFailed(2017, "slot"),
    ),
    (
        "srv    send_error: task id = 8, error: the request exceeds the available context size, try increasing it",
        RequestFailed(8, "slot"),
    ),
    (
        "srv    send_error: task id = 8, error: request (33056 tokens) exceeds the available context size "
        "(32768 tokens), try increasing it",
        RequestFailed(8, "slot", 33056, 32768),
    ),
    (
        "srv    send_error: task id = 8, error: input is larger than the max context size. skipping",
        RequestFailed(8, "slot"),
    ),
    (
        "srv    send_error: task id = 8, error: input (5000 tokens) is larger than the max context size "
        "(4096 tokens). skipping",
        RequestFailed(8, "slot", 5000, 4096),
    ),
    (
        "srv    send_error: task id = 8, error: input is too large to process. increase the physical batch size",
        RequestFailed(8, "other"),
    ),
    ("srv    send_error: task id = 8, error: context shift is disabled", RequestFailed(8, "slot")),
    ("srv    send_error: task id = 8, error: Invalid input batch.", RequestFailed(8, "other")),
    ("srv    send_error: task id = 8, error: Compute error.", RequestFailed(8, "other")),
    (
        "srv    send_error: task id = 8, error: the model produced output that does not match the expected format",
        RequestFailed(8, "other"),
    ),
    # The text of an error may quote the request.
    ("srv    send_error: task id = 8, error: bad: Context size has been exceeded", RequestFailed(8, "other")),
]

HTTP: list[tuple[str, Event]] = [
    ("request: GET / 10.0.0.8 200", HttpRequest("GET", "/", 200)),
    (
        "srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200",
        HttpRequest("POST", "/v1/chat/completions", 200),
    ),
    ("srv  log_server_r: done request: POST /completion 127.0.0.1 500", HttpRequest("POST", "/completion", 500)),
    ("srv  log_server_r: done request: GET /slots ::1 501", HttpRequest("GET", "/slots", 501)),
    ("srv  log_server_r: request: GET /slots?fail_on_no_slot=1 127.0.0.1 503", HttpRequest("GET", "/slots", 503)),
    # Paths are percent-decoded by the server: anything can be in them.
    ("srv  log_server_r: request: GET /a b 200 127.0.0.1 404", HttpRequest("GET", "/a b 200", 404)),
    ("srv  log_server_r: request: GET /" + "x" * 5000 + " 127.0.0.1 404", HttpRequest("GET", "/" + "x" * 99, 404)),
]


def ids(table: list[tuple[str, Event]]) -> list[str]:
    return [f"{type(event).__name__}-{number}" for number, (_, event) in enumerate(table)]


SAID = [*START, *GEOMETRY, *TASK, *PRESSURE, *FAILED, *HTTP]


@pytest.mark.parametrize(("line", "event"), SAID, ids=ids(SAID))
def test_the_line_gives_the_event(line: str, event: Event) -> None:
    parsed = parse_line(line.encode())
    assert parsed == LogLine(event, "Context size has been exceeded" in line)


IGNORED = [
    # Other numbers of the context than its size.
    "llama_context: n_ctx_per_seq = 1024",
    "llama_context: n_ctx_seq     = 4096",
    "llama_context: n_ctx_per_seq (1024) < n_ctx_train (262144) -- the full capacity of the model will not be utilized",
    "llama_context: n_ctx_seq (4096) < n_ctx_train (262144) -- the full capacity of the model will not be utilized",
    "llama_context: n_seq_max     = 4",
    "llama_context: n_batch       = 2048",
    "print_info: n_ctx_orig_yarn  = 262144",
    "common_init_from_params: setting dry_penalty_last_n to ctx_size = 4096",
    "llama_context: n_ctx is not divisible by n_seq_max - rounding down to 4095",
    "llama_kv_cache_unified:        CPU KV buffer size =     2.00 MiB",
    "llama_kv_cache_init:      CUDA0 KV buffer size =   512.00 MiB",
    "llama_context:        CPU compute buffer size =    41.01 MiB",
    "load_tensors: loading model tensors, this can take a while... (mmap = true)",
    "srv    load_model: loading draft model 'draft.gguf'",
    "main: starting the main loop...",
    "init: using 8 threads for HTTP server",
    "0.00.002.543 I cmn  common_param: system_info: n_threads = 1 (n_threads_batch = 1) / 2 | CPU : SSE3 = 1 | ",
    # Choosing a slot, and its timings that are not tokens.
    "slot get_availabl: id  1 | task -1 | selected slot by lcp similarity, max_lcp_len = 10, similarity = 0.5",
    "slot get_availabl: id  1 | task -1 | selected slot by LCP similarity, sim_best = nan (> 0.100 thold), f_keep = 1",
    "slot get_availabl: id  1 | task -1 | selected slot by LRU, t_last = 71783813801",
    "0.00.382.783 I slot print_timing: id  1 | task 2 |    graphs reused =         19",
    "draft acceptance rate = 0.87923 (  182 accepted /   207 generated)",
    "slot print_timing: id  0 | task 4 | draft acceptance = 0.87923 (  182 accepted /   207 generated)",
    "slot update_slots: id  0 | task 3 | input truncated, n_ctx = 1024, n_keep = 0, n_left = 1024, n_prompt_tokens = 9",
    "prompt eval time =        nan ms /     0 tokens (     nan ms per token,      nan tokens per second)",
    "      total time =        inf ms /   275 tokens",
    "srv  update_slots: no tokens to decode",
    "srv        decode: no tokens to decode",
    # Errors that are not the cache's.
    "srv  update_slots: Invalid input batch. i = 0, n_batch = 1, ret = -1",
    "srv        decode: Compute error. off = 0, n_batch = 1, ret = -3",
    "llama_decode: failed to decode, ret = -3",
    "srv  update_slots: decode() failed: Compute error.",
    "srv  update_slots: failed to decode the batch: KV cache is full - try increasing it via the context size, "
    "i = 0, n_batch = 512, ret = -3",
    "0.26.672.359 E ggml_metal_synchronize: error: command buffer 0 failed with status 5",
    "ggml_backend_cuda_get_available_uma_memory: final available_memory_kb: 56701456",
    # Access, and other programs' access lines.
    "srv    operator(): Unauthorized: Invalid API Key",
    "Unauthorized: Invalid API Key",
    "0.10.000.000 W srv    operator(): unauthorized: Invalid API Key",
    '[INFO] Request 192.168.2.203 "GET /v1/models HTTP/1.1" 200 2389 "curl/8" 1.2ms',
    # The prompt cache in host memory, and checkpoints.
    "srv    load_model: prompt cache is enabled, size limit: 8192 MiB",
    "srv    load_model: prompt cache is enabled, size limit: no limit",
    "srv    load_model: prompt cache is disabled - use `--cache-ram N` to enable it",
    "srv  get_availabl: updating prompt cache",
    "srv   prompt_save:  - saving prompt with length 4366, total state size = 148.137 MiB (draft: 2.000 MiB)",
    "srv        update:  - cache state: 1 prompts, 210.950 MiB (limits: 8192.000 MiB, 8192 tokens, 169548 est)",
    "srv        update:    - prompt 000001E3B0B08FB0:    4366 tokens, checkpoints:  1,   210.950 MiB",
    "srv        update:  - cache size limit reached, removing oldest entry (size = 210.950 MiB)",
    "srv        update:  - cache token limit (8192) reached, removing oldest entry (size = 210.950 MiB)",
    "srv          load:  - prompt state size 900.000 MiB exceeds cache size limit 512.000 MiB, skipping",
    "srv          load: failed to restore state with size 1234",
    "slot create_check: id  0 | task 15927 | created context checkpoint 2 of 8 (pos_min = 60120, pos_max = 60120, "
    "n_tokens = 60121, size = 149.626 MiB)",
    "37.52.538.581 W slot create_check: id  0 | task 9440 | erasing old context checkpoint (pos_min = 11127, "
    "pos_max = 11127, n_tokens = 11128, size = 112.571 MiB)",
    "slot update_slots: id  1 | task 1880 | restored context checkpoint (pos_min = 13318, pos_max = 13318, size = 1)",
    "slot process_sing: id  0 | task -1 | saving idle slot to prompt cache",
    # A router's internal messages.
    '[37723] cmd_child_to_router:state:{"state":"loaded"}',
    # Numbers no cache has.
    "slot      release: id  3 | task 6 | stop processing: n_past = 99999999999999999999, truncated = 0",
    "main: server is listening on http://127.0.0.1:0",
    "main: server is listening on http://127.0.0.1:70000",
    "slot      release: id  3 | task 6 | stop processing: n_past = -1, truncated = 0",
    "",
    "\r",
    " ",
]


@pytest.mark.parametrize("line", IGNORED, ids=range(len(IGNORED)))
def test_the_line_says_nothing(line: str) -> None:
    assert parse_line(line.encode()) is None


MENTIONED = [
    # ret = 1 with a larger batch is no build's end of a cascade, other codes are not the cache's.
    "srv  update_slots: Context size has been exceeded. i = 0, n_batch = 2, ret = 1",
    "srv  update_slots: Context size has been exceeded. i = 0, n_batch = 1, ret = -3",
    "the client was told: Context size has been exceeded.",
    'data: {"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}',
    "x" * 100_000 + "Context size has been exceeded",
]


@pytest.mark.parametrize("line", MENTIONED, ids=range(len(MENTIONED)))
def test_a_mention_of_the_context_error_is_told_without_an_event(line: str) -> None:
    assert parse_line(line.encode()) == LogLine(None, mentions_context_error=True)
