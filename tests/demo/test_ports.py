"""Ports that the demonstration takes are free, and one that is asked for and taken is refused by name."""

from __future__ import annotations

import socket

import pytest

from kvexporter.demo.ports import PortTakenError, free_ports, need_port


def listening(host: str = "127.0.0.1") -> socket.socket:
    taken = socket.socket()
    taken.bind((host, 0))
    taken.listen()
    return taken


def test_no_two_are_the_same_and_all_can_be_listened_on() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        need_port(port)


def test_those_that_are_taken_are_passed_over() -> None:
    with listening() as taken:
        port = taken.getsockname()[1]
        assert free_ports(1, port)[0] != port


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_one_that_is_needed_and_taken_is_refused_with_what_to_do(host: str) -> None:
    with listening(host) as taken, pytest.raises(PortTakenError, match="listens on it already; choose another"):
        need_port(taken.getsockname()[1])
