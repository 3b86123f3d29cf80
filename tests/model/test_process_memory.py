"""The model's view of its process's memory: settled after a start, growth, and its control group."""

from __future__ import annotations

from kvexporter.facts import CgroupSample, ProcessSample
from kvexporter.server import Server

GROUP = CgroupSample(current_bytes=4096)


def look(server: Server, at: float, resident: int) -> None:
    server.process_seen(ProcessSample(7, 1000.0, 1.0, resident, anon_bytes=resident // 2), at)


def test_memory_settles_only_once_the_server_is_ready() -> None:
    server = Server("it")
    for at in range(1001, 1041, 2):
        look(server, float(at), 900)
    assert server.snapshot(1041.0).memory_at_ready == {}  # nobody has said that it is ready

    server.health_polled(1041.0)
    for at in range(1042, 1054, 2):
        look(server, float(at), 1000)
    shown = server.snapshot(1054.0)

    assert shown.memory_at_ready == {"resident": 1000, "anon": 500}
    assert shown.memory_growth == {"resident": 0, "anon": 0}
    look(server, 1056.0, 1500)
    assert server.snapshot(1056.0).memory_growth == {"resident": 500, "anon": 250}


def test_the_end_of_the_process_takes_its_memory_and_its_group_away() -> None:
    server = Server("it")
    look(server, 1001.0, 900)
    server.cgroup_seen(GROUP)
    server.health_polled(1002.0)
    for at in range(1003, 1015, 2):
        look(server, float(at), 900)
    assert server.snapshot(1015.0).cgroup == GROUP
    assert server.snapshot(1015.0).memory_at_ready != {}

    server.process_seen(None, 1016.0)

    shown = server.snapshot(1016.0)
    assert (shown.cgroup, shown.memory_at_ready, shown.memory_growth) == (None, {}, {})
