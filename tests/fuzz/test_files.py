"""Damaged files: configurations, recordings, journal exports and command lines give a value or their own error."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kvexporter.config import ConfigError, load_config
from kvexporter.facts import FoundProcess
from kvexporter.llama.geometry import geometry_from_launch
from kvexporter.llama.launch import parse_launch
from kvexporter.llama.launch_names import ENVIRONMENT, ENVIRONMENT_OFF, FLAGS, VALUES
from kvexporter.replay import run_replay
from kvexporter.server import Server
from kvexporter.sources.cgroup_path import placement
from kvexporter.sources.journal_export import ExportReader
from kvexporter.sources.recording import RecordingError
from kvexporter.targets import plan_targets
from tests.fuzz import corpus
from tests.fuzz.budget import fuzz_settings
from tests.fuzz.invariants import assert_renderable, assert_sane
from tests.fuzz.mutations import TOKENS, mutate, mutated_bytes, mutated_lines
from tests.support.paths import ROOT

EXAMPLE = (ROOT / "packaging" / "kvexporter.yml").read_bytes()
WHOLE = re.sub(rb"(?m)^#(?=\S)(?! ?[A-Z])", b"", EXAMPLE)
"""The example configuration with its keys in force."""

CONFIGS = (
    WHOLE,
    EXAMPLE,
    b"servers:\n- {unit: a.service, poll_interval: 2s}\n- {url: 'http://[::1]:8', geometry: {slots: 4, capacity: 9}}\n",
    b"discovery: true\njournal: {directory: /var/log/journal}\n",
    b"servers:\n  - &a\n    url: http://h:1\n  - <<: *a\n    name: b\n",
)

YAML_WORDS = (
    b"&a [*a]", b"*a", b"<<: ", b"!!python/object:os.system ", b"!!binary aGk=", b"? ", b"- ", b"|\n",
    b"%YAML 1.2\n---\n",
    b"~", b"0x1f", b"1e400", b".nan", b"9" * 5000, b"2026-01-01", b"'", b"# ", b"\xef\xbb\xbf", b"\x85", b"[[[[[[[[",
    b"servers: ", b"url: http://\xff:99999", b"https://user:pw@h", b"http://[::1", b"1_000", b"yes",
    b"\n---\n", b"{a: }",
)  # fmt: skip


@st.composite
def damaged_configs(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from(CONFIGS))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        data = data[:place] + draw(st.sampled_from(YAML_WORDS)) + data[place:]
    return mutate(draw, data, 3)


@fuzz_settings(2)
@given(damaged_configs())
def test_a_damaged_configuration_is_read_or_refused_with_its_line(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "c.yml"
        file.write_bytes(data)
        try:
            config = load_config(file)
        except ConfigError as error:
            for line in str(error).split("\n"):
                assert line.startswith(f"{file}:"), line
                assert len(line) < 1000
            return
    assert len(config.servers) <= 200
    assert len({target.name for target in plan_targets(config, ())}) == len(config.servers)


WORDS = st.one_of(
    st.sampled_from([*VALUES, *FLAGS, "-v", "--verbose", "--log-verbose", "-c=", "--ctx_size", "--"]),
    st.sampled_from(["0", "-1", "4096", "16k", "9" * 20, "1e5", "true", "off", "٣", "", "a\ud800b", "\0"]),
    st.sampled_from(["f16", "q8_0", "/m/model.gguf", "/run/a.sock", "::1", "0.0.0.0", "http://[", "user:pw@host"]),
    st.text(max_size=12),
)
VARIABLES = st.sampled_from([name for name, _ in (*ENVIRONMENT, *ENVIRONMENT_OFF)]) | st.text(max_size=12)


@fuzz_settings(2)
@given(
    st.sampled_from(corpus.commands()),
    st.lists(WORDS, max_size=12),
    st.none() | st.dictionaries(VARIABLES, WORDS, max_size=6),
    st.integers(0, 12),
    st.lists(st.integers(0, 70000), max_size=3),
)
def test_any_command_line_gives_options_a_geometry_and_a_target(
    command: tuple[str, ...], words: list[str], environment: dict[str, str] | None, place: int, ports: list[int]
) -> None:
    arguments = (*command[:place], *words, *command[place:])
    options = parse_launch(arguments, environment)
    for number in (None, 4, 2**40):
        geometry_from_launch(options, slots=number, slot_context=number, training_context=number)
    server = Server("s")
    server.launched_with(options)
    assert_sane(server.snapshot(1.0))
    found = FoundProcess(
        pid=7,
        start_time=1.0,
        arguments=("llama-server", *arguments),
        environment=environment or {},
        environment_readable=environment is not None,
        unit="a.service",
        listen_ports=tuple(ports),
    )
    with tempfile.NamedTemporaryFile(suffix=".yml") as empty:
        targets = plan_targets(load_config(Path(empty.name)), (found,))
    assert [target.unit for target in targets] == ["a.service"]


CGROUPS = (
    b"0::/system.slice/llama-server.service\n",
    b"12:cpu:/\n1:name=systemd:/user.slice/user-1000.slice/user@1000.service/app.slice/llama.service\n0::/\n",
    b"0::/system.slice/docker-" + b"ab" * 32 + b".scope\n",
)


@fuzz_settings(1)
@given(mutated_bytes(CGROUPS))
def test_any_cgroup_text_gives_a_place(data: bytes) -> None:
    placement(data.decode("utf-8", "replace"))


def _exports() -> tuple[bytes, ...]:
    """The first entries of recorded journals, and those in which systemd or journald speaks."""
    found = []
    for folder in corpus.folders():
        file = folder / "journal.export"
        if file.exists():
            entries = file.read_bytes().split(b"\n\n")
            special = [e for e in entries if b"MESSAGE_ID=" in e or b"_LINE_BREAK" in e or b"MESSAGE\n" in e]
            found.append(b"\n\n".join([*entries[:6], *special[:6]]) + b"\n\n")
    return tuple(found)


EXPORTS = _exports()
SIZES = (b"\0" * 8, b"\xff" * 8, b"\x05" + b"\0" * 7, b"\0\0\x20" + b"\0" * 5, b"\0\0\0\0\x01\0\0\0", b"\x7f" * 8)


@st.composite
def damaged_exports(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from(EXPORTS))
    for _ in range(draw(st.integers(0, 2))):
        start = data.find(draw(st.sampled_from((b"MESSAGE", b"_PID", b"__REAL", b"UNIT", b"N_DROPPED"))))
        field = draw(st.sampled_from((b"MESSAGE\n", b"_PID\n", b"UNIT\n", b"X\n", b"MESSAGE_ID\n")))
        value = draw(st.binary(max_size=20))
        data = data[: max(0, start)] + field + draw(st.sampled_from(SIZES)) + value + b"\n" + data[max(0, start) :]
    return mutate(draw, data)


@fuzz_settings(1)
@given(damaged_exports())
def test_a_damaged_journal_export_is_read_as_far_as_it_goes(data: bytes) -> None:
    reader = ExportReader(io.BytesIO(data))
    entries = list(reader)
    assert len(entries) + reader.malformed == reader.read
    for entry in entries:
        assert 0 <= entry.at <= 1e12
        assert len(entry.message) <= 1 << 20


def _polls() -> tuple[bytes, ...]:
    files = [folder / "polls.jsonl" for folder in corpus.folders() if (folder / "polls.jsonl").exists()]
    return tuple(b"\n".join(file.read_bytes().splitlines()[10:14]) for file in files)


POLLS = _polls()
REQUESTS = (b'{"args": ["-c", "4096", "-np", "4"]}', b'{"args": 5}', b"[]", b"null", b'{"args": [{}, null]}', b"{}")


@fuzz_settings(1)
@given(
    damaged_exports(),
    st.lists(mutated_lines(0), max_size=30),
    mutated_bytes(POLLS),
    st.sampled_from(REQUESTS),
    st.booleans(),
    st.none() | st.sampled_from((0.0, -1.0, 5.0, 1e6)),
)
def test_a_damaged_recording_is_replayed_or_refused(
    export: bytes, lines: list[bytes], polls: bytes, requests: bytes, journal: bool, at: float | None
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if journal:
            (folder / "journal.export").write_bytes(export)
        else:
            (folder / "server.log").write_bytes(b"\n".join(lines) + export)
        (folder / "polls.jsonl").write_bytes(polls)
        (folder / "requests.json").write_bytes(requests)
        try:
            snapshot = run_replay(folder, at=at)
        except RecordingError as refused:
            words = str(refused)
            assert words.startswith(name), words
            return
    for server in snapshot.servers:
        assert_sane(server)
    assert_renderable(snapshot.servers, snapshot.at)


@fuzz_settings(1)
@given(st.binary(max_size=200) | st.lists(st.sampled_from(TOKENS)).map(b"".join))
def test_any_bytes_are_a_log(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(RecordingError):  # nothing of a llama-server in it
            run_replay(log_file=Path(file.name))
