"""kvexporter's own log: one line per message on stderr, as logfmt or JSON."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO

LogFormat = Literal["logfmt", "json"]
LEVELS = ("debug", "info", "warn", "error")

_LEVEL_NAMES = {"WARNING": "warn", "CRITICAL": "error"}
_PRIORITIES = ((logging.ERROR, "<3>"), (logging.WARNING, "<4>"), (logging.INFO, "<6>"), (0, "<7>"))
_BARE = re.compile(r"[A-Za-z0-9_./:@%+,-]+")


class LineFormatter(logging.Formatter):
    """Formats a record as one line: level, the part of the program, the message, and an exception if there is one.

    Under journald there is no time in it (journald has its own) and a priority in front that journald takes off again.
    """

    def __init__(self, form: LogFormat, *, journald: bool) -> None:
        super().__init__()
        self._form = form
        self._journald = journald

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, str] = {}
        if not self._journald:
            at = datetime.fromtimestamp(record.created, UTC)
            fields["ts"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields["level"] = _LEVEL_NAMES.get(record.levelname, record.levelname.lower())
        fields["part"] = record.name.removeprefix("kvexporter.")
        fields["msg"] = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = self.formatException(record.exc_info)
        if self._form == "json":
            line = json.dumps(fields)
        else:
            line = " ".join(f"{name}={_quoted(value)}" for name, value in fields.items())
        if not self._journald:
            return line
        return next(prefix for level, prefix in _PRIORITIES if record.levelno >= level) + line


def _quoted(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    # Letters of all languages stay readable; line separators and the like beyond ASCII may not begin a line.
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def under_journald(stream: TextIO, environment: dict[str, str] | None = None) -> bool:
    """Whether the stream goes to journald: systemd says in JOURNAL_STREAM which device and inode that is."""
    told = (os.environ if environment is None else environment).get("JOURNAL_STREAM", "")
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return told == f"{status.st_dev}:{status.st_ino}"


def set_up_logging(level: str = "info", form: LogFormat = "logfmt", stream: TextIO | None = None) -> None:
    """Send all logging to stderr at this level. Libraries only say what is a warning, unless the level is debug."""
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(form, journald=under_journald(stream)))
    chosen = {"warn": logging.WARNING}.get(level) or logging.getLevelNamesMapping()[level.upper()]
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(chosen, logging.WARNING))
    logging.getLogger("kvexporter").setLevel(chosen)
