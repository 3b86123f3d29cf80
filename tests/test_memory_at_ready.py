"""When a server has settled after its start, and what it has taken since."""

from __future__ import annotations

from kvexporter.facts import ProcessSample
from kvexporter.memory_at_ready import Memory, MemoryAtReady, SettledStart

MIB = 1 << 20
STARTED = 1000.0


def sample(resident: int, anon: int | None = 0, pid: int = 7, started: float = STARTED) -> ProcessSample:
    return ProcessSample(pid=pid, start_time=started, cpu_seconds=0, resident_bytes=resident, anon_bytes=anon)


def looks(memory: MemoryAtReady, *residents: int, since: float, ready: bool = True, gpu: int | None = None) -> float:
    """One look every two seconds; gives the time of the next one."""
    for number, resident in enumerate(residents):
        memory.seen(sample(resident, resident // 2), since + 2 * number, ready=ready, gpu=gpu)
    return since + 2 * len(residents)


def test_memory_that_does_not_grow_for_ten_seconds_once_ready_is_kept() -> None:
    memory = MemoryAtReady()
    at = looks(memory, *[500 * MIB] * 10, since=1002.0, ready=False)
    at = looks(memory, *[900 * MIB] * 5, since=at)
    assert memory.at_ready() == {}
    assert memory.take_news() is None

    looks(memory, 900 * MIB, since=at, gpu=3 * MIB)

    assert memory.at_ready() == {"resident": 900 * MIB, "anon": 450 * MIB, "gpu": 3 * MIB}
    settled = SettledStart(7, STARTED, at, late=False, memory=Memory(900 * MIB, 450 * MIB, 3 * MIB))
    assert memory.take_news() == settled
    assert memory.take_news() is None


def test_growth_of_more_than_one_percent_starts_the_ten_seconds_anew() -> None:
    memory = MemoryAtReady()
    at = looks(memory, *[1000 * MIB] * 5, 1011 * MIB, *[1011 * MIB] * 4, since=1002.0)
    assert memory.at_ready() == {}

    looks(memory, 1020 * MIB, since=at)  # less than 1 % above 1011

    assert memory.at_ready()["resident"] == 1020 * MIB


def test_slow_growth_that_adds_up_does_not_count_as_settled() -> None:
    memory = MemoryAtReady()
    looks(memory, *[(1000 + 5 * n) * MIB for n in range(60)], since=1002.0)  # 0.5 % at each look
    assert memory.at_ready() == {}


def test_shrinking_and_growing_back_does_not_count_as_settled() -> None:
    memory = MemoryAtReady()
    at = looks(memory, 1000 * MIB, 900 * MIB, 900 * MIB, 1000 * MIB, 1000 * MIB, 1000 * MIB, since=1002.0)
    assert memory.at_ready() == {}
    looks(memory, *[1000 * MIB] * 3, since=at)
    assert memory.at_ready()["resident"] == 1000 * MIB


def test_growth_is_told_by_kind_and_may_be_negative() -> None:
    memory = MemoryAtReady()
    at = looks(memory, *[1000 * MIB] * 6, since=1002.0, gpu=500)
    memory.seen(sample(1500 * MIB, 200 * MIB), at, ready=True, gpu=400)
    assert memory.growth() == {"resident": 500 * MIB, "anon": -300 * MIB, "gpu": -100}

    memory.seen(sample(1500 * MIB, None), at + 2, ready=False)

    assert memory.growth() == {"resident": 500 * MIB}


def test_a_new_process_is_a_new_start() -> None:
    memory = MemoryAtReady()
    looks(memory, *[1000 * MIB] * 6, since=1002.0)
    memory.take_news()

    memory.seen(sample(10 * MIB, pid=8, started=2000.0), 2001.0, ready=True)

    assert (memory.at_ready(), memory.growth()) == ({}, {})
    for at in range(2003, 2013, 2):
        memory.seen(sample(20 * MIB, pid=8, started=2000.0), float(at), ready=True)
    assert memory.take_news() is None  # it grew from 10 to 20
    memory.seen(sample(20 * MIB, pid=8, started=2000.0), 2013.0, ready=True)
    news = memory.take_news()
    assert news is not None
    assert (news.pid, news.memory.resident) == (8, 20 * MIB)


def test_a_process_that_is_gone_takes_its_numbers_along() -> None:
    memory = MemoryAtReady()
    looks(memory, *[1000 * MIB] * 6, since=1002.0)
    memory.gone()
    assert (memory.at_ready(), memory.growth(), memory.take_news()) == ({}, {}, None)


def test_a_process_found_long_after_its_start_is_kept_as_such_and_not_shown() -> None:
    memory = MemoryAtReady()
    looks(memory, *[1000 * MIB] * 6, since=STARTED + 61)

    assert (memory.at_ready(), memory.growth()) == ({}, {})
    news = memory.take_news()
    assert news is not None
    assert news.late


def test_what_an_earlier_exporter_saw_of_the_same_process_counts() -> None:
    memory = MemoryAtReady()
    memory.seen(sample(1500 * MIB, 700 * MIB), STARTED + 9000, ready=True)
    memory.recall(SettledStart(7, STARTED + 0.5, STARTED + 20, late=False, memory=Memory(1000 * MIB, 600 * MIB)))

    assert memory.at_ready() == {"resident": 1000 * MIB, "anon": 600 * MIB}
    assert memory.growth() == {"resident": 500 * MIB, "anon": 100 * MIB}
    looks(memory, *[1500 * MIB] * 10, since=STARTED + 9002)
    assert memory.take_news() is None


def test_what_an_earlier_exporter_saw_of_another_process_does_not_count() -> None:
    memory = MemoryAtReady()
    memory.seen(sample(1500 * MIB), STARTED + 9000, ready=True)
    for other in (
        SettledStart(8, STARTED, 1.0, False, Memory(1)),
        SettledStart(7, STARTED - 50, 1.0, False, Memory(1)),
    ):
        memory.recall(other)
        assert memory.at_ready() == {}


def test_a_clock_that_is_set_back_starts_the_ten_seconds_anew() -> None:
    memory = MemoryAtReady()
    looks(memory, *[1000 * MIB] * 4, since=1020.0)
    at = looks(memory, *[1000 * MIB] * 5, since=1002.0)
    assert memory.at_ready() == {}
    looks(memory, 1000 * MIB, since=at)
    assert memory.at_ready()["resident"] == 1000 * MIB
