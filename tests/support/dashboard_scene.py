"""A real server, exporter and Prometheus, and agents that fill the pool: what dashboards are looked at with."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from types import TracebackType

from tests.support.exporter import Exporter
from tests.support.fake_nvml import FakeNvml
from tests.support.journal_files import LiveJournalFile
from tests.support.llama_server import RealLlamaServer, tokens
from tests.support.paths import free_port, wait_for
from tests.support.prometheus import Prometheus

SERVER = "main"
SLOTS = 4
GIB = 1 << 30
SETTLE_SECONDS = 90.0
STORY_SECONDS = 600.0


class DashboardScene:
    """Use as a context manager, then `play`. The GPUs are told by a driver's library of our own."""

    def __init__(
        self, directory: Path, *, small: int, large: int, growth: int, answer: int, unlimited_from: float
    ) -> None:
        self.directory = directory
        self.small, self.large = small, large
        self.growth, self.answer = growth, answer
        """Tokens that an agent's prompt and answer grow by in a turn."""
        self.unlimited_from = unlimited_from
        """Part of its share of the pool from which on an agent's answers have no limit."""
        self.started = time.time()
        self._stack = ExitStack()

    def __enter__(self) -> DashboardScene:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.nvml = FakeNvml(self.directory / "nvml")
            journal = self._stack.enter_context(LiveJournalFile(self.directory / "journal"))
            self.server = RealLlamaServer(journal=journal, port=free_port())
            self._start_server(self.small)
            self._stack.callback(self.server.stop)
            config = {
                "name": SERVER,
                "url": self.server.url,
                # Not as a unit: its process is found by its port, for this journal is not of this boot.
                "journal": {"directory": str(journal.directory), "matches": [{"_SYSTEMD_UNIT": journal.unit}]},
                "poll_interval": "500ms",
            }
            with _environment(self.nvml.environment):
                exporter = Exporter({"idle_poll_interval": "1s", "servers": [config]})
                self.exporter = self._stack.enter_context(exporter)
            targets = {"kvexporter": self.exporter.address}
            self.prometheus = self._stack.enter_context(Prometheus(self.directory / "prometheus", targets))
            self.started = time.time()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def play(self) -> None:
        """A small pool is large enough for a few turns; a larger one is filled until its requests die."""
        first = self._settled(None)
        self._agents(turns=2)
        self.server.stop()
        self._start_server(self.large)
        self._settled(first)
        assert self._agents(turns=None), "the pool did not run out"
        # Afterwards the server works as if nothing had been.
        self._agents(turns=2)
        self.exporter.wait_value(SLOTS, "llama_context_exceeded_requests_total", server=SERVER, cause="pool")

    def _start_server(self, context: int) -> None:
        # Without cached prompts in RAM: what grows then is the pool alone.
        self.server.arguments = ("-c", str(context), "-np", str(SLOTS), "-kvu", "--metrics", "-cram", "0")
        self.server.start()
        used = 9 * GIB + context * 160 * 1024
        self.nvml.tell(
            "count 2",
            "name@0 NVIDIA GeForce RTX 4090", "uuid@0 GPU-aaaa", f"mem@0 {24 * GIB} {24 * GIB - used} {used} 0",
            "util@0 87", "temp@0 61", "power@0 312500", f"proc@0 {self.server.pid} {used}",
            "name@1 NVIDIA GB10", "uuid@1 GPU-bbbb", "util@1 12", "temp@1 43", "power@1 21500",
        )  # fmt: skip

    def _settled(self, before: float | None) -> float:
        """Wait until the memory of a start that is not `before` is known, and give the time of that start."""

        def probe() -> float | None:
            now = self.exporter.scrape()
            start = now.value("llama_process_start_time_seconds", server=SERVER)
            ready = now.all("llama_memory_at_ready_bytes", server=SERVER, kind="anon")
            return start if ready and start != before else None

        return wait_for("the server's memory to settle", probe, SETTLE_SECONDS, interval=0.5)

    def _agents(self, turns: int | None) -> bool:
        """Let agents with growing histories work, and short requests queue; whether requests died.

        They do so many turns, or go on until the pool has run out.
        """
        died = Event()
        deadline = time.monotonic() + STORY_SECONDS

        def agent(number: int) -> None:
            growth = self.growth if turns is None else (self.small // SLOTS - 2 * self.answer) // 4
            history = tokens(growth * (number if turns is None else 1), number)
            turn = 0
            while not died.is_set() and (turn < turns if turns is not None else time.monotonic() < deadline):
                turn += 1
                history += tokens(growth, 100 * number + turn)
                # At the end without a limit, as agents' requests often are: then it fills steadily.
                near = turns is None and len(history) > self.unlimited_from * self.large / SLOTS
                answer = -1 if near else self.answer
                if self.server.complete(history, answer, number).status == 500:
                    died.set()
                history += tokens(self.answer, 1000 * number + turn)

        def passer_by() -> None:
            turn = 0
            while not died.is_set() and (turn < turns if turns is not None else time.monotonic() < deadline):
                turn += 1
                self.server.complete(64, 32, 5000 + turn)
                died.wait(5)

        with ThreadPoolExecutor(SLOTS + 1) as clients:
            working = [clients.submit(agent, number) for number in range(1, SLOTS + 1)]
            working.append(clients.submit(passer_by))
            for work in working:
                work.result()
        return died.is_set()


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
