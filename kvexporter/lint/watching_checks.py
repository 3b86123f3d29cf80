"""What kvexporter needs of a llama-server to watch it, and a start does not give: its log, /slots and /metrics."""

from __future__ import annotations

from kvexporter.lint.findings import Findings
from kvexporter.lint.options_history import SLOTS_BY_DEFAULT, VERBOSITY_THREE
from kvexporter.lint.server_command import UnderstoodCommand


def check_watching(command: UnderstoodCommand, out: Findings) -> None:
    """What is turned off, and, where all that is given is known, what is not turned on."""
    _check_log(command, out)
    if command.launch.slots is False:
        out.add(
            "slots-endpoint-off", "warning",
            command.at("--slots", "LLAMA_ARG_NO_ENDPOINT_SLOTS", "LLAMA_ARG_ENDPOINT_SLOTS"),
            "the endpoint /slots is turned off",
            "kvexporter has only the log to tell who holds how much: nothing between the lines of a long answer.",
            command.removed(command.given.last("--slots")),
        )  # fmt: skip
    if command.all_known and not command.launch.router:
        _check_missing(command, out)


def _check_log(command: UnderstoodCommand, out: Findings) -> None:
    disabled = command.given.last("--log-disable")
    if disabled is not None:
        out.add(
            "log-off", "warning", disabled.name.start, "the log is turned off",
            "kvexporter counts incidents from the log, and finds out who held what there.", command.removed(disabled),
        )  # fmt: skip
    verbosity, build = command.launch.verbosity, command.build
    # Older builds count otherwise.
    if verbosity is not None and verbosity < 3 and (build is None or build >= VERBOSITY_THREE):
        out.add(
            "log-too-quiet", "warning", command.at("-lv", "LLAMA_ARG_LOG_VERBOSITY", "LLAMA_LOG_VERBOSITY"),
            f"verbosity {verbosity} hides the lines of starts and ends of requests",
            "Incidents are still counted, but not who held what. The default of builds since May 2026 is 3.",
            command.with_value("-lv", "3"),
        )  # fmt: skip


def _check_missing(command: UnderstoodCommand, out: Findings) -> None:
    if command.launch.metrics is None:
        out.add(
            "metrics-missing", "note", command.start, "--metrics is not given",
            "kvexporter shows everything but llama-server's own counters.", command.added("--metrics"),
        )  # fmt: skip
    if command.launch.slots is None and command.build is not None and command.build < SLOTS_BY_DEFAULT:
        out.add(
            "slots-missing", "note", command.start,
            f"--slots is not given, and builds before b{SLOTS_BY_DEFAULT} need it",
            "kvexporter has only the log to tell who holds how much.", command.added("--slots"),
        )  # fmt: skip
