"""The configuration of a command."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kvexporter.commands.failures import UnusableError

if TYPE_CHECKING:
    from kvexporter.config import Config


def configured(file: Path | None, *, deadline: float | None = None) -> Config:
    """What this file says; without one, the defaults. Raises UnusableError with every problem found.

    While the file's disk does not answer it is waited for, `deadline` seconds at most, and that is said on stderr.
    """
    from kvexporter.config import Config, ConfigError, load_config
    from kvexporter.reading_at_start import NotReadError, read_at_start

    if file is None:
        return Config()
    try:
        return read_at_start(partial(load_config, file), deadline=deadline)
    except (ConfigError, NotReadError) as error:
        raise UnusableError(str(error)) from None
