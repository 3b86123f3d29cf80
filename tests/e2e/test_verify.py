"""`kvexporter verify` on the real llama-server: as intended, not as intended, and not to be asked."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from kvexporter.cli import run_cli
from tests.support.journal_files import LiveJournalFile
from tests.support.llama_server import RealLlamaServer
from tests.support.paths import free_port, wait_for
from tests.support.router import RealRouter

pytestmark = pytest.mark.real_server

Captured = pytest.CaptureFixture[str]
OPTION_A = ("-c", "4096", "-np", "4", "-kvu", "--kv-unified-per-slot", "1024")
SHARED = ("-c", "4096", "-np", "4", "-kvu")


def config(tmp_path: Path, server: RealLlamaServer, journal: LiveJournalFile) -> str:
    path = tmp_path / "kvexporter.yml"
    entry = {
        "name": "main",
        "url": server.url,
        "unit": journal.unit,
        "journal": {"directory": str(journal.directory)},
    }
    path.write_text(json.dumps({"servers": [entry]}))
    return str(path)


def is_asleep(server: RealLlamaServer) -> bool:
    return bool(server.get("/props")["is_sleeping"])


def test_a_server_as_it_was_meant_is_exit_status_0_after_one_token(capsys: Captured) -> None:
    with RealLlamaServer(*OPTION_A, "--metrics") as server:
        arguments = ["--expect-window", "1024", "--expect-slots", "4", "--expect-pool", "4096"]
        assert run_cli(["verify", "--url", server.url, *arguments]) == 0
        assert "tokens_predicted_total 1\n" in _metrics(server)
    said = capsys.readouterr().out
    assert "a completion of one token took" in said
    assert "window of each slot: 1,024, as expected" in said
    assert "no problems, no warnings" in said


def test_nothing_is_generated_when_that_is_not_wanted() -> None:
    with RealLlamaServer(*OPTION_A, "--metrics") as server:
        assert run_cli(["verify", "--url", server.url, "--expect-slots", "4", "--no-completion"]) == 0
        assert "tokens_predicted_total 0\n" in _metrics(server)


def _metrics(server: RealLlamaServer) -> str:
    import httpx

    return httpx.get(server.url + "/metrics", timeout=10, trust_env=False).text.replace("llamacpp:", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--expect-window", "2048"], "window of each slot: 4,096, expected 2,048"),
        (["--expect-slots", "2"], "slots: 4, expected 2"),
        (["--expect-pool", "16384"], "pool: 4,096, expected 16,384"),
        (["--expect-window", "4096"], "only 1,024 tokens are sure for each"),
    ],
)
def test_a_server_that_is_not_as_it_was_meant_is_exit_status_1(
    shared: RealLlamaServer, arguments: list[str], words: str, capsys: Captured
) -> None:
    assert run_cli(["verify", "--url", shared.url, *arguments]) == 1
    said = capsys.readouterr().out
    assert words in said
    assert "problem" in said


def test_an_overcommitted_pool_can_be_meant(shared: RealLlamaServer, capsys: Captured) -> None:
    assert run_cli(["verify", "--url", shared.url, "--expect-window", "4096", "--allow-overcommit"]) == 0


def test_a_window_that_the_server_rounds_up_is_as_expected(shared: RealLlamaServer, capsys: Captured) -> None:
    arguments = ["--expect-window", "4000", "--allow-overcommit"]
    assert run_cli(["verify", "--url", shared.url, *arguments]) == 0


@pytest.fixture(scope="module")
def shared() -> object:
    with RealLlamaServer(*SHARED) as server:
        yield server


def test_the_startup_line_is_read_from_the_journal(tmp_path: Path, capsys: Captured) -> None:
    with LiveJournalFile(tmp_path / "journal") as journal, RealLlamaServer(*SHARED, journal=journal) as server:
        server.wait_log("initializing, n_slots")
        # Another server than the one that is looked for: nothing of its process is known, as of one on another host.
        arguments = ["--server", "main", "--config.file", config(tmp_path, server, journal), "--expect-pool", "4096"]
        assert run_cli(["verify", *arguments]) == 0
    assert "pool: 4,096, as expected" in capsys.readouterr().out


def test_a_sleeping_server_is_left_asleep_unless_it_may_be_woken(capsys: Captured) -> None:
    with RealLlamaServer(*OPTION_A, "--sleep-idle-seconds", "1") as server:
        wait_for("the server to sleep", lambda: is_asleep(server))
        assert run_cli(["verify", "--url", server.url, "--expect-window", "1024"]) == 2
        assert "is asleep" in capsys.readouterr().err
        assert is_asleep(server)
        assert run_cli(["verify", "--url", server.url, "--expect-window", "1024", "--wake"]) == 0


def test_a_wrong_or_missing_api_key_is_exit_status_2_and_shown_nowhere(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "key").write_text("right-secret\n")
    (tmp_path / "wrong").write_text("wrong-secret\n")
    with RealLlamaServer(*OPTION_A, "--api-key", "right-secret") as server:
        asked = ["verify", "--url", server.url, "--expect-window", "1024"]
        assert run_cli(asked) == 2
        assert "say --api-key-file" in capsys.readouterr().err
        assert run_cli([*asked, "--api-key-file", str(tmp_path / "wrong")]) == 2
        assert run_cli([*asked, "--api-key-file", str(tmp_path / "missing")]) == 2
        assert run_cli([*asked, "--api-key-file", str(tmp_path / "key")]) == 0
    said = capsys.readouterr()
    assert "secret" not in said.out + said.err


def test_it_waits_for_a_server_that_is_still_being_started(capsys: Captured) -> None:
    server = RealLlamaServer(*OPTION_A)

    def start_late() -> None:
        time.sleep(2)
        server.start(wait=False)

    starting = threading.Thread(target=start_late)
    starting.start()
    try:
        assert run_cli(["verify", "--url", server.url, "--expect-window", "1024"]) == 0
    finally:
        starting.join()
        server.stop()


def test_a_server_that_never_comes_is_exit_status_2_after_the_deadline(capsys: Captured) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert run_cli(["verify", "--url", url, "--deadline", "1"]) == 2
    assert f"{url}/props: nothing listens there" in capsys.readouterr().err


def test_a_routers_model_is_loaded_only_when_that_is_allowed(tmp_path: Path, capsys: Captured) -> None:
    router = RealRouter(tmp_path / "models", "tiny", "other", arguments=("-c", "4096", "-np", "2"))
    with router:
        asked = ["verify", "--url", router.url, "--expect-window", "2048", "--expect-slots", "2"]
        assert run_cli(asked) == 2
        assert "is a router: say which --model" in capsys.readouterr().err
        assert run_cli([*asked, "--model", "nobody"]) == 2
        assert "it has: other, tiny" in capsys.readouterr().err.replace("tiny, other", "other, tiny")
        assert run_cli([*asked, "--model", "tiny"]) == 2
        assert "is unloaded: have it loaded with --wake" in capsys.readouterr().err
        assert router.state_of("tiny") == "unloaded"
        assert run_cli([*asked, "--model", "tiny", "--wake", "--expect-pool", "4096"]) == 0
        assert run_cli([*asked, "--model", "tiny", "--no-completion"]) == 0
        assert (router.state_of("tiny"), router.state_of("other")) == ("loaded", "unloaded")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--url", "http://a", "--server", "b"], "expected one of --url and --server"),
        (["--url", "ftp://a"], "must be http://… or https://…"),
        (["--url", "http://me:pass@a"], "use api_key_file"),
        (["--unit", "nothing.service", "--deadline", "1"], "no llama-server in nothing.service runs here: say --url"),
        (["--server", "nobody", "--deadline", "1"], "no server 'nobody' runs here"),
        (["--expect-slots", "0"], "0 is not in the range"),
        (["--config.file", "nothing.yml"], "nothing.yml"),
    ],
)
def test_what_it_cannot_use_is_exit_status_2_with_what_to_do(
    arguments: list[str], words: str, capsys: Captured
) -> None:
    assert run_cli(["verify", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert "pass" not in said.err.replace("password", "")
