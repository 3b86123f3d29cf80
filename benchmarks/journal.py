"""A journal of a million entries, made once from the recordings and kept in .cache.

Four fifths are llama-server's lines, from the recordings of all builds in turn; the rest are other units', some of
which quote the error too. Times since the start and task numbers are counted on from turn to turn, so that lines
differ as they do in a real journal (journald stores equal ones once).
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import children_cpu
from tests.support.journal_files import journal_remote
from tests.support.paths import CACHE, RECORDINGS

UNIT = "llama-server.service"
ERROR = b"Context size has been exceeded"

_FORM = 3
"""Changes when what is generated does."""
_STARTED = 1_796_000_000_000_000
_STEP = 86_400
"""Microseconds from entry to entry: a million make a day."""
_TASK = re.compile(rb"(task +|id_task = |task id = )(\d+)\b")
_CLOCK = re.compile(rb"\A(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) ")


def bench_journal(entries: int) -> Path:
    """The folder with a journal of so many entries, made if it is not there yet: a minute or two for a million."""
    logs = sorted(RECORDINGS.glob("**/server.log"))
    key = hashlib.sha256(b"%d" % _FORM + b"".join(path.read_bytes() for path in logs)).hexdigest()[:12]
    folder = CACHE / "bench-journal" / f"{entries}-{key}"
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    command = [str(journal_remote()), "-o", str(folder / "bench.journal"), "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as writer:
        assert writer.stdin is not None
        for part in _entries(entries, logs):
            writer.stdin.write(part)
        writer.stdin.close()
        if writer.wait() != 0:
            raise RuntimeError(f"systemd-journal-remote: exit {writer.returncode}")
    (folder / "complete").touch()
    return folder


def grep(folder: Path) -> tuple[float, float, int]:
    """(seconds, CPU seconds, lines) of what anybody would type to count the error lines."""
    command = f'journalctl -u {UNIT} -o cat --directory "$0" | grep -c "{ERROR.decode()}"'
    began, used = time.perf_counter(), children_cpu()
    done = subprocess.run(["sh", "-c", command, str(folder)], capture_output=True, check=True, timeout=600)
    return time.perf_counter() - began, children_cpu() - used, int(done.stdout)


def _entries(count: int, logs: list[Path]) -> Iterator[bytes]:
    lines = _lines(logs)
    for number in range(count):
        at = number * _STEP
        # The fields that journald stores with a service's line.
        stamp = b"__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n" % (_STARTED + at, 60_000_000 + at)
        if number % 5 == 4:
            quoted = number % 5000 == 4
            text = b"proxy: upstream said: %s" % ERROR if quoted else b"GET /index.html %d 200 0.012" % number
            yield stamp + _OTHER + b"MESSAGE=" + text + b"\n\n"
        else:
            pid, text = next(lines)
            yield stamp + _SERVER + b"_PID=%d\nMESSAGE=" % pid + text + b"\n\n"


def _lines(logs: list[Path]) -> Iterator[tuple[int, bytes]]:
    """(process, line), for ever."""
    recordings = [
        [line for line in path.read_bytes().splitlines() if line and not any(b < 32 and b != 9 for b in line)]
        for path in logs
    ]
    turn = 0
    while True:
        for index, lines in enumerate(recordings):
            pid = 1000 + (turn * len(recordings) + index) % 30_000
            for line in lines:
                yield pid, _moved(line, turn)
        turn += 1


def _moved(line: bytes, turn: int) -> bytes:
    line = _TASK.sub(lambda m: m[1] + b"%d" % (int(m[2]) + 1000 * turn), line)
    return _CLOCK.sub(
        lambda m: b"%d.%b.%b.%b " % (int(m[1]) + turn // 60, b"%02d" % ((int(m[2]) + turn) % 60), m[3], m[4]), line
    )


def _fields(unit: str, name: str, boot: str = "0" * 31 + "1", machine: str = "0" * 31 + "2") -> bytes:
    fields = {
        "_BOOT_ID": boot,
        "_MACHINE_ID": machine,
        "_HOSTNAME": "gpubox",
        "_RUNTIME_SCOPE": "system",
        "PRIORITY": "6",
        "SYSLOG_FACILITY": "3",
        "SYSLOG_IDENTIFIER": name,
        "_TRANSPORT": "stdout",
        "_STREAM_ID": hashlib.md5(unit.encode(), usedforsecurity=False).hexdigest(),
        "_UID": "998",
        "_GID": "998",
        "_COMM": name,
        "_EXE": f"/usr/local/bin/{name}",
        "_CMDLINE": f"/usr/local/bin/{name} --port 8080",
        "_CAP_EFFECTIVE": "0",
        "_SYSTEMD_CGROUP": f"/system.slice/{unit}",
        "_SYSTEMD_UNIT": unit,
        "_SYSTEMD_SLICE": "system.slice",
        "_SYSTEMD_INVOCATION_ID": hashlib.md5(name.encode(), usedforsecurity=False).hexdigest(),
    }
    return "".join(f"{key}={value}\n" for key, value in fields.items()).encode()


_SERVER = _fields(UNIT, "llama-server")
_OTHER = _fields("proxy.service", "proxy") + b"_PID=700\n"
