"""The stand-ins answer as the builds do, sleep included."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kvexporter.demo import crashing, dialect
from kvexporter.demo.cast import STORIES
from kvexporter.demo.tale_server import WOKEN_BY_EXPORTER, TaleServer
from kvexporter.demo.tales import TALES, load_tale
from tests.support.asgi import ask
from tests.support.paths import free_port, wait_for


class Sleeper:
    """The sleeping server within this process, with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 30.0
        self.said: list[str] = []
        self.tale = load_tale("sleeping")
        self.server = TaleServer(self.tale, lambda: self.now, self.said.append)
        self.app = self.server.app()

    def sleeps(self) -> bool:
        return bool(ask(self.app, "/props").json()["is_sleeping"])

    def live_until(self, end: str) -> None:
        """Tell the tale's lines from now on until this one, which is told too."""
        told = False
        for at, text in self.tale.lines():
            if at < self.now:
                continue
            told = text == end
            self.server.tell(text)
            if told:
                self.now = at + 0.01
                return


@pytest.fixture
def sleeper() -> Sleeper:
    found = Sleeper()
    found.live_until(dialect.FALLS_ASLEEP[1])
    return found


def test_props_tells_that_it_sleeps_and_nothing_but_slots_wakes_it(sleeper: Sleeper) -> None:
    assert sleeper.sleeps()
    sleeper.said.clear()
    assert ask(sleeper.app, "/health").json() == {"status": "ok"}
    assert ask(sleeper.app, "/metrics").status_code == 200
    assert sleeper.sleeps()
    assert sleeper.said == []


def test_slots_wakes_it_which_loads_its_model_and_forgets_its_slots(
    sleeper: Sleeper, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeper.said.clear()
    # The slots of b11434/sleeping after the same: never used.
    assert ask(sleeper.app, "/slots").json() == sleeper.tale.unused_slots
    assert not sleeper.sleeps()
    assert sleeper.said[:2] == list(dialect.WAKES_UP)
    assert "initializing, n_slots = 2" in sleeper.said[-1]
    assert capsys.readouterr().err == ""  # a person may do that


def test_it_says_so_when_the_exporter_has_woken_it(sleeper: Sleeper, capsys: pytest.CaptureFixture[str]) -> None:
    ask(sleeper.app, "/slots", headers={"user-agent": "kvexporter/1.2.3"})
    assert WOKEN_BY_EXPORTER in capsys.readouterr().err


def test_a_sleeper_that_was_woken_by_a_question_does_not_wake_twice(sleeper: Sleeper) -> None:
    ask(sleeper.app, "/slots")
    sleeper.said.clear()
    sleeper.live_until(dialect.FALLS_ASLEEP[1])
    assert dialect.WAKES_UP[0] not in sleeper.said
    assert any("launch_slot_" in text for text in sleeper.said)
    assert sleeper.sleeps()
    sleeper.live_until(dialect.WAKES_UP[1])
    assert sleeper.said[-2:] == list(dialect.WAKES_UP)
    assert not sleeper.sleeps()


def test_all_stories_are_played() -> None:
    assert set(STORIES) == {*TALES, "crashing"}


# ---- as processes ----------------------------------------------------------------------------------------------------


class Standin:
    def __init__(self, tale: str, speed: float) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "kvexporter.demo.tale_server", "--tale", tale]
        command += ["--port", str(self.port), "--speed", str(speed)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def get(self, path: str) -> httpx.Response | None:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=10, trust_env=False)
        except httpx.TransportError:
            return None


@pytest.fixture
def started() -> Iterator[list[Standin]]:
    processes: list[Standin] = []
    yield processes
    for standin in processes:
        standin.process.kill()
        standin.process.communicate()


@pytest.mark.parametrize("tale", sorted(TALES))
def test_a_stand_in_is_loading_first_and_says_goodbye_when_it_is_stopped(tale: str, started: list[Standin]) -> None:
    standin = Standin(tale, speed=0.001)
    started.append(standin)
    answer = wait_for("it to answer", lambda: standin.get("/slots"))
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "Loading model"
    standin.process.terminate()
    lines = standin.process.communicate(timeout=60)[0].splitlines()
    assert standin.process.returncode == 0
    assert dialect.STAMP.sub("", lines[-1]) == dialect.GOODBYE


@pytest.mark.parametrize("tale", sorted(TALES))
def test_a_stand_in_works_on_requests_and_names_the_port_that_answers(tale: str, started: list[Standin]) -> None:
    standin = Standin(tale, speed=20)
    started.append(standin)

    def works() -> bool:
        answer = standin.get("/slots")
        return answer is not None and answer.status_code == 200 and any(s["is_processing"] for s in answer.json())

    wait_for("a request to run", works)
    props = standin.get("/props")
    assert props is not None
    assert props.json()["total_slots"] == load_tale(tale).shape.slots
    standin.process.terminate()
    assert f"listening on http://127.0.0.1:{standin.port}\n" in standin.process.communicate(timeout=60)[0]


@pytest.mark.parametrize(
    ("start", "status", "words"), [(0, 127, "not found"), (4, 1, "exiting due to model loading error")]
)
def test_the_crashing_server_ends_with_what_the_shell_or_llama_server_says(
    start: int, status: int, words: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "kvexporter.demo.crashing", "--start", str(start)]
    command += ["--environment", str(tmp_path / "llama.env")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    assert words in done.stdout
    assert crashing.exit_status(start) == status
