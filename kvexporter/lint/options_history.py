"""Launch options of llama-server that other builds know than the one that options_table.py was made from.

From the server's own documentation at six dates between October 2024 and October 2026, and from reports of users whose
server refused an option. Builds are given where they are known; "before b11434" says only that b11434 refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvexporter.lint.option import Option


@dataclass(frozen=True, slots=True)
class Former:
    """An option that not every build knows."""

    option: Option
    until: str
    """Until when builds know it, in words."""
    instead: str = ""
    """What to give instead; empty: nothing."""
    last_build: int | None = None
    """The last build that takes it, where that is known."""


def _former(
    *names: str, values: int = 0, variable: str = "", until: str = "before b11434", instead: str = "",
    last: int | None = None,
) -> Former:  # fmt: skip
    return Former(Option(names, (), values, variable), until, instead, last)


def _load_mode(*names: str, variable: str = "", instead: str = "") -> Former:
    return _former(*names, variable=variable, until="September 2026 (b10884)", instead=instead, last=10883)


FORMER: tuple[Former, ...] = (
    _load_mode("--mlock", variable="LLAMA_ARG_MLOCK", instead="--load-mode mlock"),
    _load_mode("--mmap", variable="LLAMA_ARG_MMAP", instead="--load-mode mmap"),
    _load_mode("--no-mmap", variable="LLAMA_ARG_NO_MMAP", instead="--load-mode none"),
    _load_mode("-dio", "--direct-io", variable="LLAMA_ARG_DIO", instead="--load-mode dio"),
    _load_mode("-ndio", "--no-direct-io"),
    _former("--clear-idle", variable="LLAMA_ARG_CLEAR_IDLE", until="b8852", instead="--cache-idle-slots", last=8851),
    _former(
        "--no-clear-idle", variable="LLAMA_ARG_NO_CLEAR_IDLE", until="b8852", instead="--no-cache-idle-slots", last=8851
    ),
    _former("--slots-endpoint-disable", until="September 2024 (b3761)", instead="--no-slots", last=3760),
    _former("--log-format", values=1, until="September 2024 (b3761)", last=3760),
    _former("--tfs", values=1, until="February 2025"),
    _former("--penalize-nl", until="February 2025"),
    _former("-ld", "--logdir", values=1, until="February 2025"),
    _former("-p", "--prompt", values=1, until="February 2025"),
    _former("-f", "--file", values=1, until="February 2025"),
    _former("-bf", "--binary-file", values=1, until="February 2025"),
    _former("--verbose-prompt"),
    _former("-dkvc", "--dump-kv-cache"),
    _former("-cd", "--ctx-size-draft", values=1, variable="LLAMA_ARG_CTX_SIZE_DRAFT"),
    _former("--spec-replace", values=2),
    _former("-hfv", "-hfrv", "--hf-repo-v", values=1, variable="LLAMA_ARG_HF_REPO_V"),
    _former("-hffv", "--hf-file-v", values=1, variable="LLAMA_ARG_HF_FILE_V"),
    _former("-mv", "--model-vocoder", values=1),
    _former("--tts-use-guide-tokens"),
)

NEWER: tuple[Option, ...] = (Option(("--moe-cache-mib",), values=1, variable="LLAMA_ARG_MOE_CACHE_MIB"),)
"""Options of builds after the table's."""

FORMER_VARIABLES: dict[str, str] = {
    "LLAMA_ARG_KV_SPLIT": "LLAMA_ARG_KV_UNIFIED",  # the first builds with -kvu, July 2025
    "LLAMA_LOG_COLORS": "LLAMA_ARG_LOG_COLORS",
    "LLAMA_LOG_VERBOSITY": "LLAMA_ARG_LOG_VERBOSITY",
    "LLAMA_LOG_PREFIX": "LLAMA_ARG_LOG_PREFIX",
    "LLAMA_LOG_TIMESTAMPS": "LLAMA_ARG_LOG_TIMESTAMPS",
    "LLAMA_CHAT_TEMPLATE_KWARGS": "LLAMA_ARG_CHAT_TEMPLATE_KWARGS",
    "LLAMA_OFFLINE": "LLAMA_ARG_OFFLINE",
    "LLAMA_ARG_MODEL_DRAFT": "LLAMA_ARG_SPEC_DRAFT_MODEL",
    "LLAMA_ARG_DRAFT_P_MIN": "LLAMA_ARG_SPEC_DRAFT_P_MIN",
    "LLAMA_ARG_CPU_MOE_DRAFT": "LLAMA_ARG_SPEC_DRAFT_CPU_MOE",
    "LLAMA_ARG_N_CPU_MOE_DRAFT": "LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE",
    "LLAMA_ARG_CACHE_TYPE_K_DRAFT": "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",
    "LLAMA_ARG_CACHE_TYPE_V_DRAFT": "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",
    "LLAMA_ARG_WEBUI": "LLAMA_ARG_UI",
    "LLAMA_ARG_NO_WEBUI": "LLAMA_ARG_NO_UI",
    "LLAMA_ARG_WEBUI_CONFIG": "LLAMA_ARG_UI_CONFIG",
    "LLAMA_ARG_WEBUI_CONFIG_FILE": "LLAMA_ARG_UI_CONFIG_FILE",
}
"""Variables of older builds, and what they are called now: taken for known, since an older server reads them."""

SINCE: dict[str, int] = {
    "--api-prefix": 5844,
    "-kvu": 5913,
    "--context-shift": 6206,
    "-cram": 6723,
    "--models-dir": 7218,
    "-fit": 7407,
    "--sleep-idle-seconds": 7492,
    "--cache-idle-slots": 8658,
    "--kv-unified-per-slot": 10662,
}
"""First spelling of an option → the first build that knows it, for those that came after b4400 and matter here."""

FLASH_ATTENTION_TAKES_A_VALUE = 6325
"""From this build on `-fa` needs on, off or auto after it, and auto is the default; before, it stood alone."""

AUTOMATIC_SLOTS = 6925
"""From this build on the server has four slots and one shared buffer when -np is not given; before, one slot."""

UNIFIED_BY_ITSELF = 7433
"""From this build on automatic slots share one buffer even after --no-kv-unified."""

VERBOSITY_THREE = 9151
"""From this build on verbosity 3 shows what is shown by default."""

SLOTS_BY_DEFAULT = 6337
"""From this build on /slots answers without --slots."""
