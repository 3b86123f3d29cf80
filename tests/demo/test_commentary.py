"""What the demonstration says is what the exporter's metrics say."""

from __future__ import annotations

from kvexporter.demo.commentary import Reading, geometry_line, incident_table, others_line, pool_line, read_exposition

# The incident of the four agents, as the exporter would show it.
EXPOSITION = """\
# TYPE llama_up gauge
llama_up{server="demo"} 1
# TYPE llama_server_state gauge
llama_server_state{server="demo",state="ready"} 1
llama_server_state{server="demo",state="down"} 0
# TYPE llama_kv_pool_capacity_tokens gauge
llama_kv_pool_capacity_tokens{server="demo"} 262144
# TYPE llama_kv_pool_overcommit_ratio gauge
llama_kv_pool_overcommit_ratio{server="demo"} 4
# TYPE llama_slot_guaranteed_tokens gauge
llama_slot_guaranteed_tokens{server="demo"} 65536
# TYPE llama_kv_pool_fill_ratio gauge
llama_kv_pool_fill_ratio{server="demo"} 0.5
# TYPE llama_slot_tokens gauge
llama_slot_tokens{server="demo",slot="0"} 131000
llama_slot_tokens{server="demo",slot="1"} 72
# TYPE llama_context_exceeded_total counter
llama_context_exceeded_total{server="demo",cause="pool"} 1
llama_context_exceeded_total{server="demo",cause="slot"} 7
# TYPE llama_context_exceeded_requests_total counter
llama_context_exceeded_requests_total{server="demo",cause="pool"} 4
# TYPE llama_last_incident_slot_tokens gauge
llama_last_incident_slot_tokens{server="demo",slot="0"} 159069
llama_last_incident_slot_tokens{server="demo",slot="1"} 23428
llama_last_incident_slot_tokens{server="demo",slot="2"} 77417
llama_last_incident_slot_tokens{server="demo",slot="3"} 2949
# TYPE llama_last_incident_excess_tokens gauge
llama_last_incident_excess_tokens{server="demo"} 719
# TYPE llama_server_state gauge
llama_server_state{server="crashing",state="down"} 1
# TYPE llama_unit_exits_total counter
llama_unit_exits_total{server="crashing",code="127"} 4
llama_unit_exits_total{server="crashing",code="1"} 1
# TYPE llama_unit_restarts_total counter
llama_unit_restarts_total{server="crashing"} 5
"""
READINGS = read_exposition(EXPOSITION)
DEMO = READINGS["demo"]


def test_the_incident_table_has_shares_sum_excess_and_the_biggest() -> None:
    table = incident_table(DEMO)
    assert "4 requests died" in table
    rows = [line.split() for line in table.splitlines()]
    assert ["0", "159,069", "60.7%"] in rows
    assert ["1", "23,428", "8.9%"] in rows
    assert ["2", "77,417", "29.5%"] in rows
    assert ["3", "2,949", "1.1%"] in rows
    assert ["sum", "262,863", "100.3%"] in rows
    assert "719 tokens too many. Slot 0 held most" in table


def test_requests_of_earlier_incidents_are_not_told_again() -> None:
    assert "The pool overflowed: 1 requests died" in incident_table(DEMO, failed_before=3)


def test_the_pool_line_shows_fill_and_slots() -> None:
    line = pool_line(7.0, DEMO)
    assert "50.0%" in line
    assert "[############............]" in line
    assert "131,000" in line


def test_the_geometry_line_says_what_is_promised_and_what_is_sure() -> None:
    line = geometry_line(DEMO)
    assert line is not None
    assert "262,144 tokens and 4 times" in line
    assert "65,536 only" in line


def test_a_server_that_is_not_known_yet_is_no_number() -> None:
    assert read_exposition("") == {}
    reading = Reading()
    assert geometry_line(reading) is None
    assert "not known yet" in pool_line(0.0, reading)


def test_servers_are_told_apart() -> None:
    assert set(READINGS) == {"demo", "crashing"}
    assert READINGS["crashing"].restarts == 5
    assert READINGS["crashing"].exits == {"127": 4, "1": 1}
    assert DEMO.exits == {}


def test_the_other_servers_are_in_one_line() -> None:
    safe = Reading(up=True, state="ready", fill=0.41, working=3)
    line = others_line({"safe": safe, "sleeping": Reading(state="sleeping"), "crashing": READINGS["crashing"]})
    assert line.strip() == (
        "safe: 41% full, 3 requests running | sleeping: sleeping | crashing: down, exit 127 4 times, exit 1 1 time"
    )
