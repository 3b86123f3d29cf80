"""A store that answers only after it was given up is gone on with, each line counted once, without a restart."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path

import httpx
import pytest

from kvexporter import keeper as keeper_module
from kvexporter import store_opening
from kvexporter.config import load_config
from kvexporter.daemon import Daemon
from kvexporter.options import ListenAddress, RunOptions
from kvexporter.store import Store
from kvexporter.store_reading import read_kept
from tests.support.asking import run
from tests.support.http_servers import until
from tests.support.journal_files import LiveJournalFile
from tests.support.paths import free_port
from tests.support.scrape import Scrape

COUNT = "llama_request_tokens_count"
RELEASED = "slot release: id  0 | task {} | stop processing: n_tokens = 7, truncated = 0"
CHILD_STARTS = "0.00.116.135 I srv          load: spawning server instance with name=tiny on port 40881"
CHILD_LISTENS = "[40881] 0.00.106.340 I main: server is listening on http://127.0.0.1:40881"
CHILD_RELEASED = (
    "[40881] 0.00.106.345 I slot      release: id  3 | task {} | stop processing: n_tokens = 6, truncated = 0"
)
Scraped = Callable[[], Awaitable[Scrape]]
tasks = count()


class Disk:
    """The store's: hangs until it is told to answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()

        def hanging(path: Path) -> Store:
            self.answers.wait(60)
            return Store(path)

        monkeypatch.setattr(keeper_module, "OPEN_SECONDS", 0.2)
        monkeypatch.setattr(store_opening, "Store", hanging)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[dict[str, LiveJournalFile]]:
    """The journals of a server, of a router and of a server that no store has heard of."""
    names = ("known", "router", "unknown")
    made = {name: LiveJournalFile(tmp_path / name, unit=f"{name}.service") for name in names}
    for journal in made.values():
        journal.__enter__()
    yield made
    for journal in made.values():
        journal.close()


def write(journal: LiveJournalFile, line: str, invocation: str) -> None:
    journal.write(line.format(next(tasks)), _SYSTEMD_INVOCATION_ID=invocation * 32)


def with_daemon(
    tmp_path: Path, logs: dict[str, LiveJournalFile], names: tuple[str, ...], test: Callable[[Scraped], Awaitable[None]]
) -> None:
    """Run a daemon that watches these servers, and a test beside it."""
    file = tmp_path / "kvexporter.yml"
    servers = "".join(
        f"  - {{unit: {name}.service, journal: {{directory: {logs[name].directory}}}}}\n" for name in names
    )
    file.write_text(f"discovery: false\nservers:\n{servers}")

    async def go() -> None:
        port = free_port()
        options = RunOptions(listen_addresses=(ListenAddress("127.0.0.1", port),), storage_path=tmp_path / "store.db")
        daemon = Daemon(options, load_config(file))
        task = asyncio.create_task(daemon.run())

        async def scraped() -> Scrape:
            async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
                while True:
                    try:
                        return Scrape((await client.get(f"http://127.0.0.1:{port}/metrics")).text)
                    except httpx.ConnectError:
                        await asyncio.sleep(0.02)  # it is not listening yet

        try:
            await test(scraped)
        finally:
            daemon._stop.set()
            assert await asyncio.wait_for(task, 30) == 0

    run(go())


async def shown(scraped: Scraped, expected: dict[str, float]) -> list[dict[str, float | None]]:
    """Scrape until each server has counted so many requests; all that was scraped until then."""
    seen: list[dict[str, float | None]] = []
    give_up = time.monotonic() + 40
    while not seen or seen[-1] != expected:
        assert time.monotonic() < give_up, f"expected {expected}, found {seen[-1:]}"
        now = await scraped()
        seen.append({name: now.value(COUNT, server=name) for name in expected})
        await asyncio.sleep(0.01)
    return seen


def kept(store: Path) -> dict[str, int]:
    """How many requests' sizes are stored of each server."""
    return {name: len(sizes) for name, sizes in read_kept(store).requests.items()}


def test_what_was_stored_goes_on_what_was_not_is_read_on_and_a_routers_models_are_what_they_were(
    tmp_path: Path, logs: dict[str, LiveJournalFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, router, unknown = logs.values()
    for _ in range(2):
        write(known, RELEASED, "a")
    for line in (CHILD_STARTS, CHILD_LISTENS, CHILD_RELEASED, CHILD_RELEASED):
        write(router, line, "a")

    async def before(scraped: Scraped) -> None:
        await shown(scraped, {"known": 2, "router:tiny": 2})

    with_daemon(tmp_path, logs, ("known", "router"), before)
    for journal, line in ((known, RELEASED), (router, CHILD_RELEASED)):
        write(journal, line, "a")  # while no exporter runs
        write(journal, line, "b")
    for _ in range(5):
        write(unknown, RELEASED, "c")
    disk = Disk(monkeypatch)

    async def late(scraped: Scraped) -> None:
        await shown(scraped, {"known": 1, "unknown": 5})
        disk.answers.set()
        seen = await shown(scraped, {"known": 4, "unknown": 5, "router:tiny": 4})
        assert {now["known"] for now in seen} <= {1, None, 4}, "the past is not counted up before everybody's eyes"
        assert {now["unknown"] for now in seen} == {5}
        assert (await scraped()).value("kvexporter_journal_gaps_total") == 0
        for journal, line in ((known, RELEASED), (router, CHILD_RELEASED), (unknown, RELEASED)):
            write(journal, line, "d")
        await shown(scraped, {"known": 5, "unknown": 6, "router:tiny": 5})
        await until(lambda: kept(tmp_path / "store.db") == {"known": 5, "unknown": 6, "router:tiny": 5})

    with_daemon(tmp_path, logs, ("known", "router", "unknown"), late)

    write(router, CHILD_RELEASED, "d")  # a model that nobody sees run is shown again with its next line

    async def after(scraped: Scraped) -> None:
        await shown(scraped, {"known": 5, "unknown": 6, "router:tiny": 6})

    with_daemon(tmp_path, logs, ("known", "router", "unknown"), after)


def test_an_exporter_that_is_stopped_before_the_store_answers_changes_nothing_in_it(
    tmp_path: Path, logs: dict[str, LiveJournalFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(logs["known"], RELEASED, "a")

    async def one(scraped: Scraped) -> None:
        await shown(scraped, {"known": 1})

    with_daemon(tmp_path, logs, ("known",), one)
    write(logs["known"], RELEASED, "b")
    write(logs["known"], RELEASED, "b")
    with monkeypatch.context() as patch:
        disk = Disk(patch)

        async def without(scraped: Scraped) -> None:
            await shown(scraped, {"known": 2})
            # It answers while the exporter ends.
            asyncio.get_running_loop().call_later(0.0, disk.answers.set)

        with_daemon(tmp_path, logs, ("known",), without)

    async def three(scraped: Scraped) -> None:
        await shown(scraped, {"known": 3})

    with_daemon(tmp_path, logs, ("known",), three)
