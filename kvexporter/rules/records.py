"""Names of the recorded series, level:metric:operation, for the rules that make them and those that read them."""

from __future__ import annotations

from kvexporter.rules import thresholds as limit
from kvexporter.rules.spans import span

SPEED_NOW = f"server:llama_generation_tokens_per_second:mean{span(limit.SLOW_WINDOW)}"
"""Mean of the requests' generation speeds, in tokens per second."""

SPEED_USUAL = f"server:llama_generation_tokens_per_second:mean{span(limit.SLOW_BASELINE)}"

REQUEST_P95 = f"server:llama_request_tokens:p95_{span(limit.SLOW_BASELINE)}"
"""Tokens within which 95 % of the requests stayed: what a slot's window should hold."""

DIED = "server:llama_context_exceeded_requests:increase1d"
"""Requests that died for want of context, by cause."""

GROWTH = "server:llama_memory_growth_bytes:min1h"
"""The process's own memory beyond what it took at its start, without short peaks."""
