"""Runs the stand-ins as systemd runs units: their lines go to the journal, and so does what becomes of them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable

from kvexporter.demo import unit_messages
from kvexporter.demo.ending import Ended
from kvexporter.demo.household import Child, Household
from kvexporter.demo.journal_writer import DemoJournal, copy_lines


class Unit:
    """One unit. `command` gives the command line of each start, the first being 0.

    `restart_seconds`: it is started again so long after its end (Restart=always); None: it is not to end.
    """

    def __init__(
        self,
        server: str,
        description: str,
        command: Callable[[int], list[str]],
        restart_seconds: float | None = None,
    ) -> None:
        self.server = server
        """The name that the exporter has for it."""
        self.name = f"llama-{server}.service"
        self._description = description
        self._command = command
        self._restart_seconds = restart_seconds
        self.child: Child | None = None
        self.over = False
        """It has ended for good."""
        self.starts = 0

    def start(self, household: Household, journal: DemoJournal) -> None:
        """Start it, and look after it in a thread of its own."""
        child = self._spawn(household, journal)
        threading.Thread(target=self._look_after, args=(child, household, journal), daemon=True).start()

    def _spawn(self, household: Household, journal: DemoJournal) -> Child:
        child = household.spawn(self.name, self._command(self.starts), stdout=subprocess.PIPE)
        self.starts += 1
        self.child = child
        journal.write_fields(unit_messages.started(self.name, self._description))
        return child

    def _look_after(self, child: Child, household: Household, journal: DemoJournal) -> None:
        try:
            while True:
                output = child.process.stdout
                assert output is not None  # noqa: S101 - started with a pipe
                copy_lines(output, journal, child.process.pid, self.name)
                status = child.process.wait()
                if self._restart_seconds is None:
                    self.over = True
                    return
                journal.write_fields(unit_messages.exited(self.name, status))
                journal.write_fields(unit_messages.failed(self.name))
                household.pause(self._restart_seconds)
                journal.write_fields(unit_messages.restart_scheduled(self.name, self.starts))
                journal.write_fields(unit_messages.stopped(self.name, self._description))
                child = self._spawn(household, journal)
        except Ended:
            return
        except OSError:
            self.over = True  # no more processes, or a full disk

    def words(self) -> str:
        """What it said on stderr."""
        return self.child.words() if self.child is not None else ""
