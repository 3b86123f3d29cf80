"""The section `log` of a server: its log, where that does not go to a journal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from kvexporter.config_kinds import BOOLEAN, FILE
from kvexporter.config_reading import Key, Place, Section


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Where one server's log is, if it is not in a journal: exactly one of the two. What holds then: docs/logs.md."""

    file: Annotated[
        Path | None,
        Key(FILE, "File that the log is written to. It is followed over rotation, and need not be there yet.", "none"),
    ] = None
    stdin: Annotated[
        bool | None,
        Key(BOOLEAN, "`true`: the log is piped into kvexporter's standard input. For one server only.", "`false`"),
    ] = None


def _check_log(place: Place, log: LogConfig) -> LogConfig:
    if log.file is not None and log.stdin:
        raise place.refuse("expected file or stdin, found both: a server has one log")
    if log.file is None and not log.stdin:
        raise place.refuse("expected file, or stdin: true, found neither")
    return log


def name_of_file(path: Path) -> str:
    """A server's name after its log file: the file's name without its ending."""
    name = re.sub(r"[^A-Za-z0-9_.:@-]+", "_", path.name.removesuffix(".log"))
    return name.strip("_.")[:100] or "log"


LOG = Section(LogConfig, _check_log)
