"""Where a diagnosis gets its lines from: real journal files, exports, logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvexporter.diagnosing import reading
from kvexporter.diagnosing.logbook import ServerStory
from kvexporter.diagnosing.reading import LogInput, read_stories
from kvexporter.replay_input import NothingFoundError
from kvexporter.sources.journal_library import JournalUnavailableError
from kvexporter.sources.recording import RecordingError
from tests.support.diagnosing import EXPECTED, recorded, without_times
from tests.support.journal_entries import START, entry, from_systemd
from tests.support.journal_files import journal_from_export
from tests.support.paths import RECORDINGS

EXIT = b"98e322203f7a4ed290d09fe03c09fe15"
RESTART = b"5eb03494b6584870a536b337290809b3"
ERROR = b"Context size has been exceeded"


def lines(name: str, at: float = 0.0, *, step: float = 0.001, **fields: str) -> list[tuple[float, bytes]]:
    """A recorded log's entries with their times."""
    return [
        (at + number * step, entry(line, at + number * step, **fields)) for number, line in enumerate(recorded(name))
    ]


def journal(folder: Path, *parts: list[tuple[float, bytes]]) -> Path:
    journal_from_export(export(*parts), folder)
    return folder


def export(*parts: list[tuple[float, bytes]]) -> bytes:
    return b"".join(data for _, data in sorted((item for part in parts for item in part), key=lambda item: item[0]))


def one(source: LogInput) -> ServerStory:
    (story,) = read_stories(source)
    return story


# ---- journals ------------------------------------------------------------------------------------------------------


def test_all_units_users_units_and_containers_of_a_llama_server_are_found(tmp_path: Path) -> None:
    ssh = [(n / 100, entry(b"Accepted publickey for root", n / 100, _SYSTEMD_UNIT="ssh.service")) for n in range(20)]
    quoting = [(9.0, entry(b"500: " + ERROR, 9.0, _SYSTEMD_UNIT="agent.service"))]
    folder = journal(
        tmp_path / "journal",
        lines("b11434/unified_overflow", _SYSTEMD_UNIT="llama-a.service", _PID="1001"),
        lines("b5541/one_slot_q8", _SYSTEMD_UNIT="user@1000.service", _SYSTEMD_USER_UNIT="mine.service", _PID="1002"),
        lines("b8635/unified_fits", _SYSTEMD_UNIT="docker.service", CONTAINER_NAME="box", _PID="1003"),
        ssh,
        quoting,
    )
    stories = read_stories(LogInput(journal=folder))
    assert [(story.name, story.geometry.capacity, story.counters.incidents["pool"]) for story in stories] == [
        ("box", 4096, 0),
        ("llama-a", 4096, 1),
        ("mine", 3072, 0),
    ]


def test_a_unit_is_diagnosed_alone_when_it_is_named(tmp_path: Path) -> None:
    folder = journal(
        tmp_path / "journal",
        lines("b11434/unified_overflow", _SYSTEMD_UNIT="llama-a.service"),
        lines("b11434/one_slot_q8", _SYSTEMD_UNIT="llama-b.service"),
    )
    story = one(LogInput(unit="llama-b", journal=folder))
    assert (story.name, story.unit, story.geometry.capacity) == ("llama-b", "llama-b.service", 3072)


def test_restarts_and_exit_codes_come_from_systemds_words(tmp_path: Path) -> None:
    unit = "llama-server.service"
    words = [
        item
        for n in range(24)
        for item in (
            (
                20.0 + n,
                from_systemd(
                    f"{unit}: Main process exited", EXIT, 20.0 + n, unit, EXIT_CODE="exited", EXIT_STATUS="127"
                ),
            ),
            (20.5 + n, from_systemd(f"{unit}: Scheduled restart job", RESTART, 20.5 + n, unit, N_RESTARTS=str(n + 1))),
        )
    ]
    folder = journal(tmp_path / "journal", lines("b11434/unified_fits", _SYSTEMD_UNIT=unit), words)
    story = one(LogInput(journal=folder))
    assert (story.counters.unit_restarts, story.counters.unit_exits) == (24, {"127": 24})


def test_a_unit_that_never_got_as_far_as_a_line_is_diagnosed_by_systemds_words(tmp_path: Path) -> None:
    unit = "llama-server.service"
    words = [
        (1.0, from_systemd(f"{unit}: Main process exited", EXIT, 1.0, unit, EXIT_CODE="exited", EXIT_STATUS="127"))
    ]
    bash = [(0.5, entry("run.sh: line 3: 262144: command not found", 0.5, _SYSTEMD_UNIT=unit))]
    folder = journal(tmp_path / "journal", bash, words)
    assert one(LogInput(unit=unit, journal=folder)).counters.unit_exits == {"127": 1}


def test_only_the_time_between_since_and_until_is_counted(tmp_path: Path) -> None:
    folder = journal(
        tmp_path / "journal",
        lines("b11434/unified_overflow", 0.0),
        lines("b11434/unified_overflow", 100.0),
        lines("b11434/unified_overflow", 200.0),
    )
    start = START / 1e6
    assert one(LogInput(journal=folder)).counters.incidents["pool"] == 3
    assert one(LogInput(journal=folder, since=start + 50)).counters.incidents["pool"] == 2
    assert one(LogInput(journal=folder, since=start + 50, until=start + 150)).counters.incidents["pool"] == 1
    assert one(LogInput(journal=folder, until=start + 50)).counters.incidents["pool"] == 1


def test_the_pool_is_known_from_the_runs_beginning_though_that_is_before_since(tmp_path: Path) -> None:
    folder = journal(
        tmp_path / "journal",
        lines("b11434/one_slot_q8", _SYSTEMD_INVOCATION_ID="b" * 32),
        lines("b11434/unified_overflow", 10.0, step=1.0, _SYSTEMD_INVOCATION_ID="a" * 32),
    )
    story = one(LogInput(journal=folder, since=START / 1e6 + 20.0))
    assert story.geometry.capacity == 4096
    assert story.starts == 0
    assert story.incidents[0].capacity == 4096


def test_a_routers_children_are_servers_of_their_own_by_their_models_names(tmp_path: Path) -> None:
    child = [
        (n / 100, entry(b"[ 8081] " + line, n / 100)) for n, line in enumerate(recorded("b11434/unified_overflow"), 10)
    ]
    router = [
        (0.01, entry("srv    load: spawning server instance with name=tiny on port 8081", 0.01)),
    ]
    folder = journal(tmp_path / "journal", router, child)
    stories = {story.name: story for story in read_stories(LogInput(journal=folder))}
    assert stories["llama-server:tiny"].counters.incidents["pool"] == 1


def test_a_line_that_journald_split_counts_once_and_is_no_line_twice(tmp_path: Path) -> None:
    pieces = [
        (0.5, entry(b"a long line", 0.5, _LINE_BREAK="line-max", _STREAM_ID="s")),
        (0.6, entry(b"slot      release: id  0 | task 9 | stop processing: n_tokens = 7", 0.6, _STREAM_ID="s")),
        (0.7, entry(b"another long line", 0.7, _LINE_BREAK="line-max", _STREAM_ID="s")),
        (0.8, entry(b"text with " + ERROR, 0.8, _STREAM_ID="s")),
    ]
    folder = journal(tmp_path / "journal", lines("b11434/unified_fits", 10.0), pieces)
    story = one(LogInput(journal=folder))
    assert story.requests_ended == EXPECTED["b11434/unified_fits"]["releases"]
    assert story.counters.error_lines == 1


def test_long_journals_give_the_same_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = journal(
        tmp_path / "journal", *(lines(name, 10.0 * n) for n, name in enumerate(("b8635/uneven_overflow",) * 8))
    )
    alone = one(LogInput(journal=folder))
    monkeypatch.setattr("kvexporter.diagnosing.spans.WORTH_BYTES", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    together = one(LogInput(journal=folder))
    assert without_times(together) == without_times(alone)
    assert together.clients == alone.clients
    assert (together.first, together.last) == (alone.first, alone.last)


def test_a_clock_that_was_set_back_changes_no_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts by time do not fit together then: one process reads it all from the start."""
    entries = [data for n in range(3) for _, data in lines("b11434/unified_overflow", 100.0 - 40.0 * n)]
    journal_from_export(b"".join(entries), tmp_path / "journal")
    monkeypatch.setattr("kvexporter.diagnosing.spans.WORTH_BYTES", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    story = one(LogInput(journal=tmp_path / "journal", unit="llama-server"))
    assert story.counters.incidents["pool"] == 3
    assert story.counters.error_lines == 3 * EXPECTED["b11434/unified_overflow"]["log_lines"]


def test_progress_rises_to_the_end(tmp_path: Path) -> None:
    folder = journal(tmp_path / "journal", *(lines("b8635/unified_overflow", 10.0 * n) for n in range(8)))
    told: list[float | None] = []
    read_stories(LogInput(journal=folder), told.append)
    shares = [share for share in told if share is not None]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0, abs=0.01)


def test_a_journal_without_a_llama_server_says_so(tmp_path: Path) -> None:
    folder = journal(tmp_path / "journal", [(0.0, entry("hello", 0.0, _SYSTEMD_UNIT="ssh.service"))])
    with pytest.raises(NothingFoundError, match="no llama-server line found"):
        read_stories(LogInput(journal=folder))
    with pytest.raises(NothingFoundError, match=r"ssh\.service: is it the right unit"):
        read_stories(LogInput(journal=folder, unit="ssh"))
    with pytest.raises(NothingFoundError, match=r"no entries of other\.service"):
        read_stories(LogInput(journal=folder, unit="other"))


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JournalUnavailableError, match="there is no journal folder"):
        read_stories(LogInput(journal=tmp_path / "none"))


def test_a_folder_without_journal_files_says_so(tmp_path: Path) -> None:
    with pytest.raises(NothingFoundError, match="no journal files"):
        read_stories(LogInput(journal=tmp_path, unit="llama"))


# ---- exports and logs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED)
def test_export_journal_files_and_bare_log_of_a_recording_tell_the_same(name: str, tmp_path: Path) -> None:
    folder = RECORDINGS / name
    exported = one(LogInput(journal_export=folder / "journal.export"))
    journal_from_export((folder / "journal.export").read_bytes(), tmp_path / "journal")
    stored = one(LogInput(journal=tmp_path / "journal"))
    logged = one(LogInput(log_file=folder / "server.log"))
    assert exported == stored
    assert (exported.geometry, exported.request_sizes, exported.clients) == (
        logged.geometry, logged.request_sizes, logged.clients,
    )  # fmt: skip
    assert exported.counters.incidents == logged.counters.incidents


def test_a_part_of_an_export_knows_the_pool_from_before(tmp_path: Path) -> None:
    path = tmp_path / "journal.export"
    path.write_bytes(export(lines("b11434/unified_overflow", step=1.0)))
    story = one(LogInput(journal_export=path, since=START / 1e6 + 10.0, until=START / 1e6 + 1000.0))
    assert (story.geometry.capacity, story.starts, story.counters.incidents["pool"]) == (4096, 0, 1)
    assert story.first is not None
    assert story.first >= START / 1e6 + 10.0
    nothing = LogInput(journal_export=path, until=START / 1e6 - 1.0)
    with pytest.raises(NothingFoundError, match="in that time"):
        read_stories(nothing)


def test_an_export_that_is_cut_off_is_read_as_far_as_it_goes_and_said_to_have_gaps(tmp_path: Path) -> None:
    path = tmp_path / "journal.export"
    whole = (RECORDINGS / "b11434/unified_overflow" / "journal.export").read_bytes()
    path.write_bytes(whole[: whole.rindex(b"MESSAGE=")])
    assert one(LogInput(journal_export=path)).gap


@pytest.mark.parametrize("text", [b"", b"hello\nworld\n", b"__REALTIME_TIMESTAMP=1\nMESSAGE=hello\n\n"])
def test_what_is_no_log_of_a_llama_server_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(text)
    with pytest.raises(RecordingError):
        read_stories(LogInput(log_file=path))
    with pytest.raises(RecordingError):
        read_stories(LogInput(journal_export=path))


def test_the_name_of_a_bare_log_is_the_programs() -> None:
    assert one(LogInput(log_file=RECORDINGS / "b11434/unified_fits" / "server.log")).name == reading.NAME
