"""What the demonstration's servers live through holds together, round after round."""

from __future__ import annotations

import json
import re
from itertools import pairwise, takewhile

import pytest

from kvexporter.demo import dialect
from kvexporter.demo.composing import Ask, Shape, compose
from kvexporter.demo.tales import IDLE_SECONDS, TALES, Tale, load_tale
from tests.support.paths import RECORDINGS

EXPECTED = json.loads((RECORDINGS / "expected.json").read_text())["replay-b11434-full"]
ROUNDS = 3

tales = pytest.mark.parametrize("name", sorted(TALES))


def end_of(tale: Tale, rounds: int) -> float:
    return tale.opening.duration + rounds * (tale.round.duration + tale.pause)


def lines_of(tale: Tale, rounds: int = ROUNDS) -> list[tuple[float, str]]:
    return list(takewhile(lambda line: line[0] < end_of(tale, rounds), tale.lines()))


def times(tale: Tale) -> list[float]:
    return [2.0 * step for step in range(int(end_of(tale, ROUNDS) / 2))]


@tales
def test_lines_come_in_order_and_start_with_the_server_s_start(name: str) -> None:
    lines = lines_of(load_tale(name, pause=100))
    assert [later for earlier, later in pairwise(at for at, _ in lines) if later < earlier] == []
    assert "initializing ..." in lines[0][1]
    assert sum("initializing ..." in text for _, text in lines) == 1


@tales
def test_each_request_has_a_task_of_its_own_and_ends(name: str) -> None:
    lines = [text for _, text in lines_of(load_tale(name))]
    launched = [match[1] for text in lines if (match := re.search(r"launch_slot_: .* task (\d+) \|", text))]
    released = [match[1] for text in lines if (match := re.search(r"release: .* task (\d+) \|", text))]
    assert len(set(launched)) == len(launched) > ROUNDS
    assert sorted(launched) == sorted(released)


@tales
def test_what_slots_answers_is_what_the_log_says(name: str) -> None:
    tale = load_tale(name, pause=50)
    lines = lines_of(tale)
    running: dict[int, int] = {}
    changes: list[tuple[float, dict[int, int]]] = [(0.0, {})]
    for at, text in lines:
        if match := re.search(r"launch_slot_: id +(\d) \| task (\d+)", text):
            running = {**running, int(match[1]): int(match[2])}
        elif match := re.search(r"release: id +(\d) ", text):
            running = {slot: task for slot, task in running.items() if slot != int(match[1])}
        changes.append((at, running))
    for at in times(tale):
        shown = {slot["id"]: slot["id_task"] for slot in tale.slots(at) if slot["is_processing"]}
        # A recorded answer is true until the next one, a second or two later.
        before = [said for when, said in changes if when < at - 2.5][-1:]
        assert shown in before + [said for when, said in changes if at - 2.5 <= when <= at + 2.5], at


@tales
def test_counters_never_fall_and_grow_with_each_round(name: str) -> None:
    tale = load_tale(name)
    shown = [dialect.read_metrics(tale.metrics(at)) for at in times(tale)]
    for counter, _ in dialect.COUNTERS:
        values = [values[counter] for values in shown]
        assert values == sorted(values), counter
    ends = [dialect.read_metrics(tale.metrics(end_of(tale, rounds) - 0.1)) for rounds in range(1, ROUNDS + 1)]
    totals = [values["tokens_predicted_total"] for values in ends]
    assert totals[0] > 0
    assert totals[1] - totals[0] == totals[2] - totals[1] > 0


def test_the_agents_pool_runs_out_as_recorded_in_each_round() -> None:
    lines = [text for _, text in lines_of(load_tale("agents"))]
    assert sum("Context size has been exceeded" in text for text in lines) == ROUNDS * EXPECTED["log_lines"]
    errors = [number for number, text in enumerate(lines) if "decode: Context size has been exceeded" in text]
    for error in errors:
        released = (re.search(r"release: id +(\d) .* n_tokens = (\d+)", text) for text in lines[error : error + 13])
        held = {match[1]: int(match[2]) for match in released if match}
        assert held == EXPECTED["incident_details"][0]["slot_tokens"]


def test_the_agents_histories_grow_turn_by_turn_until_then() -> None:
    lines = [text for _, text in lines_of(load_tale("agents"), rounds=1)]
    sizes = [match for text in lines if (match := re.search(r"release: id +(\d) .* n_tokens = (\d+)", text))]
    for slot in range(4):
        held = [int(match[2]) for match in sizes if match[1] == str(slot)]
        assert len(held) == 5
        assert held == sorted(held)


def test_the_safe_server_is_always_busy_and_never_above_a_window() -> None:
    tale = load_tale("safe")
    busy = []
    for at in times(tale):
        slots = tale.slots(at)
        assert all(slot.get("n_prompt_tokens", 0) <= slot["n_ctx"] for slot in slots)
        busy.append(any(slot["is_processing"] for slot in slots))
    assert sum(busy) / len(busy) > 0.9
    assert not any("failed to find" in text for _, text in tale.round.lines)


def test_the_sleeper_falls_asleep_an_idle_minute_after_its_last_request() -> None:
    lines = lines_of(load_tale("sleeping"))
    falls = [at for at, text in lines if text == dialect.FALLS_ASLEEP[0]]
    assert len(falls) >= ROUNDS
    for at in falls:
        released = max(before for before, text in lines if "release:" in text and before < at)
        assert at - released >= IDLE_SECONDS - 1


def test_a_woken_sleeper_shows_slots_that_were_never_used() -> None:
    tale = load_tale("sleeping")
    woken = next(at for at, text in tale.lines() if text == dialect.WAKES_UP[0])
    assert tale.slots(woken + 1) == tale.unused_slots


def test_requests_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="does not fit a slot"):
        compose(Shape(1, 1000, False, "m"), [Ask(0, 0, 900, 101)], 100)
    with pytest.raises(ValueError, match="do not fit the pool"):
        compose(Shape(2, 1000, True, "m"), [Ask(0, 0, 600, 100), Ask(0, 1, 600, 100)], 100)
    with pytest.raises(ValueError, match="not all requests end"):
        compose(Shape(1, 1000, False, "m"), [Ask(0, 0, 600, 400)], 10)
