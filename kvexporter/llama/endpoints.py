"""The paths that llama-server answers, which are told apart: clients can ask for anything."""

from __future__ import annotations

ENDPOINTS = frozenset(
    {
        "/",
        "/health",
        "/v1/health",
        "/metrics",
        "/props",
        "/slots",
        "/models",
        "/v1/models",
        "/completion",
        "/completions",
        "/v1/completions",
        "/chat/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/infill",
        "/embedding",
        "/embeddings",
        "/v1/embeddings",
        "/rerank",
        "/reranking",
        "/v1/rerank",
        "/v1/reranking",
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/lora-adapters",
        "/api/chat",
        "/api/show",
        "/api/tags",
    }
)
"""Of all builds. They are label values of their own, the rest is `other`; and they alone are kept in memory."""
