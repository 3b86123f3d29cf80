"""Runs the demonstration: journal, stand-in, the real exporter, and the commentary; leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import httpx

from kvexporter.demo.commentary import Reading, geometry_line, incident_table, pool_line, read_exposition
from kvexporter.demo.journal_writer import DemoJournal, NoJournalError, copy_lines, open_journal
from kvexporter.demo.story import Story, load_story
from kvexporter.options import DEFAULT_PORT
from kvexporter.sources.journal_library import journal_available

START_SECONDS = 30.0
INCIDENT_SECONDS = 15.0
"""The exporter has so long to show what the log said."""


@dataclass(frozen=True)
class DemoOptions:
    """How the demonstration runs."""

    once: bool = False
    """End after one story instead of repeating it."""
    speed: float = 12.0
    """Times faster than the recording."""
    port: int | None = None
    """The exporter's port; None: 9889, or the next free one."""
    linger: float = 10.0
    """Seconds between the incident and the server's next start."""
    interval: float = 3.0
    """Seconds between two lines of commentary."""


class DemoError(Exception):
    """The demonstration cannot go on; the text says why."""


def run_demo(options: DemoOptions) -> int:
    """Run it until Ctrl-C, or with `once` to the story's end. Exit status 1: the exporter missed the incident."""
    # A closed terminal and a kill end it as Ctrl-C does.
    previous = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with ExitStack() as stack:
            return _run(options, stack)
    except KeyboardInterrupt:
        print("\nended")
        return 0
    except (DemoError, NoJournalError) as error:
        print(f"kvexporter demo: {error}", file=sys.stderr)
        return 1
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(options: DemoOptions, stack: ExitStack) -> int:
    if reason := journal_available():
        raise DemoError(reason)
    story = load_story()
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvexporter-demo-")))
    journal = open_journal(directory / "journal")
    stack.callback(journal.close)
    port = options.port or _free_port(DEFAULT_PORT)
    standin_port = _free_port(0)
    exporter = _start_exporter(directory, journal, port, standin_port, stack)
    url = f"http://127.0.0.1:{port}"
    _introduce(story, options, url, standin_port, journal)
    incidents = failed = 0
    while True:
        standin = _start_standin(options, directory, journal, standin_port, stack)
        reading = _watch(options, exporter, standin, url, incidents)
        if reading is None:
            raise DemoError("the exporter has not shown the incident; its last words:\n" + exporter.last_words())
        print(f"\n{incident_table(reading, failed)}\n    (read from {url}/metrics)\n", flush=True)
        incidents, failed = reading.incidents, reading.requests_failed
        if options.once:
            return 0
        print("The server starts again and the story repeats; Ctrl-C ends it.\n", flush=True)
        standin.process.wait()


def _introduce(story: Story, options: DemoOptions, url: str, standin_port: int, journal: DemoJournal) -> None:
    minutes, seconds = divmod(round(story.duration), 60)
    print(
        f"Four agents share one llama-server with a KV pool of {story.slot_context:,} tokens; each was told it has all "
        f"of it.\nRecorded from a real one ({story.build}, {minutes} min {seconds} s) and replayed {options.speed:g} "
        "times faster. The exporter is the real one.\n\n"
        f"  {url}/         the exporter's page\n"
        f"  {url}/metrics  what Prometheus scrapes\n"
        f"  http://127.0.0.1:{standin_port}/slots    what the server answers\n"
        f"  {journal.description}\n\n"
        "Ctrl-C ends it and removes everything it made.\n",
        flush=True,
    )


# ---- the processes ---------------------------------------------------------------------------------------------------


class Child:
    """A process of the demonstration; it ends with it, whatever ends that."""

    def __init__(self, command: list[str], output: int, log: Path, stack: ExitStack) -> None:
        # In a session of its own, so that a Ctrl-C in the terminal reaches this program only; setpriv ends it should
        # this program be killed.
        guard = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        self._log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*guard, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                # What the exporter keeps between runs must be neither the user's nor kept.
                env={**os.environ, "STATE_DIRECTORY": str(log.parent)},
                start_new_session=True,
            )
        self._copier: threading.Thread | None = None
        stack.callback(self.end)

    def copy_output_to(self, journal: DemoJournal) -> None:
        """Write what it prints to a journal, where it does not print there itself."""
        if self.process.stdout is not None:
            arguments = (self.process.stdout, journal, self.process.pid)
            self._copier = threading.Thread(target=copy_lines, args=arguments, daemon=True)
            self._copier.start()

    def end(self) -> None:
        """End it, by force if it does not want to."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self._copier is not None:
            self._copier.join(10)

    def last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-10:])


def _start_exporter(directory: Path, journal: DemoJournal, port: int, standin_port: int, stack: ExitStack) -> Child:
    config = directory / "kvexporter.yml"
    config.write_text(
        "poll_interval: 500ms\n"
        "servers:\n"
        "  - name: demo\n"
        f"    url: http://127.0.0.1:{standin_port}\n"
        f"    {journal.server_config}\n"
    )
    command = [
        *(sys.executable, "-m", "kvexporter", "run"),
        *("--config.file", str(config), "--web.listen-address", f"127.0.0.1:{port}"),
    ]
    exporter = Child(command, subprocess.DEVNULL, directory / "exporter.log", stack)
    deadline = time.monotonic() + START_SECONDS
    while _get(f"http://127.0.0.1:{port}/-/ready") is None:
        if exporter.process.poll() is not None or time.monotonic() > deadline:
            raise DemoError("the exporter did not start:\n" + exporter.last_words())
        time.sleep(0.1)
    return exporter


def _start_standin(options: DemoOptions, directory: Path, journal: DemoJournal, port: int, stack: ExitStack) -> Child:
    command = [
        *(sys.executable, "-m", "kvexporter.demo.standin", "--port", str(port)),
        *("--speed", str(options.speed), "--linger", str(options.linger)),
    ]
    standin = Child(command, journal.child_stdout, directory / "standin.log", stack)
    standin.copy_output_to(journal)
    return standin


def _free_port(first: int) -> int:
    """The first free port of 127.0.0.1 from `first` on; 0: any."""
    for port in [*range(first, first + 50), 0] if first else [0]:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise DemoError("no port is free on 127.0.0.1")


# ---- the commentary --------------------------------------------------------------------------------------------------


def _watch(options: DemoOptions, exporter: Child, standin: Child, url: str, seen: int) -> Reading | None:
    """Comment on one story until its incident is shown, and give that reading; None if it never is."""
    started = next_line = time.monotonic()
    geometry_told = False
    ended: float | None = None
    while True:
        time.sleep(0.25)
        now = time.monotonic()
        if exporter.process.poll() is not None:
            raise DemoError("the exporter ended:\n" + exporter.last_words())
        if standin.process.poll() is not None:
            if standin.process.returncode != 0:
                raise DemoError("the stand-in ended:\n" + standin.last_words())
            ended = ended or now
            if now > ended + INCIDENT_SECONDS:
                return None
        text = _get(f"{url}/metrics")
        if text is None:
            continue
        reading = read_exposition(text)
        if reading.incidents > seen:
            return reading
        if not geometry_told and (line := geometry_line(reading)):
            print(line + "\n", flush=True)
            geometry_told = True
        if now >= next_line and ended is None:
            print(pool_line(now - started, reading), flush=True)
            next_line = now + options.interval


def _get(url: str) -> str | None:
    """The body of a good answer, else None."""
    try:
        answer = httpx.get(url, timeout=5, trust_env=False)
    except httpx.TransportError:
        return None
    return answer.text if answer.status_code == 200 else None
