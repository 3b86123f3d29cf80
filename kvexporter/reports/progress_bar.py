"""A bar on standard error for long reads; nothing is seen of it where reading is over at once."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

PATIENCE_SECONDS = 0.7
"""Reading that takes no longer needs no bar."""
_BETWEEN_SECONDS = 0.1


class ProgressBar:
    """Shows how much has been read. A context manager. It draws when it is told something, and needs no thread."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("reading"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console if console is not None else Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("reading", total=None)
        self._begun = self._drawn = time.monotonic()
        self._shown = False

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._progress.stop()

    def reached(self, share: float | None) -> None:
        """So much of it has been read, 0 to 1; None: not known."""
        now = time.monotonic()
        if now - self._begun < PATIENCE_SECONDS or now - self._drawn < _BETWEEN_SECONDS:
            return
        self._drawn = now
        if not self._shown:
            self._progress.start()
            self._shown = True
        if share is not None:
            self._progress.update(self._task, completed=share, total=1.0)
        self._progress.refresh()
