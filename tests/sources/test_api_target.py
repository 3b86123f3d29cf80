"""Addresses: what is accepted, and where a server on this host is reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvexporter.sources.llama_api import ApiTarget, local_url, unix_socket


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (None, "http://127.0.0.1:8080"),
        ("", "http://127.0.0.1:8080"),
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("192.168.1.5", "http://192.168.1.5:8080"),
        ("localhost", "http://localhost:8080"),
        ("0.0.0.0", "http://127.0.0.1:8080"),
        ("::", "http://[::1]:8080"),
        ("[::]", "http://[::1]:8080"),
        ("0:0:0:0:0:0:0:0", "http://[::1]:8080"),
        ("::1", "http://[::1]:8080"),
        ("[2001:db8::7]", "http://[2001:db8::7]:8080"),
        ("/run/llama.sock", "http://localhost:8080"),
    ],
)
def test_a_server_on_this_host_is_reached_at(host: str | None, expected: str) -> None:
    assert local_url(host, 8080) == expected
    ApiTarget(expected)


@pytest.mark.parametrize(
    ("prefix", "tls", "expected"),
    [
        ("/llama", False, "http://127.0.0.1:9931/llama"),
        ("/llama/", False, "http://127.0.0.1:9931/llama"),
        ("/", False, "http://127.0.0.1:9931"),
        ("/a/b", True, "https://127.0.0.1:9931/a/b"),
    ],
)
def test_the_prefix_and_tls_are_part_of_the_address(prefix: str, tls: bool, expected: str) -> None:
    assert local_url(None, 9931, prefix, tls) == expected


def test_a_host_that_ends_with_sock_is_a_unix_socket() -> None:
    assert unix_socket("/run/llama.sock") == Path("/run/llama.sock")
    assert unix_socket("127.0.0.1") is None
    assert unix_socket(None) is None


@pytest.mark.parametrize("base", ["http://h:1", "http://h:1/", "http://h:1/llama", "http://h:1/llama/"])
def test_endpoints_are_under_the_base_path(base: str) -> None:
    assert str(ApiTarget(base).url("slots")) == base.rstrip("/") + "/slots"


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:8080", "ftp://h/", "http://", "http://h:1/?model=x", "http://h:1/#top", "http://h:port/"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        ApiTarget(address)


def test_a_password_in_the_address_is_refused_without_being_shown() -> None:
    with pytest.raises(ValueError, match="api_key_file") as caught:
        ApiTarget("http://user:SECRET@h:1/")
    assert "SECRET" not in str(caught.value)


def test_a_port_that_is_none_is_refused() -> None:
    ApiTarget("http://127.0.0.1:65535")
    with pytest.raises(ValueError, match="a port of at most 65535, not 65536"):
        ApiTarget("http://127.0.0.1:65536")
