"""Who sent a request, as its line tells."""

from __future__ import annotations

import pytest

from kvexporter.llama.access_log import client_address


@pytest.mark.parametrize(
    ("line", "address"),
    [
        (b"srv  log_server_r: done request: POST /completion 127.0.0.1 200", "127.0.0.1"),
        (b"srv  log_server_r: request: POST /v1/chat/completions 192.168.1.20 500\r", "192.168.1.20"),
        (b"request: POST /completion ::1 200", "::1"),
        (b"srv  log_server_r: done request: POST /x fe80::1%eth0 200", "fe80::1%eth0"),
        (
            b"Nov 30 06:01:20 gpubox llama-server[7]: srv  log_server_r: request: POST /completion 10.0.0.7 200",
            "10.0.0.7",
        ),
        (
            b'{"tid":"1","timestamp":1,"level":"INFO","function":"log_server_request","line":1,"msg":"request",'
            b'"remote_addr":"127.0.0.1","remote_port":34342,"status":200,"method":"POST","path":"/completion"}',
            "127.0.0.1",
        ),
        (b'INFO [ log_server_request] request | tid="1" timestamp=1 remote_addr="10.0.0.7" remote_port=9', "10.0.0.7"),
        (b"srv  log_server_r: done request: POST /completion  200", None),
        (b"srv  log_server_r: done request: POST /completion (null) 200", None),
        (b"srv  log_server_r: done request: POST /completion \x1b[2J 200", None),
        (b"nothing", None),
    ],
)
def test_the_address_is_the_word_before_the_status(line: bytes, address: str | None) -> None:
    assert client_address(line) == address
