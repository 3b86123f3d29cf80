"""The demonstration's folder and its processes; all are gone when it ends, however it ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from kvexporter.demo.ending import Ended
from kvexporter.demo.janitor import MARK, PATIENCE_SECONDS, end_marked

_JANITOR_SECONDS = 15.0


class Child:
    """One process. What it says on stderr is in `log`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def words(self) -> str:
        """All that it said on stderr."""
        return self._log.read_text(errors="replace")

    def last_words(self) -> str:
        """The end of that."""
        return "\n".join(self.words().splitlines()[-10:])


class Household:
    """A folder of its own and processes that end with it; a context manager.

    Should this process be killed, a janitor, which is a process of its own, does what was left to do. OSError when
    there is no room for the folder.
    """

    def __enter__(self) -> Household:
        read, self._alive = os.pipe()
        # In a session of its own: it outlives the terminal.
        self._janitor = subprocess.Popen(
            [sys.executable, "-m", "kvexporter.demo.janitor"],
            stdin=read,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read)
        assert self._janitor.stdout is not None  # noqa: S101 - opened as a pipe above
        with self._janitor.stdout as output:
            folder = os.fsdecode(output.readline()).removesuffix("\n")
        if not folder.startswith("/"):
            self._dismiss()
            raise OSError(0, folder.removeprefix("!") or "cannot be written", tempfile.gettempdir())
        self.folder = Path(folder)
        self._children: list[Child] = []
        self._lock = threading.Lock()
        self._ending = threading.Event()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._ending.set()
        for child in self._children:
            if not child.ended:
                child.process.terminate()
        deadline = time.monotonic() + PATIENCE_SECONDS
        for child in self._children:
            try:
                child.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        end_marked(self.folder, 1.0)  # what they had started themselves
        shutil.rmtree(self.folder, ignore_errors=True)
        self._dismiss()

    def _dismiss(self) -> None:
        os.close(self._alive)
        try:
            self._janitor.wait(_JANITOR_SECONDS)
        except subprocess.TimeoutExpired:
            self._janitor.kill()
            self._janitor.wait()

    @property
    def environment(self) -> dict[str, str]:
        """That of its processes."""
        # What the exporter keeps between runs must be neither the user's nor kept.
        return {**os.environ, MARK: str(self.folder), "STATE_DIRECTORY": str(self.folder)}

    def pause(self, seconds: float) -> None:
        """Wait, in another thread than the main one; Ended when everything ends."""
        if self._ending.wait(seconds):
            raise Ended

    def spawn(
        self,
        name: str,
        command: Sequence[str | Path],
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start a process; `name` names its log. Ended when everything ends; OSError when it cannot be started."""
        log = self.folder / f"{name}.log"
        with self._lock:
            if self._ending.is_set():
                raise Ended
            with log.open("ab") as errors:
                # In a session of its own, so that a Ctrl-C in the terminal reaches the demonstration only.
                process = subprocess.Popen(
                    command,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=errors,
                    env={**self.environment, **(environment or {})},
                    start_new_session=True,
                )
            child = Child(process, log)
            self._children = [one for one in self._children if not one.ended]
            self._children.append(child)
        return child
