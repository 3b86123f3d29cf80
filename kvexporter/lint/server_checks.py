"""What is wrong with one start of a llama-server: of all checks the order, and the one for a missing model."""

from __future__ import annotations

from kvexporter.lint.command_line import Walk
from kvexporter.lint.findings import Findings
from kvexporter.lint.options_history import SINCE
from kvexporter.lint.pool_checks import check_pool, check_v_cache
from kvexporter.lint.repeated_options import check_overridden, check_repeated
from kvexporter.lint.server_command import ServerCommand, UnderstoodCommand
from kvexporter.lint.watching_checks import check_watching

# It prints something and ends.
_ENDS_AT_ONCE = ("-h", "--version", "-cl", "--completion-bash", "--list-devices")


def check_server(command: ServerCommand, out: Findings, build: int | None) -> None:
    """Add all that is wrong with one start of a llama-server."""
    given = Walk(command.arguments, out, build).run()
    if any(given.last(option) is not None for option in _ENDS_AT_ONCE):
        return
    understood = UnderstoodCommand(command, given, out.book, build)
    check_repeated(understood, out)
    check_overridden(understood, out)
    _check_model(understood, out)
    check_pool(understood, out)
    check_v_cache(understood, out)
    check_watching(understood, out)


def _check_model(command: UnderstoodCommand, out: Findings) -> None:
    has_models = command.is_given("--models-dir", "LLAMA_ARG_MODELS_DIR")
    if not command.all_known or not command.launch.router or has_models:
        return
    router = SINCE["--models-dir"]
    if command.build is not None and command.build < router:
        out.add(
            "no-model", "error", command.start, f"no model is given, and builds before b{router} need one",
            "They look for models/7B/ggml-model-f16.gguf in their folder, and end if it is not there.",
            command.added("-m FILE"),
        )  # fmt: skip
        return
    out.add(
        "no-model", "note", command.start, "no model is given: the server becomes a router",
        f"Builds from b{router} on then load each model that is asked for into a server of its own, which gets "
        "these options and so a pool as they say. Older builds need -m.",
    )  # fmt: skip
