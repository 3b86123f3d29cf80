"""Command lines and variables: lint finds an error exactly where the real llama-server does not start as written."""

from __future__ import annotations

import os
import re
import selectors
import shlex
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from kvexporter.lint.findings import Finding
from kvexporter.lint.help_text import read_help
from kvexporter.lint.make_table import help_of
from kvexporter.lint.options import find, find_variable
from kvexporter.lint.options_table import BUILD, OPTIONS
from kvexporter.llama.launch_names import ENVIRONMENT, ENVIRONMENT_OFF, FLAGS, VALUES
from kvexporter.llama.memory_options import memory_options
from tests.support.lint_cases import new_linter
from tests.support.llama_server import BUILD as TESTED_BUILD
from tests.support.llama_server import llama_server_binary
from tests.support.paths import free_port
from tests.support.tiny_model import tiny_model

INITIALIZING = re.compile(r"initializing, n_slots = (\d+), n_ctx_slot = (\d+), kv_unified = '(\w+)'")

# Command line (without model, port and threads), codes that are found, and for those that start the server's own line:
# slots, slot context, unified.
STARTS = {
    "-c 8192 -np 2 --no-kv-unified --metrics": ("", (2, 4096, "false")),
    "-c 1024 -np 4 -kvu --kv-unified-per-slot 256 --metrics": ("", (4, 256, "true")),
    "-c 1024 -np 4 -kvu --metrics": ("pool-overcommitted", (4, 1024, "true")),
    "-c 1024 -np 4 -kvu --kv-unified-per-slot 512 --metrics": ("pool-overcommitted", (4, 512, "true")),
    "-c 1024 --metrics": ("pool-overcommitted", (4, 1024, "true")),
    "-c 1024 --no-kv-unified --metrics": ("does-nothing pool-overcommitted", (4, 1024, "true")),
    "-c 1024 -np 4 --kv-unified-per-slot 512 --metrics": ("cap-without-unified", (4, 256, "false")),
    "-np 4 --kv-unified-per-slot 512 --metrics": ("cap-without-unified", (4, 512, "false")),
    "-c 1024 -np 2 -kvu -no-kvu --metrics": ("contradiction", (2, 512, "false")),
    "-c 2048 -np 2 --parallel 4 --metrics": ("given-twice", (4, 512, "false")),
    "-c 1024 -np 1 -ctk q8_0 -ctv q8_0 --metrics": ("", (1, 1024, "false")),
    "-c 1024 -np 1 -fa auto -ctv q8_0 --metrics": ("", (1, 1024, "false")),
    "-c 1024 -np 1 --ctx_size 2048 --metrics": ("given-twice", (1, 2048, "false")),
    "-c 1024 -np 1 --no-slots --metrics": ("slots-endpoint-off", (1, 1024, "false")),
    "-c 1024 -np 1": ("metrics-missing", (1, 1024, "false")),
    "-c 1024 -np 1 --metrics -dt 0.1": ("does-nothing", (1, 1024, "false")),
    "-c 512k -np 1 --metrics": ("number-with-rest", (1, 512, "false")),
    "-c '2048 -np 3' -np 1 --metrics": ("number-with-rest", (1, 2048, "false")),
    "-c 0 -np 1 --metrics": ("context-of-the-model", (1, 262144, "false")),
    "-c 1024 -np 1 --metrics --alias my-model --temp 0.7 -t 1 -b 64 --slots": ("", (1, 1024, "false")),
}
REFUSED = {
    "--slots 1 -np 1 --metrics": "slots-is-not-parallel",
    "-c 1024 --kv-unified-per-slots 256 -np 1 --metrics": "unknown-option",
    "--ctx-size=1024 -np 1 --metrics": "value-after-equals",
    "-np 1 --metrics -c": "missing-value",
    "-c -np 1 --metrics": "missing-value",
    "-c abc -np 1 --metrics": "bad-value",
    "-np 0 --metrics": "bad-value",
    "-np 1 -ctk q9_0 --metrics": "bad-value",
    "-np 1 -fa --metrics": "missing-value",
    "-np 1 -fa maybe --metrics": "bad-value",
    "-np 1 -ctv q8_0 -fa off --metrics": "v-cache-needs-flash-attention",
    "-np 1 --metrics on": "stray-word",
    "-np 1 --metrics stray": "stray-word",
    "-np 1 --metrics ''": "stray-word",
    "'-np 1' --metrics": "quoted-together",
    "-NP 1 --metrics": "unknown-option",
    "-np 1 --metrics --draft-max 5": "removed-option",
    "-np 1 --metrics --mlock": "removed-option",
    "-np 1 --metrics --no-mmap": "removed-option",
    "-np 1 --metrics --control-vector-layer-range 1": "missing-value",
    "-np 1 --metrics --rope-scaling cubic": "bad-value",
    "-np 1 --metrics --port http": "bad-value",
}
VARIABLES = {
    "LLAMA_ARG_CTX_SIZE=abc": "bad-value",
    "LLAMA_ARG_CTX_SIZE=": "bad-value",
    "LLAMA_ARG_KV_UNIFIED=maybe": "bad-value",
    "LLAMA_ARG_DRAFT_MAX=4": "removed-option",
}


def _found(words: list[str], build: int | None = None) -> list[Finding]:
    linter = new_linter(build)
    linter.command_line(words)
    return linter.findings()


def _run(words: list[str], environment: dict[str, str]) -> tuple[bool, str]:
    """Start the real server; give whether it came to listen, and its log until then or until it ended."""
    binary = llama_server_binary()
    base = [str(binary), "-m", str(tiny_model()), "-t", "1", "--port", str(free_port())]
    own = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
    process = subprocess.Popen(
        [*base, *words],
        env={**own, "LD_LIBRARY_PATH": str(binary.parent), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    log = b""
    assert process.stdout is not None
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                if not ready.select(1):
                    continue
                piece = os.read(process.stdout.fileno(), 65536)
                log += piece
                if not piece or b"listening on" in log:
                    return bool(piece), log.decode(errors="replace")
        raise AssertionError(f"neither started nor ended: {log.decode(errors='replace')}")
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()


@pytest.mark.real_server
@pytest.mark.parametrize("line", STARTS)
def test_what_starts_has_no_error_and_is_cut_as_lint_reads_it(line: str) -> None:
    codes, (slots, context, unified) = STARTS[line]
    words = shlex.split(line)
    found = _found(["-m", "x.gguf", *words])
    assert sorted({finding.code for finding in found}) == sorted(codes.split())
    assert not any(finding.severity == "error" for finding in found if finding.code != "number-with-rest")
    started, log = _run(words, {})
    assert started, log
    match = INITIALIZING.search(log)
    assert match is not None, log
    assert (int(match[1]), int(match[2]), match[3]) == (slots, context, unified)


@pytest.mark.real_server
@pytest.mark.parametrize("line", REFUSED)
def test_what_the_server_refuses_is_found(line: str) -> None:
    words = shlex.split(line)
    found = [finding for finding in _found(["-m", "x.gguf", *words], int(BUILD[1:])) if finding.severity == "error"]
    assert [finding.code for finding in found] == [REFUSED[line]]
    started, log = _run(words, {})
    assert not started, log


@pytest.mark.real_server
@pytest.mark.parametrize("given", VARIABLES)
def test_variables_that_the_server_cannot_read_are_found(given: str) -> None:
    linter = new_linter()
    linter.environment_file("e", f"{given}\n", ("systemd",), "test")
    assert [(finding.code, finding.severity) for finding in linter.findings()] == [(VARIABLES[given], "error")]
    name, _, value = given.partition("=")
    started, log = _run(["-np", "1", "-c", "512"] if "CTX" not in name else ["-np", "1"], {name: value})
    assert not started, log


@pytest.mark.real_server
def test_every_option_of_the_real_servers_help_is_known() -> None:
    text = help_of(llama_server_binary())
    listed = {name for line in text.splitlines() for name in _names(line)}
    assert len(listed) > 350
    assert not [name for name in listed if find(name) is None]
    variables = set(re.findall(r"\(env: (\w+)\)", text))
    assert not [name for name in variables if find_variable(name) is None]


def _names(line: str) -> list[str]:
    """The spellings at the beginning of a line of the help: up to the first double space that no comma precedes."""
    if not line.startswith("-") or line.startswith("-----"):
        return []
    head = re.split(r"(?<!,)\s{2,}", line)[0]
    return [word for word in re.split(r",\s+|\s", head) if re.fullmatch(r"--?[a-zA-Z][\w.-]*", word)]


@pytest.mark.real_server
def test_the_table_is_what_the_tested_build_says() -> None:
    assert read_help(help_of(llama_server_binary())) == OPTIONS
    assert BUILD == TESTED_BUILD


def test_the_options_that_the_exporter_reads_are_known() -> None:
    assert not [name for name in (*VALUES, *FLAGS) if find(name) is None]
    assert not [name for name, _ in (*ENVIRONMENT, *ENVIRONMENT_OFF) if find_variable(name) is None]
    assert memory_options(["-c", "1"], {}) == {"-c": "1"}


@pytest.mark.parametrize(
    ("line", "build", "codes"),
    [
        ("-m x -np 1 -fa --metrics --slots", 5541, ""),
        ("-m x -np 1 -ctv q8_0 --metrics --slots", 5541, "v-cache-needs-flash-attention"),
        ("-m x -np 1 -ctv q8_0 -fa --metrics --slots", 5541, ""),
        ("-m x -np 1 -fa on --metrics --slots", 5541, "stray-word"),
        ("-m x -np 1 --metrics", 5541, "slots-missing"),
        ("-m x -c 4096 --metrics", 6666, ""),
        ("-m x -c 4096 --metrics", 8635, "pool-overcommitted"),
        ("-m x -np 4 -kvu -c 4096 --metrics --slots", 5541, "unknown-option pool-overcommitted"),
        ("-m x -np 1 -c 4096 --metrics --mlock", 8635, ""),
        ("-m x -np 1 -c 4096 --metrics --mlock", 11434, "removed-option"),
        ("-m x -np 2 --kv-unified-per-slot 64 --metrics", 8635, "unknown-option cap-without-unified"),
        ("-m x -np 1 --clear-idle --metrics", 8700, ""),
        ("-m x -np 1 --clear-idle --metrics", 9000, "removed-option"),
    ],
)
def test_builds_differ(line: str, build: int, codes: str) -> None:
    assert sorted(finding.code for finding in _found(line.split(), build)) == sorted(codes.split())


def test_the_corrected_line_is_the_line_with_the_mistake_mended() -> None:
    def corrections(line: str) -> dict[str, str]:
        return {finding.code: finding.correction for finding in _found(shlex.split(line))}

    given = "llama-server -m x -c 8192 --slots 2 --metrics"
    assert corrections(given)["slots-is-not-parallel"] == "llama-server -m x -c 8192 -np 2 --metrics"
    given = "llama-server -m x -np 1 --metrics --ctx-sze 4096"
    assert corrections(given)["unknown-option"] == "llama-server -m x -np 1 --metrics --ctx-size 4096"
    given = "llama-server -m x -np 1 --metrics --ctx-size=4096"
    assert corrections(given)["value-after-equals"] == "llama-server -m x -np 1 --metrics --ctx-size 4096"
    given = "llama-server -m x -c 262144 -np 4 -kvu --kv-unified-per-slot 131072 --metrics"
    assert corrections(given)["pool-overcommitted"] == given.replace("262144", "524288")
    given = "llama-server -m x -c 16k -np 1 --metrics"
    assert corrections(given)["number-with-rest"] == given.replace("16k", "16384")
    given = "llama-server -m x -np 1 --metrics --no-mmap"
    assert corrections(given)["removed-option"] == given.replace("--no-mmap", "--load-mode none")
    given = "llama-server -m x -np 1"
    assert corrections(given)["metrics-missing"] == f"{given} --metrics"


def test_both_operators_starts_are_judged_as_they_turned_out() -> None:
    """The GPU's original start and the unified machine's overflowed; what was chosen in their place does not."""

    def codes(line: str) -> set[str]:
        return {finding.code for finding in _found(line.split())} - {"metrics-missing"}

    assert codes("-m d.gguf --ctx-size 16384") == {"pool-overcommitted"}
    assert codes("-m d.gguf --ctx-size 16384 --parallel 3 --no-kv-unified") == set()
    assert codes("-m q.gguf -c 262144 -np 4 -kvu") == {"pool-overcommitted"}
    chosen = "-m q.gguf -c 1048576 -np 4 -kvu --kv-unified-per-slot 262144 -ctk q8_0 -ctv q8_0"
    assert codes(chosen) == set()
    assert codes("-m q.gguf -c 262144 -np 4 -kvu --kv-unified-per-slot 131072") == {"pool-overcommitted"}


_ROUTERS = {
    "-c 65536 -np 4 -kvu": "no-model pool-overcommitted",
    "-c 65536 -np 4 --no-kv-unified": "no-model",
    "-c 65536": "no-model pool-overcommitted",
    "": "no-model pool-overcommitted",
    "--models-dir /models": "pool-overcommitted",
    "--models-dir /models -np 4 -c 65536 --no-kv-unified": "",
    "--models-dir /models -c 65536 -np 4 -kvu": "pool-overcommitted",
    "--models-dir /models -c 65536 -np 4 -kvu --kv-unified-per-slot 16384": "",
    # Of what is not given here, the presets may tell.
    "--models-preset /models.ini": "",
    "--models-preset /models.ini -c 65536": "",
    "--models-preset /models.ini -c 65536 -np 4 -kvu": "pool-overcommitted",
    "--version": "",
    "--help": "",
}


@pytest.mark.parametrize("line", _ROUTERS)
def test_a_routers_options_are_judged_as_those_of_each_model_it_loads(line: str) -> None:
    found = _found(shlex.split(line))
    assert sorted(finding.code for finding in found) == _ROUTERS[line].split()
    for finding in found:
        if finding.code == "pool-overcommitted":
            assert finding.consequence.endswith("Each model that the router loads gets such a pool.")


def test_without_a_model_the_line_is_a_routers_or_on_older_builds_a_mistake() -> None:
    (note,) = _found(["-np", "4", "--no-kv-unified"])
    assert (note.severity, note.text) == ("note", "no model is given: the server becomes a router")
    (note,) = _found(["-np", "4", "--no-kv-unified"], 7218)
    assert note.severity == "note"
    (error,) = (finding for finding in _found(["-np", "4"], 7217) if finding.code == "no-model")
    assert (error.severity, error.text) == ("error", "no model is given, and builds before b7218 need one")


@pytest.mark.real_server
def test_a_real_routers_model_has_the_pool_that_the_routers_options_tell(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").symlink_to(tiny_model())
    binary, port = llama_server_binary(), free_port()
    own = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
    line = f"--models-dir {tmp_path} --port {port} -t 1 -c 1024 -np 4 -kvu --kv-unified-per-slot 512"
    with (tmp_path / "log").open("wb") as log:
        router = subprocess.Popen(
            [binary, *shlex.split(line)], env={**own, "LD_LIBRARY_PATH": str(binary.parent)},
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        asked, match = False, None
        while match is None:
            said = (tmp_path / "log").read_text(errors="replace")
            assert time.monotonic() < deadline, said
            if not asked and "listening on" in said:
                asked = httpx.post(
                    f"http://127.0.0.1:{port}/models/load", json={"model": "tiny"}, timeout=30
                ).is_success
            match = INITIALIZING.search(said)
            time.sleep(0.1)
        assert match.groups() == ("4", "512", "true")
    finally:
        os.killpg(router.pid, signal.SIGKILL)  # with the models' servers
        router.wait(20)


def test_the_table_is_written_by_the_script_that_says_so(tmp_path: Path) -> None:
    from kvexporter.lint import options_table
    from kvexporter.lint.help_text import table_source

    source = Path(options_table.__file__).read_text()
    assert table_source(OPTIONS, BUILD) == source
