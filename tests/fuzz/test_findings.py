"""What fuzzing found, as small as it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvexporter.config import Config, ConfigError, load_config
from kvexporter.facts import FoundProcess, UnitExited
from kvexporter.replay import run_replay
from kvexporter.sources.recording import RecordingError
from kvexporter.targets import plan_targets
from tests.fuzz.invariants import assert_renderable
from tests.support.model import LogStory


@pytest.mark.parametrize("host", ["/m/model.gguf", "\x80", "\x1f", "http://[", "user:pw@host", "a b", "[::1", "%"])
def test_a_process_with_an_impossible_host_costs_no_other_server_its_discovery(host: str) -> None:
    # Anybody may start a process of that name.
    bad = FoundProcess(7, 1.0, ("llama-server", "--host", host), environment_readable=True)
    fine = FoundProcess(8, 2.0, ("llama-server", "--port", "8081"), environment_readable=True)
    targets = {target.process.pid: target for target in plan_targets(Config(), (bad, fine)) if target.process}
    assert set(targets) == {7, 8}
    assert targets[8].api is not None
    assert targets[8].api.base_url == "http://127.0.0.1:8081"


def test_a_url_that_the_client_could_not_use_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "c.yml"
    file.write_text('servers:\n  - url: "http://*a[::1]:8"\n')
    with pytest.raises(ConfigError, match=r"c\.yml:2: servers\[0\]\.url: expected an http:// or https:// URL"):
        load_config(file)


@pytest.mark.parametrize("bytes_", [b"\xff", b"\x80", b"\x01", "\ufffe".encode()])
def test_a_configuration_that_is_no_text_is_refused_with_its_line(tmp_path: Path, bytes_: bytes) -> None:
    file = tmp_path / "c.yml"
    file.write_bytes("# é\n\n# ".encode() + bytes_ + b"\n")
    with pytest.raises(ConfigError, match=r"c\.yml:3: not a text file in UTF-8"):
        load_config(file)


@pytest.mark.parametrize("requests", ['{"args": 5}', "[]", "5", "[" * 100_000])
def test_a_recording_with_an_unusable_command_line_is_refused(tmp_path: Path, requests: str) -> None:
    (tmp_path / "server.log").write_text("")
    (tmp_path / "requests.json").write_text(requests)
    with pytest.raises(RecordingError, match=r"requests\.json"):
        run_replay(tmp_path)


@pytest.mark.parametrize(
    "poll",
    [
        '{"t": 1e15, "/slots": {}}',
        '{"t": NaN, "/slots": {}}',
        '{"t": 1, "/slots": {"ms": "soon"}}',
        '{"t": 1, "/slots": {"ms": Infinity}}',
        "[" * 100_000,
    ],
)
def test_a_recording_with_an_impossible_time_is_refused_with_its_line(tmp_path: Path, poll: str) -> None:
    (tmp_path / "server.log").write_text("")
    (tmp_path / "polls.jsonl").write_text(f"\n{poll}\n")
    with pytest.raises(RecordingError, match=r"polls\.jsonl:2"):
        run_replay(tmp_path)


def test_a_recorded_body_with_half_a_character_is_a_malformed_answer(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("")
    (tmp_path / "polls.jsonl").write_text('{"t": 1, "/slots": {"status": 200, "body": "\\ud800"}}')
    (server,) = run_replay(tmp_path).servers
    assert server.poll_failures == {("slots", "malformed"): 1}


def test_a_line_that_ends_one_cascade_by_its_time_and_another_by_its_words_counts_both() -> None:
    error = "srv update_slots: Context size has been exceeded. off = 0, n_batch = 1, ret = 1"
    echo = "srv update_slots: decode() failed: Context size has been exceeded."
    story = LogStory().line(error)
    story.at += 3
    story.line(error).line(echo)
    story.server.conclude()
    assert story.server.snapshot(story.at).counters.incidents["pool"] == 2


def test_an_echo_after_a_stall_is_of_the_error_before_it() -> None:
    error = "srv update_slots: Context size has been exceeded. off = 0, n_batch = 1, ret = 1"
    story = LogStory().line(error)
    story.at += 3
    story.line("srv update_slots: decode() failed: Context size has been exceeded.")
    story.server.conclude()
    assert story.server.snapshot(story.at).counters.incidents["pool"] == 1


def test_a_server_that_goes_keeps_the_seconds_at_each_fill_that_it_had() -> None:
    story = LogStory().lines(
        """
        srv load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'
        srv llama_server: server is listening on http://127.0.0.1:8080
        srv update_slots: all slots are idle
        """
    )
    assert story.server.snapshot(story.at).fill_seconds is not None
    story.line("srv llama_server: initializing ...")
    assert story.server.snapshot(story.at).fill_seconds is not None


def test_an_exit_status_of_any_length_makes_no_long_label() -> None:
    story = LogStory()
    for ending in "ab":
        story.server.unit_event(UnitExited("exited", "x" * 250 + ending), story.at)
    text = assert_renderable([story.server.snapshot(story.at)], story.at)
    assert text.count('="xxx') == 2


def test_an_error_in_yaml_is_one_short_line_whatever_it_quotes(tmp_path: Path) -> None:
    file = tmp_path / "c.yml"
    file.write_text("a: *" + "9" * 5000 + "\n")
    with pytest.raises(ConfigError) as refused:
        load_config(file)
    assert len(str(refused.value)) < 400
