"""In which order logs are opened again at which the reading process hung."""

from __future__ import annotations

import pytest

from kvexporter.reading.suspects import Suspects


def never(_: object) -> bool:
    return False


def test_a_log_at_which_nothing_hung_may_be_opened_at_any_time() -> None:
    suspects: Suspects[str] = Suspects()
    suspects.hung("bad", 300.0)
    assert suspects.may_open("good", 0.0, never)


def test_one_that_hung_rests_until_its_moment_or_until_something_is_read_of_it() -> None:
    suspects: Suspects[str] = Suspects()
    suspects.hung("bad", 300.0)
    assert not suspects.may_open("bad", 299.0, never)
    assert suspects.may_open("bad", 300.0, never)
    suspects.hung("bad", 900.0)
    assert not suspects.may_open("bad", 300.0, never)
    suspects.clear("bad")
    assert suspects.may_open("bad", 300.0, never)


def test_of_several_only_the_one_that_hung_the_longest_ago_may_be_opened_until_it_has_answered() -> None:
    suspects: Suspects[str] = Suspects()
    for log in ("a", "b", "c", "a"):
        suspects.hung(log, 0.0)
    assert [log for log in "abc" if suspects.may_open(log, 1.0, never)] == ["b"]
    suspects.clear("b")
    assert [log for log in "abc" if suspects.may_open(log, 1.0, never)] == ["b", "c"]


def test_one_that_may_not_be_opened_at_all_holds_up_no_other() -> None:
    suspects: Suspects[str] = Suspects()
    suspects.hung("a", 0.0)
    suspects.hung("b", 0.0)
    assert [log for log in "ab" if suspects.may_open(log, 1.0, lambda log: log == "a")] == ["b"]


@pytest.mark.parametrize("hung_first", range(6))
def test_each_log_that_recovers_is_read_again_however_many_hang_and_whatever_order_they_ask_in(hung_first: int) -> None:
    suspects: Suspects[int] = Suspects()
    logs = range(6)
    recovers = (hung_first + 3) % len(logs)
    hanging = set(logs)
    for life in range(40):
        if life == 20:
            hanging.remove(recovers)
        # One life of the process: all that may be opened is, in order, up to one that hangs, and for that it is killed.
        asked = [log for log in (*logs[hung_first:], *logs[:hung_first]) if suspects.may_open(log, life, never)]
        at = next((log for log in asked if log in hanging), None)
        if recovers in asked and recovers not in hanging and (at is None or asked.index(recovers) < asked.index(at)):
            assert life - 20 <= len(logs)
            return
        assert at is not None
        others = any(log != at and log not in suspects for log in logs)
        suspects.hung(at, life + 2 if others else life)
    raise AssertionError("it was never read")


def test_a_log_that_is_well_is_opened_first_in_each_life_however_many_others_hang() -> None:
    suspects: Suspects[str] = Suspects()
    for life in range(20):
        suspects.hung("abcde"[life % 5], life + 2)
        opened = [log for log in suspects if suspects.may_open(log, life + 1, never)]
        assert suspects.may_open("well", life + 1, never)
        assert not opened
        assert sum(suspects.may_open(log, life + 2, never) for log in suspects) == 1
