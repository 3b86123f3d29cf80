"""When a process begins anew for a store that answered too late, and that its signals are not lost by it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from kvexporter.beginning_anew import ANEW_SECONDS, decide

# Says its PID and its arguments, and begins anew once; then says which of two signals, sent in between, have come.
PROGRAM = """
import os, signal, sys
from kvexporter.beginning_anew import begin_anew, heed_signals, hold_signals

print(os.getpid(), sys.argv[1:], sys.flags.no_site, sys.stdin.fileno())
if "KVEXPORTER_TEST_ANEW" not in os.environ:
    os.environ["KVEXPORTER_TEST_ANEW"] = "1"
    hold_signals()
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGHUP)
    begin_anew()
came = []
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: came.append(signal.Signals(number).name))
heed_signals()
print(sorted(came))
"""


@pytest.mark.parametrize(
    ("age", "stdin", "decided"),
    [
        (61.0, False, "later"),
        (ANEW_SECONDS - 0.1, False, "later"),
        (ANEW_SECONDS, False, "now"),
        (86_400.0, False, "now"),
        (61.0, True, "never"),
        (86_400.0, True, "never"),
    ],
)
def test_it_begins_anew_once_it_is_five_minutes_old_and_never_with_a_log_on_standard_input(
    age: float, stdin: bool, decided: str
) -> None:
    assert decide(age, stdin=stdin) == decided


def test_the_new_process_has_the_same_pid_and_command_line_and_gets_the_signals_that_came_in_between() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "KVEXPORTER_TEST_ANEW"}
    command = [sys.executable, "-c", PROGRAM, "run", "--a", "b c"]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        out, _ = process.communicate(timeout=60)
    line = f"{process.pid} ['run', '--a', 'b c'] 0 0"
    assert out.splitlines() == [line, line, "['SIGHUP', 'SIGTERM']"]
    assert process.returncode == 0
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
