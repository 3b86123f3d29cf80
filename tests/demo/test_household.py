"""The demonstration's processes and folder are gone when it ends, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvexporter.demo.ending import Ended, Ending
from kvexporter.demo.household import Household
from kvexporter.demo.janitor import end_marked, marked
from tests.support.paths import wait_for

# A household with a process that ends when it is told to, one that does not, and one that a child has started.
SCRIPT = """
import subprocess, sys, time
from kvexporter.demo.household import Household
household = Household().__enter__()
household.spawn("willing", ["sleep", "1000"])
stubborn = "trap '' TERM; touch $0; while :; do sleep 1000; done"
household.spawn("stubborn", ["sh", "-c", stubborn, household.folder / "up"])
household.spawn("parent", ["sh", "-c", "sleep 1000 & wait"])
while not (household.folder / "up").exists():
    time.sleep(0.01)
print(household.folder, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    for folder in tmp_path.iterdir():
        end_marked(folder, 0.0)


def test_what_it_started_ends_with_it_and_its_folder_is_gone(temporary: Path) -> None:
    with Household() as household:
        folder = household.folder
        willing = household.spawn("willing", ["sleep", "1000"])
        household.spawn("parent", ["sh", "-c", "sleep 1000 & exec sleep 1000"])
        wait_for("all three to run", lambda: len(marked(folder)) == 3)
    assert willing.ended
    assert marked(folder) == []
    assert list(temporary.iterdir()) == []


def test_nothing_is_started_any_more_while_it_ends(temporary: Path) -> None:
    with Household() as household:
        pass
    with pytest.raises(Ended):
        household.spawn("late", ["sleep", "1000"])
    with pytest.raises(Ended):
        household.pause(1000)
    assert list(temporary.iterdir()) == []


def test_a_program_that_is_missing_is_an_error_and_leaves_nothing(temporary: Path) -> None:
    with pytest.raises(FileNotFoundError), Household() as household:
        household.spawn("missing", ["/nonexistent/program"])
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_janitor_cleans_up_after_one_that_was_killed(tmp_path: Path, number: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    try:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert len(marked(folder)) >= 4
    finally:
        owner.send_signal(number)
        owner.communicate()
    wait_for("its processes to end", lambda: marked(folder) == [])
    wait_for("its folder to go", lambda: not folder.exists())


def test_no_room_for_its_folder_is_an_error_that_says_so(tmp_path: Path) -> None:
    # A folder within what is no folder: not even root can make it.
    (tmp_path / "file").touch()
    script = "import tempfile; tempfile.tempdir = 'PLACE'; from kvexporter.demo import janitor; janitor.main()"
    place = str(tmp_path / "file" / "folder")
    done = subprocess.run([sys.executable, "-c", script.replace("PLACE", place)], capture_output=True, check=False)
    assert done.stdout == b"!Not a directory\n"


def test_signals_end_waiting_and_interrupt_nothing_else() -> None:
    with Ending() as ending:
        ending.check()
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)  # nothing is raised here
        began = time.monotonic()
        with pytest.raises(Ended):
            ending.wait(1000)
        with pytest.raises(Ended):
            ending.check()
        assert time.monotonic() - began < 100


def test_the_signals_mean_what_they_meant_before_once_it_is_over() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Ending():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
