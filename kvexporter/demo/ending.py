"""How the demonstration is told to end: Ctrl-C, a kill, a closed terminal. Nothing is interrupted midway."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from types import FrameType, TracebackType


class Ended(Exception):  # noqa: N818 - no error: somebody wants it to end
    """The demonstration is to end now."""


class Ending:
    """Notes the signals that end it; a context manager, for the main thread only.

    A signal never raises by itself: whatever is being started or stopped is finished first, so that nothing is left
    behind. `wait` and `check` raise Ended.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __enter__(self) -> Ending:
        # A pipe, not an Event: a handler that runs inside Event.wait may find the Event's own lock taken.
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._previous = {number: signal.signal(number, self._note) for number in self._SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def _note(self, _: int, __: FrameType | None) -> None:
        # A full pipe means that many signals came, and one is enough.
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"!")

    def wait(self, seconds: float) -> None:
        """Wait; Ended when it is told to end."""
        deadline = time.monotonic() + seconds
        if select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise Ended

    def check(self) -> None:
        """Ended when it has been told to end."""
        self.wait(0)

    def say(self, text: str) -> None:
        """Print it; Ended when nobody reads any more."""
        try:
            print(text, flush=True)
        except OSError:
            # What Python still holds of it would raise once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise Ended from None
