"""How llama-server b11434 words its log and its answers. Sizes are tokens, times seconds since its start. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

STAMP = re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3} ")

COUNTERS = (
    ("prompt_tokens_total", "Number of prompt tokens processed, excluding cached tokens"),
    ("prompt_tokens_cached_total", "Number of prompt tokens reused from the cache"),
    ("prompt_seconds_total", "Total time spent processing prompts"),
    ("tokens_predicted_total", "Number of generation tokens processed"),
    ("tokens_predicted_seconds_total", "Total time spent generating tokens"),
    ("n_decode_total", "Total number of llama_decode() calls, excluding speculative decoding and multimodal decoding"),
    # The largest so far: a counter by its TYPE only, and never added up.
    ("n_tokens_max", "Largest observed sequence length (prompt + generation)"),
    ("spec_decode_num_draft_tokens_total", "Speculative: Total draft tokens generated"),
    ("spec_decode_num_accepted_tokens_total", "Speculative: Total draft tokens accepted by the target model"),
    ("spec_decode_num_drafts_total", "Speculative: Total speculative decoding verification steps"),
)
GAUGES = (
    ("prompt_tokens_seconds", "Average prompt throughput in tokens/s"),
    ("predicted_tokens_seconds", "Average generation throughput in tokens/s"),
    ("requests_processing", "Number of requests processing"),
    ("requests_deferred", "Number of requests deferred"),
    ("n_busy_slots_per_decode", "Average number of busy slots per llama_decode() call"),
)
SUMS = tuple(name for name, _ in COUNTERS if name != "n_tokens_max")


def stamped(at: float, text: str) -> str:
    """A line with its time before it, as minutes.seconds.milliseconds.microseconds."""
    minutes, micros = divmod(round(at * 1e6), 60_000_000)
    return f"{minutes}.{micros // 1_000_000:02d}.{micros // 1000 % 1000:03d}.{micros % 1000:03d} {text}"


# ---- the log, without time stamps ------------------------------------------------------------------------------------


def loading(model: str, slots: int, slot_context: int, unified: bool) -> list[str]:
    """What is said while a model is loaded, at the start and after sleep."""
    return [
        f"I srv    load_model: loading model '{model}'",
        "I cmn          init: llama threadpool init, n_threads = 2",
        f"I srv    load_model: initializing, n_slots = {slots}, n_ctx_slot = {slot_context}, "
        f"kv_unified = '{str(unified).lower()}'",
    ]


def start(model: str, slots: int, slot_context: int, unified: bool) -> list[str]:
    """The lines of a start, the address it listens on as the recordings have it."""
    return [
        *BEGINNING,
        *loading(model, slots, slot_context, unified),
        "I srv  llama_server: model loaded",
        "I srv  llama_server: listening on http://127.0.0.1:8080",
    ]


BEGINNING = (
    "I srv  llama_server: initializing ...",
    "I cmn  common_param: common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)",
    "W srv  llama_server: security: no API key is set and CORS allows all origins "
    "(see https://github.com/ggml-org/llama.cpp/pull/25655)",
)
GOODBYE = "I srv    operator(): operator(): cleaning up before exit..."
FALLS_ASLEEP = (
    "I que    start_loop: entering sleeping state",
    "I srv  handle_sleep: server is entering sleeping state",
)
WAKES_UP = (
    "I que    start_loop: exiting sleeping state",
    "I srv  handle_sleep: server is exiting sleeping state",
)


def missing_model(model: str) -> list[str]:
    """A start that fails because the model's file is not there; the exit status is 1."""
    failed = (
        f"E gguf_init_from_file: failed to open GGUF file '{model}' (No such file or directory)",
        f"E llama_model_load: error loading model: llama_model_loader: failed to load model from {model}",
        "E llama_model_load_from_file_impl: failed to load model",
    )
    return [
        *BEGINNING,
        f"I srv    load_model: loading model '{model}'",
        *failed,
        "E common_fit_params: encountered an error while trying to fit params to free device memory: "
        "failed to load model",
        *failed,
        f"E cmn  common_init_: failed to load model '{model}'",
        f"E srv    load_model: failed to load model, '{model}'",
        GOODBYE,
        "E srv  llama_server: exiting due to model loading error",
    ]


def launch(slot: int, task: int, last_used: int) -> list[str]:
    """A request gets a slot. `last_used`: when the slot was last used (microseconds), -1 if never."""
    return [
        f"I slot get_availabl: id  {slot} | task -1 | selected slot by LRU, t_last = {last_used}",
        f"I slot launch_slot_: id  {slot} | task {task} | processing task, is_child = 0",
    ]


def reading(slot: int, task: int, tokens: int, prompt: int, cached: int, seconds: float) -> str:
    """How far a prompt has been read, said once it takes more than three seconds."""
    speed = (tokens - cached) / seconds
    return (
        f"I slot print_timing: id  {slot} | task {task} | prompt processing, n_tokens = {tokens:6d}, "
        f"progress = {tokens / prompt:.2f}, t = {seconds:6.2f} s / {speed:.2f} tokens per second"
    )


def writing(slot: int, task: int, tokens: int, speed: float, recent: float) -> str:
    """How long an answer is, said every three seconds. Speeds are tokens a second, of all and of the last three."""
    return (
        f"I slot print_timing: id  {slot} | task {task} | n_gen = {tokens:6d}, tg = {speed:6.2f} t/s, "
        f"tg_3s = {recent:6.2f} t/s"
    )


def done(slot: int, task: int, read: int, read_seconds: float, written: int, write_seconds: float) -> list[str]:
    """A request's times at its end. `read`: what had to be read of its prompt."""

    def timing(name: str, seconds: float, tokens: int) -> str:
        per_token = seconds * 1000 / tokens
        return (
            f"{name} time = {seconds * 1000:10.2f} ms / {tokens:5d} tokens "
            f"({per_token:8.2f} ms per token, {1000 / per_token:8.2f} tokens per second)"
        )

    head = f"I slot print_timing: id  {slot} | task {task} | "
    return [
        head + timing("prompt eval", read_seconds, read),
        head + timing("       eval", write_seconds, written),
        f"{head}      total time = {(read_seconds + write_seconds) * 1000:10.2f} ms / {read + written:5d} tokens",
        f"{head}   graphs reused = {max(0, written - 4):10d}",
    ]


def release(slot: int, task: int, tokens: int) -> str:
    """A slot is free again; it keeps what it holds as cache."""
    return f"I slot      release: id  {slot} | task {task} | stop processing: n_tokens = {tokens}, truncated = 0"


# ---- answers ---------------------------------------------------------------------------------------------------------


def unused_slot(slot: int, slot_context: int) -> dict[str, Any]:
    """A slot that has had no request since the model was loaded, in `/slots`."""
    return {"id": slot, "n_ctx": slot_context, "speculative": False, "is_processing": False}


def used_slot(
    slot: int, slot_context: int, task: int, held: int, limit: int, working: tuple[int, int, int] | None
) -> dict[str, Any]:
    """A slot in `/slots`. `working`: tokens read, taken from the cache, and written; None when it is idle."""
    read, cached, written = working or (0, 0, 0)
    return {
        **unused_slot(slot, slot_context),
        "is_processing": working is not None,
        "id_task": task,
        "n_prompt_tokens": held,
        "n_prompt_tokens_processed": read,
        "n_prompt_tokens_cache": cached,
        "params": {"n_predict": limit, "max_tokens": limit, "n_keep": 0, "stream": False},
        "next_token": [
            {
                "has_next_token": working is not None,
                "has_new_line": False,
                "n_remain": limit - written if working is not None else -1,
                "n_decoded": written,
            }
        ],
    }


def props(model: str, slots: int, slot_context: int, sleeping: bool) -> dict[str, Any]:
    """`/props`, without templates and sampling."""
    return {
        "default_generation_settings": {"n_ctx": slot_context},
        "total_slots": slots,
        "model_alias": model,
        "model_path": model,
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "build_info": "b11434",
        "is_sleeping": sleeping,
    }


def metrics_text(values: Mapping[str, float]) -> str:
    """`/metrics`; what `values` does not have is 0."""
    return "".join(_families(values))


def _families(values: Mapping[str, float]) -> Iterator[str]:
    for kind, names in (("counter", COUNTERS), ("gauge", GAUGES)):
        for name, meaning in names:
            value = values.get(name, 0)
            number = f"{int(value)}" if value == int(value) else f"{value:.6g}"
            yield f"# HELP llamacpp:{name} {meaning}\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {number}\n"


def read_metrics(text: str) -> dict[str, float]:
    """The values of such a text."""
    pairs = (line.split() for line in text.splitlines() if line.startswith("llamacpp:"))
    return {name.removeprefix("llamacpp:"): float(value) for name, value in pairs}
