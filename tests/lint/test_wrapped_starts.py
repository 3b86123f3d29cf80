"""llama-servers that are started through other programs: with the variables that these hand on."""

from __future__ import annotations

import pytest

from tests.support.lint_cases import new_linter


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ("exec env LLAMA_ARG_ENDPOINT_METRICS=1 LLAMA_ARG_N_PARALLEL=1 llama-server -m x -c 4096", ""),
        ("numactl -i all nice -n 5 /opt/llama-server-b11434 -m x --metrics --slots 1", "slots-is-not-parallel"),
        ("docker run -p 8080:8080 ghcr.io/ggml-org/llama.cpp:server-cuda -m x -np 1 --metric", "unknown-option"),
        ("docker run -e LLAMA_ARG_N_PARALLEL=1 --env=LLAMA_ARG_CTX_SIZE=16k llama.cpp:server -m x", "number-with-rest"),
        ("docker run --env-file llama.env ghcr.io/ggml-org/llama.cpp:server -m x", ""),
        ("podman run ghcr.io/ggml-org/llama.cpp:full llama-server -m x -np 1 --metrics", ""),
        ("sudo -u llama llama-server -m x -np 1 --metrics --mlock", "removed-option"),
        ('"$LLAMA_SERVER_BIN" -m x -np 1 --metrics --slots 3', "slots-is-not-parallel"),
        ("systemctl restart llama-server --slots 1", ""),
        ("echo llama-server --slots 1", ""),
        ("tail -f /var/log/llama-server --slots 1", ""),
    ],
)  # fmt: skip
def test_a_start_through_another_program(line: str, codes: str) -> None:
    linter = new_linter()
    linter.script("s", f"#!/bin/bash\n{line}\n", "test")
    assert [finding.code for finding in linter.findings()] == codes.split()


def test_a_container_does_not_get_the_scripts_variables() -> None:
    linter = new_linter()
    linter.script("s", "export LLAMA_ARG_N_PARALLEL=1\ndocker run llama.cpp:server -m x -c 4096 --metrics\n", "test")
    assert [finding.code for finding in linter.findings()] == ["pool-overcommitted"]


def test_it_is_told_when_no_llama_server_was_found() -> None:
    linter = new_linter()
    linter.unit([("u.service", "[Service]\nExecStart=/usr/bin/other --slots 1\n")], "test")
    assert not linter.findings()
    assert [reading.why for reading in linter.readings][-1] == "no command line of a llama-server was found in it"
