"""The stand-ins' words are b11434's: recordings of the real one have the same lines and answers, but for numbers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvexporter.demo import dialect
from kvexporter.demo.composing import Ask, Shape, compose
from kvexporter.demo.tales import TALES, load_tale
from tests.support.llama_server import llama_server_binary
from tests.support.paths import RECORDINGS

FOLDERS = [RECORDINGS / "agents-b11434", RECORDINGS / "replay-b11434-full", *sorted((RECORDINGS / "b11434").iterdir())]


def skeleton(line: str) -> str:
    """A line without its time, numbers, names and padding."""
    text = re.sub(r"'[^']*'", "'…'", dialect.STAMP.sub("", line))
    return re.sub(r" +", " ", re.sub(r"-?\d+(\.\d+)?", "#", text))


def recorded_lines(folders: list[Path]) -> Iterator[str]:
    for folder in folders:
        yield from (folder / "server.log").read_text(errors="replace").splitlines()


def bodies(path: str) -> Iterator[Any]:
    for folder in FOLDERS:
        for line in (folder / "polls.jsonl").read_text().splitlines():
            answer = json.loads(line).get(path, {})
            if answer.get("status") == 200:
                yield answer["body"]


@pytest.mark.parametrize("name", sorted(TALES))
def test_every_line_of_a_tale_is_one_that_a_real_server_has_said(name: str) -> None:
    known = {skeleton(line) for line in recorded_lines(FOLDERS)}
    tale = load_tale(name)
    said = {skeleton(text) for part in (tale.opening, tale.round) for _, text in part.lines}
    assert said - known == set()
    assert skeleton(dialect.GOODBYE) in known


def test_time_stamps_are_minutes_seconds_milliseconds_and_microseconds() -> None:
    assert dialect.stamped(12 * 60 + 54.045822, "E x") == "12.54.045.822 E x"
    assert dialect.STAMP.sub("", "12.54.045.822 E x") == "E x"


def test_metrics_are_worded_as_recorded() -> None:
    texts = list(bodies("/metrics"))
    assert len(texts) > 100
    for text in texts:
        assert dialect.metrics_text(dialect.read_metrics(text)) == text


def test_slots_have_the_recorded_fields_and_types() -> None:
    def form(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: form(entry) for key, entry in value.items()}
        return [form(value[0])] if isinstance(value, list) else type(value)

    # The scenarios' recordings have all fields; the two long ones were recorded with fewer parameters.
    seen = [slot for body in bodies("/slots") for slot in body if "n_keep" in slot.get("params", {"n_keep": 0})]
    unused = [form(slot) for slot in seen if "id_task" not in slot]
    idle = [form(slot) for slot in seen if "id_task" in slot and not slot["is_processing"]]
    working = [form(slot) for slot in seen if slot["is_processing"]]
    assert form(dialect.unused_slot(0, 4096)) in unused
    assert form(dialect.used_slot(0, 4096, 7, 300, 20, None)) in idle
    assert form(dialect.used_slot(0, 4096, 7, 300, 20, (290, 0, 10))) in working


def test_an_idle_slot_looks_as_recorded_after_the_same_request() -> None:
    # b11434/sleeping: one request of 200 tokens got an answer of 20 on slot 1, and two slots of 2,048 shared a pool.
    polls = (RECORDINGS / "b11434" / "sleeping" / "polls.jsonl").read_text().splitlines()
    (recorded,) = [body for body in [json.loads(polls[1])["/slots"]["body"]] if body[1]["n_prompt_tokens"]]
    part = compose(Shape(2, 2048, True, "tiny.gguf"), [Ask(0, 1, 200, 20, limit=20)], 10)
    composed = part.states[-1].slots
    assert {**composed[1], "id_task": 2} == recorded[1]
    assert composed[0] == recorded[0]


def test_props_are_those_recorded_without_what_nobody_reads() -> None:
    endpoints = json.loads((RECORDINGS / "b11434" / "sleeping" / "endpoints.json").read_text())
    recorded = endpoints["/props"]["body"]
    made = dialect.props("tiny.gguf", 2, 2048, sleeping=True)
    del made["build_info"]  # the recorded one was compiled without its number
    assert made["default_generation_settings"]["n_ctx"] == recorded["default_generation_settings"]["n_ctx"]
    del made["default_generation_settings"]
    assert made.items() <= recorded.items()


@pytest.mark.real_server
def test_a_start_without_its_model_fails_as_the_real_one_does(tmp_path: Path) -> None:
    binary = llama_server_binary()
    model = str(tmp_path / "missing.gguf")
    done = subprocess.run(
        [binary, "-m", model, "-c", "32768", "-np", "4", "-kvu", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
        env={"LD_LIBRARY_PATH": str(binary.parent)},
    )
    assert done.returncode == 1
    assert [dialect.STAMP.sub("", line) for line in done.stdout.splitlines()] == dialect.missing_model(model)
