"""The launch options that decide how much memory a llama-server takes, for comparing two of its starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LONGEST = 120
"""Characters kept of a value."""

# The first spelling names the option in reports; the last is its variable. Nothing here can hold a secret.
_VALUES = (
    ("-m", "--model", "LLAMA_ARG_MODEL"),
    ("-hf", "-hfr", "--hf-repo", "LLAMA_ARG_HF_REPO"),
    ("-c", "--ctx-size", "LLAMA_ARG_CTX_SIZE"),
    ("-np", "--parallel", "LLAMA_ARG_N_PARALLEL"),
    ("--kv-unified-per-slot", "LLAMA_ARG_KV_UNIFIED_PER_SLOT"),
    ("-ctk", "--cache-type-k", "LLAMA_ARG_CACHE_TYPE_K"),
    ("-ctv", "--cache-type-v", "LLAMA_ARG_CACHE_TYPE_V"),
    ("-b", "--batch-size", "LLAMA_ARG_BATCH"),
    ("-ub", "--ubatch-size", "LLAMA_ARG_UBATCH"),
    ("-ngl", "--gpu-layers", "--n-gpu-layers", "LLAMA_ARG_N_GPU_LAYERS"),
    ("-ncmoe", "--n-cpu-moe", "LLAMA_ARG_N_CPU_MOE"),
    ("-ot", "--override-tensor", "LLAMA_ARG_OVERRIDE_TENSOR"),
    ("-ts", "--tensor-split", "LLAMA_ARG_TENSOR_SPLIT"),
    ("-sm", "--split-mode", "LLAMA_ARG_SPLIT_MODE"),
    ("-mg", "--main-gpu", "LLAMA_ARG_MAIN_GPU"),
    ("-dev", "--device", "LLAMA_ARG_DEVICE"),
    ("-md", "--model-draft", "LLAMA_ARG_MODEL_DRAFT"),
    ("-cd", "--ctx-size-draft", "LLAMA_ARG_CTX_SIZE_DRAFT"),
    ("-ctkd", "--cache-type-k-draft", "LLAMA_ARG_CACHE_TYPE_K_DRAFT"),
    ("-ctvd", "--cache-type-v-draft", "LLAMA_ARG_CACHE_TYPE_V_DRAFT"),
    ("-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "LLAMA_ARG_N_GPU_LAYERS_DRAFT"),
    ("-mm", "--mmproj", "LLAMA_ARG_MMPROJ"),
    ("-cram", "--cache-ram", "LLAMA_ARG_CACHE_RAM"),
    ("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints", "LLAMA_ARG_CTX_CHECKPOINTS"),
)
# Of each pair the later one counts.
_FLAGS = (
    ("-kvu", "--kv-unified", "LLAMA_ARG_KV_UNIFIED"),
    ("-no-kvu", "--no-kv-unified", "LLAMA_ARG_NO_KV_UNIFIED"),
    ("--mlock", "LLAMA_ARG_MLOCK"),
    ("--no-mmap", "LLAMA_ARG_NO_MMAP"),
    ("--mmap", "LLAMA_ARG_MMAP"),
    ("-nkvo", "--no-kv-offload", "LLAMA_ARG_NO_KV_OFFLOAD"),
    ("-cmoe", "--cpu-moe", "LLAMA_ARG_CPU_MOE"),
    ("--swa-full", "LLAMA_ARG_SWA_FULL"),
)
_FLASH = ("-fa", "--flash-attn", "LLAMA_ARG_FLASH_ATTN")
_WORDS = ("on", "off", "auto")


def _spellings(table: Sequence[tuple[str, ...]]) -> dict[str, str]:
    return {spelling: names[0] for names in table for spelling in names}


_VALUE_NAMES, _FLAG_NAMES = _spellings(_VALUES), _spellings(_FLAGS)


def memory_options(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Option → value as given, `on` for flags; the command line beats the environment. Other options are left out."""
    found: dict[str, str] = {}
    for variable, value in environment.items():
        name = _VALUE_NAMES.get(variable) or _FLAG_NAMES.get(variable) or ("-fa" if variable == _FLASH[-1] else None)
        if name is not None:
            found[name] = value[:LONGEST]
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        following = arguments[at + 1] if at + 1 < len(arguments) else ""
        spelling, joined, value = argument.partition("=") if argument.startswith("-") else (argument, "", "")
        if spelling.startswith("--"):
            spelling = spelling.replace("_", "-")
        # Older builds' -fa takes no value.
        takes = spelling in _VALUE_NAMES or (spelling in _FLASH and following in _WORDS)
        name = _VALUE_NAMES.get(spelling) or _FLAG_NAMES.get(spelling) or ("-fa" if spelling in _FLASH else None)
        if name is not None:
            found[name] = (value if joined else following if takes else "on")[:LONGEST]
        at += 2 if name is not None and takes and not joined else 1
    return found
