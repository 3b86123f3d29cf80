"""The spellings of llama-server's launch options, of all builds, on the command line and in the environment.

Only options that decide how a server is watched are here. Each maps to a name of our own.
"""

from __future__ import annotations

import re

VALUES = {
    "-c": "context",
    "--ctx-size": "context",
    "-np": "parallel",
    "--parallel": "parallel",
    "--kv-unified-per-slot": "per_slot",
    "-ctk": "cache_type_k",
    "--cache-type-k": "cache_type_k",
    "-ctv": "cache_type_v",
    "--cache-type-v": "cache_type_v",
    "--sleep-idle-seconds": "sleep_idle_seconds",
    "--host": "host",
    "--port": "port",
    "--api-prefix": "api_prefix",
    "--api-key": "api_key",
    "--api-key-file": "api_key_file",
    "--ssl-key-file": "tls_key",
    "--ssl-cert-file": "tls_certificate",
    "-m": "model",
    "--model": "model",
    "-mu": "model_url",
    "--model-url": "model_url",
    "-dr": "docker",
    "--docker-repo": "docker",
    "-hf": "repository",
    "-hfr": "repository",
    "--hf-repo": "repository",
    "-a": "alias",
    "--alias": "alias",
    "-lv": "verbosity",
    "--verbosity": "verbosity",
    "--log-verbosity": "verbosity",
    "--log-file": "log_file",
    "-cram": "cache_ram",
    "--cache-ram": "cache_ram",
    # A router's own options: named so that their values are not taken for options.
    "--models-dir": "models_dir",
    "--models-preset": "models_preset",
    "--models-max": "models_max",
}
"""Options with a value."""

FLAGS = {
    "-kvu": ("unified", True),
    "--kv-unified": ("unified", True),
    "-no-kvu": ("unified", False),
    "--no-kv-unified": ("unified", False),
    "--metrics": ("metrics", True),
    "--slots": ("slots", True),
    "--no-slots": ("slots", False),
    "--slots-endpoint-disable": ("slots", False),  # before b3761
    "--cache-idle-slots": ("cache_idle_slots", True),
    "--no-cache-idle-slots": ("cache_idle_slots", False),
    "--clear-idle": ("cache_idle_slots", True),  # b8658 to b8851
    "--no-clear-idle": ("cache_idle_slots", False),
    "--context-shift": ("context_shift", True),
    "--no-context-shift": ("context_shift", False),
}
"""Options without a value, and what they say."""

MODEL_SHORTCUT = re.compile(r"--(?!spec-)[a-z0-9.-]+-default|--fim-[a-z0-9.-]+-spec", re.ASCII)
"""Options that name a model to download, as `--gpt-oss-20b-default`."""

# In the order of their weight: a later entry of the same name wins over an earlier one.
ENVIRONMENT = (
    ("LLAMA_ARG_CTX_SIZE", "context"),
    ("LLAMA_ARG_N_PARALLEL", "parallel"),
    ("LLAMA_ARG_KV_SPLIT", "unified"),  # what the first builds with -kvu called it, whatever the word says
    ("LLAMA_ARG_KV_UNIFIED", "unified"),
    ("LLAMA_ARG_KV_UNIFIED_PER_SLOT", "per_slot"),
    ("LLAMA_ARG_CACHE_TYPE_K", "cache_type_k"),
    ("LLAMA_ARG_CACHE_TYPE_V", "cache_type_v"),
    ("LLAMA_ARG_ENDPOINT_METRICS", "metrics"),
    ("LLAMA_ARG_ENDPOINT_SLOTS", "slots"),
    ("LLAMA_ARG_HOST", "host"),
    ("LLAMA_ARG_PORT", "port"),
    ("LLAMA_ARG_API_PREFIX", "api_prefix"),
    ("LLAMA_API_KEY", "api_key"),
    ("LLAMA_ARG_API_KEY_FILE", "api_key_file"),
    ("LLAMA_ARG_SSL_KEY_FILE", "tls_key"),
    ("LLAMA_ARG_SSL_CERT_FILE", "tls_certificate"),
    ("LLAMA_ARG_MODEL", "model"),
    ("LLAMA_ARG_MODEL_URL", "model_url"),
    ("LLAMA_ARG_DOCKER_REPO", "docker"),
    ("LLAMA_ARG_HF_REPO", "repository"),
    ("LLAMA_ARG_ALIAS", "alias"),
    ("LLAMA_LOG_VERBOSITY", "verbosity"),  # older builds
    ("LLAMA_ARG_LOG_VERBOSITY", "verbosity"),
    ("LLAMA_ARG_LOG_FILE", "log_file"),
    ("LLAMA_ARG_CLEAR_IDLE", "cache_idle_slots"),  # b8658 to b8851
    ("LLAMA_ARG_CACHE_IDLE_SLOTS", "cache_idle_slots"),
    ("LLAMA_ARG_CONTEXT_SHIFT", "context_shift"),
    ("LLAMA_ARG_CACHE_RAM", "cache_ram"),
)
"""Variable, our name. `--sleep-idle-seconds` has no variable."""

ENVIRONMENT_OFF = (
    ("LLAMA_ARG_NO_KV_UNIFIED", "unified"),
    ("LLAMA_ARG_NO_ENDPOINT_SLOTS", "slots"),
    ("LLAMA_ARG_NO_CLEAR_IDLE", "cache_idle_slots"),
    ("LLAMA_ARG_NO_CACHE_IDLE_SLOTS", "cache_idle_slots"),
    ("LLAMA_ARG_NO_CONTEXT_SHIFT", "context_shift"),
)
"""Variables that turn an option off."""

TRUE_WORDS = ("on", "enabled", "true", "1")
FALSE_WORDS = ("off", "disabled", "false", "0")
