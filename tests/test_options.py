"""Addresses and paths on the command line."""

from __future__ import annotations

import pytest

from kvexporter.options import ListenAddress, RunOptions, parse_listen_address, parse_telemetry_path


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9889", "127.0.0.1", 9889),
        (":9889", "", 9889),
        ("[::]:9889", "::", 9889),
        ("[fe80::1]:0", "fe80::1", 0),
        ("gpu-1.example:80", "gpu-1.example", 80),
    ],
)
def test_addresses_read_and_write_as_themselves(text: str, host: str, port: int) -> None:
    assert parse_listen_address(text) == ListenAddress(host, port)
    assert str(ListenAddress(host, port)) == text


@pytest.mark.parametrize(
    "text",
    ["", "9889", "localhost", "::1:9889", "[::1]", "[x]:1", "a:b", "a:-1", "a:65536", "a b:1", "http://a:1", "a:1/"],
)
def test_other_texts_are_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_listen_address(text)


@pytest.mark.parametrize("text", ["/metrics", "/a/b", "/m.txt"])
def test_paths_are_taken(text: str) -> None:
    assert parse_telemetry_path(text) == text


@pytest.mark.parametrize("text", ["", "/", "metrics", "/metrics/", "/-/healthy", "/a?b", "/../x", "/a b", "/{a}"])
def test_paths_that_clash_or_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a path"):
        parse_telemetry_path(text)


def test_the_default_is_reachable_from_this_host_only() -> None:
    assert [str(address) for address in RunOptions().listen_addresses] == ["127.0.0.1:9889"]
