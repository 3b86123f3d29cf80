"""The story that the package carries, and its stand-in, are what was recorded."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from kvexporter.demo.story import STORY, line_for_port, load_story, pack_recording
from tests.support.paths import RECORDINGS, free_port, wait_for

RECORDING = RECORDINGS / "replay-b11434-full"
EXPECTED = json.loads((RECORDINGS / "expected.json").read_text())["replay-b11434-full"]


def test_the_packaged_story_is_the_recording() -> None:
    assert STORY.read_bytes() == pack_recording(RECORDING, "b11434")


def test_the_story_has_every_line_of_the_server_log_in_order() -> None:
    log = (RECORDING / "server.log").read_text().splitlines()
    assert [text for _, text in load_story().lines] == log


def test_the_story_has_the_recorded_geometry() -> None:
    story = load_story()
    assert story.slots == EXPECTED["geometry"]["slots"]
    assert story.slot_context == EXPECTED["geometry"]["slot_context_tokens"]


def test_answers_hold_until_the_next_one() -> None:
    story = load_story()
    first, second = story.answers[:2]
    assert story.answer_at(0.0) == first
    assert story.answer_at((first.at + second.at) / 2) == first
    assert story.answer_at(second.at) == second
    assert story.answer_at(1e9) == story.answers[-1]


def test_the_log_names_the_port_that_really_answers() -> None:
    line = "0.00.135.344 I srv  llama_server: listening on http://127.0.0.1:18901"
    assert line_for_port(line, 8080).endswith("listening on http://127.0.0.1:8080")
    assert line_for_port("n_tokens = 18901", 8080) == "n_tokens = 18901"


class Standin:
    def __init__(self, speed: float, linger: float = 0.0) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "kvexporter.demo.standin", "--port", str(self.port)]
        command += ["--speed", str(speed), "--linger", str(linger)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def get(self, path: str) -> httpx.Response | None:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=10, trust_env=False)
        except httpx.TransportError:
            return None

    def answers(self, path: str = "/health") -> httpx.Response:
        return wait_for(f"the stand-in to answer {path}", lambda: self.get(path))

    def rest(self) -> list[str]:
        return self.process.communicate(timeout=60)[0].splitlines()


@pytest.fixture
def started() -> Iterator[list[Standin]]:
    processes: list[Standin] = []
    yield processes
    for standin in processes:
        standin.process.kill()
        standin.process.communicate()


def without_port(lines: list[str]) -> list[str]:
    return [re.sub(r"127\.0\.0\.1:\d+", "", line) for line in lines]


def test_the_stand_in_logs_the_whole_story_and_ends(started: list[Standin]) -> None:
    standin = Standin(speed=1000)
    started.append(standin)
    assert without_port(standin.rest()) == without_port([text for _, text in load_story().lines])
    assert standin.process.returncode == 0


def test_the_stand_in_is_loading_before_it_is_ready(started: list[Standin]) -> None:
    # The recorded server was ready after 0.136 s: at this speed that takes more than an hour.
    standin = Standin(speed=0.00003)
    started.append(standin)
    for path in ("/health", "/slots", "/props", "/metrics"):
        answer = standin.answers(path)
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == "Loading model"


def test_the_stand_in_answers_what_was_recorded_last_until_it_ends(started: list[Standin]) -> None:
    story = load_story()
    standin = Standin(speed=1000, linger=300)
    started.append(standin)

    def ended() -> bool:
        answer = standin.get("/slots")
        return answer is not None and answer.status_code == 200 and answer.json() == story.answers[-1].slots

    wait_for("the story's end", ended)
    assert standin.answers("/health").json() == {"status": "ok"}
    assert standin.answers("/props").json()["total_slots"] == 4
    assert standin.answers("/metrics").text == story.answers[-1].metrics
    assert standin.answers("/completion").status_code == 404


def test_a_stopped_stand_in_says_goodbye_as_the_server_does(started: list[Standin]) -> None:
    standin = Standin(speed=1, linger=300)
    started.append(standin)
    standin.answers()
    standin.process.send_signal(signal.SIGTERM)
    assert standin.rest()[-1] == load_story().lines[-1][1]
    assert standin.process.returncode == 0
