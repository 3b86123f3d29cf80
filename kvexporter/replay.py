"""A recording through the very same model: what would have been seen."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from heapq import merge
from pathlib import Path

from kvexporter.facts import JournalEntry
from kvexporter.intake import LogIntake, take_answer
from kvexporter.llama.launch import parse_launch
from kvexporter.server import Server
from kvexporter.snapshot import ExporterSnapshot
from kvexporter.sources.journal_export import read_export
from kvexporter.sources.llama_api import reason_of_status
from kvexporter.sources.log_file import read_log_file
from kvexporter.sources.recording import RecordedAnswer, RecordingError, read_arguments, read_polls

_UPTIME = re.compile(rb"(?:^|[ \x1b\]m])(\d+)\.(\d\d)\.(\d\d\d)\.(\d\d\d) (?:\x1b\[[0-9;]*m)?[IWED] ")

POLL_INTERVAL = 5.0
"""What staleness is measured by: recordings were polled at different intervals, none of them slower."""


def run_replay(
    directory: Path | None = None,
    journal_export: Path | None = None,
    log_file: Path | None = None,
    polls: Path | None = None,
    at: float | None = None,
) -> ExporterSnapshot:
    """Replay a recording up to its end, or up to `at` seconds after its first line.

    A directory holds `journal.export` or `server.log`, and where they were recorded `polls.jsonl` and `requests.json`.
    `-` as a file is standard input. Raises RecordingError.
    """
    recording = _Recording(directory, journal_export, log_file, polls)
    if at is None:
        return recording.play()
    return recording.play_until(at)


def replay_snapshots(directory: Path, seconds: Iterable[float]) -> Iterator[tuple[float, ExporterSnapshot]]:
    """Replay a recording once, and show it at each of the rising moments, in seconds after its first line."""
    recording = _Recording(directory, None, None, None)
    for second in seconds:
        yield second, recording.play_until(second)


class _Recording:
    """A recording that is played forward."""

    def __init__(
        self, directory: Path | None, journal_export: Path | None, log_file: Path | None, polls: Path | None
    ) -> None:
        arguments: tuple[str, ...] | None = None
        if directory is not None:
            if not directory.is_dir():
                raise RecordingError(f"{directory}: not a folder")
            journal_export = _first_of(journal_export, directory / "journal.export")
            if journal_export is None:
                log_file = _first_of(log_file, directory / "server.log")
            polls = _first_of(polls, directory / "polls.jsonl")
            if (directory / "requests.json").exists():
                arguments = read_arguments(directory / "requests.json")
        if journal_export is None and log_file is None:
            raise RecordingError(f"{directory}: neither journal.export nor server.log is there")
        entries = _export_entries(journal_export) if journal_export is not None else _file_entries(log_file)
        answers: Iterator[RecordedAnswer] = read_polls(polls) if polls is not None else iter(())
        self._facts: Iterator[JournalEntry | RecordedAnswer] = merge(entries, answers, key=_time)
        self._waiting: JournalEntry | RecordedAnswer | None = None
        self._first: float | None = None
        self._last = 0.0
        self._servers = _Servers(arguments)
        self._intake = LogIntake(self._servers.of)

    def play(self) -> ExporterSnapshot:
        """Play all that is left."""
        while self._step(None):
            pass
        for server in self._servers.all:
            server.conclude()
        return self._snapshot(self._last)

    def play_until(self, seconds: float) -> ExporterSnapshot:
        """Play up to so many seconds after the first line."""
        while self._step(seconds):
            pass
        end = self._last if self._first is None else self._first + seconds
        for server in self._servers.all:
            server.tick(end)
        return self._snapshot(end)

    def _step(self, seconds: float | None) -> bool:
        """Take the next fact; False if there is none up to `seconds` after the first line."""
        fact = self._waiting if self._waiting is not None else next(self._facts, None)
        self._waiting = None
        if fact is None:
            return False
        if self._first is None and isinstance(fact, JournalEntry):
            self._first = fact.at
        if seconds is not None and self._first is not None and fact.at > self._first + seconds:
            self._waiting = fact
            return False
        self._last = max(self._last, fact.at)
        if isinstance(fact, JournalEntry):
            self._intake.entry(fact)
        else:
            _take(self._servers.of(None, None), fact)
        return True

    def _snapshot(self, at: float) -> ExporterSnapshot:
        return ExporterSnapshot(
            at=at,
            servers=tuple(server.snapshot(at) for server in self._servers.all),
            journal_lines=dict(self._intake.results),
        )


class _Servers:
    """The recording's server, and a router's children by port."""

    def __init__(self, arguments: tuple[str, ...] | None) -> None:
        self._arguments = arguments
        self._by_port: dict[int | None, Server] = {}

    def of(self, port: int | None, _pid: int | None) -> Server:
        server = self._by_port.get(port)
        if server is None:
            name = "llama-server" if port is None else f"llama-server:{port}"
            server = self._by_port[port] = Server(name, unit="llama-server.service", poll_interval=POLL_INTERVAL)
            if port is None and self._arguments is not None:
                server.launched_with(parse_launch(self._arguments, {}))
        return server

    @property
    def all(self) -> list[Server]:
        return [server for _, server in sorted(self._by_port.items(), key=lambda item: item[0] or 0)]


def _time(fact: JournalEntry | RecordedAnswer) -> float:
    return fact.at


def _take(server: Server, answer: RecordedAnswer) -> None:
    reason = reason_of_status(answer.status) if answer.status is not None else "connection"
    if reason is not None:
        server.poll_failed(answer.endpoint, reason, answer.at)
    else:
        take_answer(server, answer.endpoint, answer.body, answer.at)


def _export_entries(path: Path) -> Iterator[JournalEntry]:
    if str(path) == "-":
        yield from read_export(sys.stdin.buffer)
        return
    with path.open("rb") as stream:
        yield from read_export(stream)


def _file_entries(path: Path | None) -> Iterator[JournalEntry]:
    """Lines of a bare log file. Their own uptime is their time; lines without one have that of the line before."""
    at = 0.0
    for line in read_log_file(path):
        found = _UPTIME.search(line[:200])
        if found is not None:
            minutes, seconds, millis, micros = (int(part) for part in found.groups())
            at = max(at, minutes * 60 + seconds + millis / 1e3 + micros / 1e6)
        yield JournalEntry(at=at, message=line)


def _first_of(given: Path | None, found: Path) -> Path | None:
    return given if given is not None else found if found.exists() else None
