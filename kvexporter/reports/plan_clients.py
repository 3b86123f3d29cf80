"""What to tell the clients of a server: the window that is sure, as common clients are told it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kvexporter.reports.plan import Plan

_ANSWER_SHARE = 4
"""One part in so many of a window is kept for the answer, where a client wants to be told both."""
_COMPACT = 0.85
"""Share of the window at which a client should begin to shorten its history: the answer must still fit."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The window to tell, and how."""

    window: int
    """Tokens of prompt and answer together."""
    words: str
    settings: tuple[tuple[str, tuple[str, ...]], ...]
    """Client → lines of its configuration."""


def client_settings(plan: Plan) -> ClientSettings:
    """The settings for the first configuration that is enough, else for what there is today, else for the first."""
    index = plan.first if plan.first is not None else 0
    chosen = plan.configurations[index]
    window = chosen.guaranteed
    answer = max(1, window // _ANSWER_SHARE)
    words = f"Tell each client a window of {window:,} tokens, prompt and answer together (configuration {index + 1})"
    settings = (
        ("OpenCode, opencode.json, at the model:", (f'"limit": {{"context": {window}, "output": {answer}}}',)),
        (
            "Codex, config.toml:",
            (f"model_context_window = {window}", f"model_auto_compact_token_limit = {int(window * _COMPACT)}"),
        ),
        ("Claude Code, environment:", (f"CLAUDE_CODE_AUTO_COMPACT_WINDOW={window}",)),
        (
            "Continue, config.yaml, at the model:",
            (f"defaultCompletionOptions: {{contextLength: {window}, maxTokens: {answer}}}",),
        ),
        ("Zed, settings.json, in available_models:", (f'"max_tokens": {window}, "max_output_tokens": {answer}',)),
        ("aider, .aider.model.metadata.json (it only warns):", (f'"max_input_tokens": {window - answer}',)),
        ("any other:", (f"context window {window}; largest answer (max_tokens) {answer}",)),
    )
    return ClientSettings(window, words, settings)
