"""The fleet's bounds and what it survives: too many servers, forged ports, errors of its own, reloads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvexporter.daemon import IDLE_SECONDS, PROCESS_SECONDS
from kvexporter.facts import JournalEntry, UnitEvent, UnitStarted, UnitStopped, UnitStopping
from kvexporter.fleet import FORGET_SECONDS, Fleet
from kvexporter.intake import MAX_CHILDREN
from kvexporter.keeper import Keeper
from kvexporter.llama import events as ev
from kvexporter.server import Server
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.targets import Target
from kvexporter.watched import MAX_SERVERS
from tests.support.asking import run
from tests.support.http_servers import until
from tests.support.journal_files import LiveJournalFile

IDLE = "srv  update_slots: all slots are idle"
PROMPT = "text of a request"


def fleet() -> Fleet:
    return Fleet(lambda: None, Keeper(None))


def in_one_journal(directory: Path, *names: str) -> list[Target]:
    selection = JournalSelection(unit="llama-server.service", directory=str(directory))
    return [Target(name, unit="llama-server.service", selection=selection, configured=True) for name in names]


def test_servers_beyond_the_bound_are_left_out_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        watching = fleet()
        targets = [Target(f"s{number:03d}") for number in range(MAX_SERVERS + 3)]
        watching.apply(targets)
        watching.apply(targets)
        assert len(watching.watched) == MAX_SERVERS
        assert watching.left_out() == {"server": 6, "child": 0, "slot": 0}
        await watching.aclose()

    run(test())
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "more than 200 servers: s200 and others are not watched"
    ]


def test_lines_with_forged_ports_bring_forth_a_bounded_number_of_children(tmp_path: Path) -> None:
    async def test() -> None:
        watching = fleet()
        watching.apply(in_one_journal(tmp_path, "router"))
        intake = watching.feeds[0].intake
        for port in range(1000, 2000):
            intake.line(f"[{port}] {IDLE}".encode(), float(port))
        assert len(watching.watched) == MAX_CHILDREN + 1
        assert watching.left_out()["child"] == 1000 - MAX_CHILDREN
        await watching.aclose()

    run(test())


def test_slots_left_out_stay_counted_when_their_server_goes() -> None:
    async def test() -> None:
        watching = fleet()
        watching.apply([Target("s", configured=True)])
        model = watching.watched["s"].model
        for slot in range(1030):
            model.line(ev.LogLine(ev.TaskLaunched(slot, 1)), 1.0)
        assert watching.left_out()["slot"] == 6
        watching.apply([])
        assert watching.left_out()["slot"] == 6
        await watching.aclose()

    run(test())


def test_a_journals_lines_go_to_the_servers_that_are_left_after_a_reload(tmp_path: Path) -> None:
    async def test() -> None:
        watching = fleet()
        watching.apply(in_one_journal(tmp_path, "first", "second"))
        watching.apply(in_one_journal(tmp_path, "second", "third"))
        server = watching.feeds[0].intake.entry(JournalEntry(1.0, IDLE.encode()))
        assert server is not None
        assert server.name == "second"
        await watching.aclose()

    run(test())


def test_counts_of_a_journal_that_is_not_read_any_more_are_kept(tmp_path: Path) -> None:
    async def test() -> None:
        watching = fleet()
        targets = in_one_journal(tmp_path, "s")
        watching.apply(targets)
        feed = watching.feeds[0]
        feed.intake.line(IDLE.encode(), 1.0)
        feed.follower.start_after(None, 2)
        for present, gaps in ((targets, 2), ([], 2), (targets, 2)):
            watching.apply(present)
            assert (watching.journal_lines()["matched"], watching.journal_gaps()) == (1, gaps)
        watching.read_journals(0.1)
        assert watching.journal_gaps() == 2
        await watching.aclose()

    run(test())


def test_a_configured_unit_that_is_not_there_is_down(tmp_path: Path) -> None:
    async def test() -> None:
        watching = fleet()
        watching.apply(in_one_journal(tmp_path, "s"))
        watching.feeds[0].follower.caught_up = True
        watching.tick(10.0)
        (server,) = watching.snapshots(10.0)
        assert (server.up, server.state) == (False, "down")
        await watching.aclose()

    run(test())


def test_an_idle_log_is_up_to_date_between_the_words_that_it_was_read_to_its_end(tmp_path: Path) -> None:
    """Else nobody would be alerted of what happens next, until the next tick of an idle daemon."""

    async def test() -> None:
        watching = fleet()
        watching.apply(in_one_journal(tmp_path, "s"))
        follower = watching.feeds[0].follower
        follower.caught_up, follower.read_until = True, 1000.0
        between_words = IDLE_SECONDS + PROCESS_SECONDS
        for now, judged in ((1000.0 + between_words, {"s"}), (1000.0 + 2 * between_words, {"s"}), (1100.0, set())):
            watching.tick(now)
            assert watching.up_to_date() == judged
        await watching.aclose()

    run(test())


def test_a_unit_of_an_earlier_exporter_is_shown_as_down_for_a_while_until_it_comes_back(tmp_path: Path) -> None:
    now = 10_000.0

    async def test() -> None:
        watching = Fleet(lambda: None, Keeper(None), lambda: now)
        target = replace(in_one_journal(tmp_path, "llama-server")[0], configured=False)
        watching.show_down([target])
        watching.apply([])
        (server,) = watching.snapshots(now)
        assert (server.name, server.up, server.state) == ("llama-server", False, "down")
        pass_time(FORGET_SECONDS / 2)
        # Its unit is started again and again, and never long enough to be found.
        watching.feeds[0].intake.entry(JournalEntry(now, b"", unit_event=UnitStarted()))
        watching.apply([])
        assert len(watching.watched) == 1
        pass_time(FORGET_SECONDS)
        watching.apply([])
        assert len(watching.watched) == 0
        await watching.aclose()

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    run(test())


def test_an_address_that_only_the_log_tells_is_taken_from_it_and_kept(tmp_path: Path) -> None:
    async def test() -> None:
        watching = fleet()
        (target,) = in_one_journal(tmp_path, "s")
        watching.apply([target])
        with LiveJournalFile(tmp_path) as journal:
            journal.write("srv  llama_server: listening on http://127.0.0.1:9")

            def addressed() -> bool:
                watching.read_journals(0.1)
                return watching.watched["s"].target.api is not None

            await until(addressed)
        watching.apply([target])
        api = watching.watched["s"].target.api
        assert api is not None
        assert api.base_url == "http://127.0.0.1:9"
        await watching.aclose()

    run(test())


def test_an_error_of_our_own_costs_one_entry_and_not_those_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = Server.line

    def line(self: Server, line: ev.LogLine, at: float) -> None:
        if isinstance(line.event, ev.SlotPurged):
            raise ZeroDivisionError(PROMPT)
        real(self, line, at)

    monkeypatch.setattr(Server, "line", line)

    async def test() -> None:
        with LiveJournalFile(tmp_path) as journal:
            for text in (IDLE, "srv x: purging slot 1 with 20 tokens", "srv x: purging slot 2 with 20 tokens"):
                journal.write(text)
            journal.write("slot release: id  0 | task 1 | stop processing: n_tokens = 7, truncated = 1")
            watching = fleet()
            watching.apply(in_one_journal(tmp_path, "s"))
            model = watching.watched["s"].model

            def read() -> bool:
                watching.read_journals(0.1)
                return model.snapshot(1.0).counters.answers_truncated == 1

            await until(read)
            assert watching.journal_lines()["malformed"] == 2
            await watching.aclose()

    run(test())
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 1
    assert "ZeroDivisionError" in said[0]
    assert PROMPT not in said[0]


def test_a_stop_of_the_unit_is_true_of_every_server_in_it(tmp_path: Path) -> None:
    """systemd's words come once, and are told to the first of the journal's servers."""

    async def test() -> None:
        watching = fleet()
        watching.apply(in_one_journal(tmp_path, "first", "second"))
        intake = watching.feeds[0].intake
        intake.line(f"[1000] {IDLE}".encode(), 0.5)

        def stopped() -> set[bool | None]:
            return {snapshot.life.stopped_on_request for snapshot in watching.snapshots(10.0)}

        assert stopped() == {None}
        events: list[tuple[UnitEvent, bool]] = [
            (UnitStarted(), False), (UnitStopping(), True), (UnitStopped(), True), (UnitStarted(), False),
        ]  # fmt: skip
        for at, (event, expected) in enumerate(events, 1):
            intake.entry(JournalEntry(float(at), b"", unit_event=event))
            assert stopped() == {expected}
        assert {snapshot.name for snapshot in watching.snapshots(10.0)} == {"first", "second", "first:1000"}
        await watching.aclose()

    run(test())
