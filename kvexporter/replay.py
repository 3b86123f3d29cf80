"""A recording through the very same model: what would have been seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from types import TracebackType

from kvexporter.export_writers import ExportWriters, Writer
from kvexporter.facts import JournalEntry
from kvexporter.intake import MAX_CHILDREN, LogIntake, take_answer
from kvexporter.llama.launch import parse_launch
from kvexporter.replay_input import check_log, find_writers, log_entries
from kvexporter.server import Server
from kvexporter.snapshot import ExporterSnapshot
from kvexporter.sources.journal_export import read_export
from kvexporter.sources.llama_api import reason_of_status
from kvexporter.sources.recorded_file import open_recorded
from kvexporter.sources.recording import RecordedAnswer, RecordingError, read_arguments, read_polls

POLL_INTERVAL = 5.0
"""What staleness is measured by: recordings were polled at different intervals, none of them slower."""

_PEAK_SECONDS = 1.0
"""How exactly a peak's time is known."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a recording gave."""

    snapshot: ExporterSnapshot
    peaks: Mapping[str, tuple[float, float]]
    """Server → its pool's highest fill ratio and when that was, for those whose fill was ever known."""
    since_start: bool
    """Times are seconds since the server's start, as a bare log has no others."""


def replay(
    directory: Path | None = None,
    journal_export: Path | None = None,
    log_file: Path | None = None,
    polls: Path | None = None,
    at: float | None = None,
) -> Replayed:
    """Replay a recording up to its end, or up to `at` seconds after its first line.

    A directory holds `journal.export` or `server.log`, and where they were recorded `polls.jsonl` and `requests.json`.
    `-` as a file is standard input. Raises RecordingError, OSError.
    """
    with _Recording(directory, journal_export, log_file, polls) as recording:
        snapshot = recording.play() if at is None else recording.play_until(at)
        return Replayed(snapshot, recording.peaks, recording.since_start)


def run_replay(
    directory: Path | None = None,
    journal_export: Path | None = None,
    log_file: Path | None = None,
    polls: Path | None = None,
    at: float | None = None,
) -> ExporterSnapshot:
    """As `replay`: the snapshot alone."""
    return replay(directory, journal_export, log_file, polls, at).snapshot


def replay_snapshots(directory: Path, seconds: Iterable[float]) -> Iterator[tuple[float, ExporterSnapshot]]:
    """Replay a recording once, and show it at each of the rising moments, in seconds after its first line."""
    with _Recording(directory, None, None, None) as recording:
        for second in seconds:
            yield second, recording.play_until(second)


class _Recording:
    """A recording that is played forward. A context manager: it holds a file open."""

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
        path = journal_export if journal_export is not None else log_file
        if path is None:
            raise RecordingError(f"{directory}: neither journal.export nor server.log is there")
        self.peaks: dict[str, tuple[float, float]] = {}
        self.since_start = journal_export is None
        self._files = ExitStack()
        self._writers: ExportWriters | None = None
        with ExitStack() as opened:
            stream = opened.enter_context(open_recorded(path))
            if journal_export is not None:
                self._writers = find_writers(path, stream, alone=polls is None)
                entries = read_export(stream)
            else:
                check_log(path, stream, alone=polls is None)
                entries = log_entries(stream)
            self._files = opened.pop_all()
        writers = self._writers.writers if self._writers is not None else ()
        if len(writers) > 1 and (polls is not None or arguments is not None):
            names = ", ".join(writer.name for writer in writers[:5])
            raise RecordingError(
                f"{path}: lines of {len(writers)} servers ({names}…), and the polls and the command line are of one of "
                "them: choose it with journalctl -u UNIT"
            )
        answers: Iterator[RecordedAnswer] = read_polls(polls) if polls is not None else iter(())
        self._facts: Iterator[JournalEntry | RecordedAnswer] = merge(entries, answers, key=_time)
        self._waiting: JournalEntry | RecordedAnswer | None = None
        self._first: float | None = None
        self._last = 0.0
        self._looked = 0.0
        """When the fill was last looked at."""
        self._changed: set[Server] = set()
        """Servers that facts have come of since."""
        self._journals = {writer: _Journal(writer, arguments) for writer in writers or (Writer("llama-server"),)}
        self._only = next(iter(self._journals.values()))

    def __enter__(self) -> _Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def play(self) -> ExporterSnapshot:
        """Play all that is left."""
        while self._step(None):
            pass
        for server in self._servers():
            server.conclude()
        return self._snapshot(self._last)

    def play_until(self, seconds: float) -> ExporterSnapshot:
        """Play up to so many seconds after the first line."""
        while self._step(seconds):
            pass
        end = self._last if self._first is None else self._first + seconds
        for server in self._servers():
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
        if fact.at - self._looked >= _PEAK_SECONDS:
            self._look()
            self._looked = fact.at
        self._last = max(self._last, fact.at)
        if isinstance(fact, JournalEntry):
            server = self._take_entry(fact)
        else:
            server = self._only.server(None, None)
            _take(server, fact)
        if server is not None:
            self._changed.add(server)
        return True

    def _take_entry(self, entry: JournalEntry) -> Server | None:
        if self._writers is None:
            return self._only.intake.entry(entry)
        writer = self._writers.of(entry)
        # In the journal of a whole host most entries are no server's; the exporter would not have read them either.
        return self._journals[writer].intake.entry(entry) if writer is not None else None

    def _look(self) -> None:
        """Note new peaks. The model remembers the highest fill of a minute, so nothing between two looks is missed."""
        for server in self._changed:
            pool = server.snapshot(self._last).pool
            ratio = pool.fill_peak_ratio if pool is not None else None
            if ratio is not None and ratio > self.peaks.get(server.name, (0.0, 0.0))[0]:
                self.peaks[server.name] = (ratio, self._last)
        self._changed.clear()

    def _servers(self) -> list[Server]:
        return [server for journal in self._journals.values() for server in journal.servers]

    def _snapshot(self, at: float) -> ExporterSnapshot:
        self._look()
        lines: Counter[str] = Counter()
        for journal in self._journals.values():
            lines.update(journal.intake.results)
        return ExporterSnapshot(
            at=at, servers=tuple(server.snapshot(at) for server in self._servers()), journal_lines=dict(lines)
        )


class _Journal:
    """One server's log: the server, and if it is a router its children by port."""

    def __init__(self, writer: Writer, arguments: tuple[str, ...] | None) -> None:
        self.intake = LogIntake(self.server)
        self._writer = writer
        self._by_port: dict[int | None, Server] = {}
        if arguments is not None:
            self.server(None, None).launched_with(parse_launch(arguments, {}))

    def server(self, port: int | None, _pid: int | None) -> Server:
        """The server of a line with this child's port, made when it is first heard of."""
        server = self._by_port.get(port)
        if server is None and port is not None and len(self._by_port) - (None in self._by_port) >= MAX_CHILDREN:
            return self.server(None, None)
        if server is None:
            name = self._writer.name if port is None else f"{self._writer.name}:{port}"
            server = self._by_port[port] = Server(name, unit=self._writer.unit, poll_interval=POLL_INTERVAL)
        return server

    @property
    def servers(self) -> list[Server]:
        return [server for _, server in sorted(self._by_port.items(), key=lambda item: item[0] or 0)]


def _time(fact: JournalEntry | RecordedAnswer) -> float:
    return fact.at


def _take(server: Server, answer: RecordedAnswer) -> None:
    reason = reason_of_status(answer.status) if answer.status is not None else "connection"
    if reason is not None:
        server.poll_failed(answer.endpoint, reason, answer.at)
    else:
        take_answer(server, answer.endpoint, answer.body, answer.at)


def _first_of(given: Path | None, found: Path) -> Path | None:
    return given if given is not None else found if found.exists() else None
